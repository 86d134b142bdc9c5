"""Local search: feasible plans, judged by the simulator, ever better, near the optimum."""

from collections import deque
from math import inf

import pytest

from solver.heuristics import local
from solver.heuristics.local import local_plans, surveyed_plan
from solver.heuristics.time_tables import TimeTables
from tests.random_spaces import random_space, spread
from tests.recorded import Cases, digest, recorded


@recorded("local")
def test_plans_of_every_feature_are_the_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """The first, the last, how many; what a survey of few failures finds; states that are kept."""
    monkeypatch.setattr(local, "SURVEYED", 1)
    for seed in (3, 8):
        instance = random_space(seed, "any")
        if seed % 2:
            instance = instance.but(objective={"minimize": "cost_per_step"})
        space, surveyed = spread(instance, 12), []
        plans = list(local_plans(space, TimeTables(instance), seed))
        best = plans[-1][1] if plans else 0
        for below in (float("inf"), 1.5 * best, best):
            plan = surveyed_plan(space, TimeTables(instance), below)
            surveyed.append(plan and plan[1])
        search, states = local._LocalSearch(TimeTables(instance), seed, lambda: False, inf), []
        for phase in (search.starts(space), search.improve(1), search.improve(1)):
            deque(phase, 0)
            states.append(len(search.entries))
        ends = [(digest(plan.replicas), time_ns) for plan, time_ns in plans[:1] + plans[-1:]]
        yield f"space {seed}", [len(plans), ends, surveyed, states]
