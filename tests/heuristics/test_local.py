"""Local search: feasible plans, judged by the simulator, ever better, near the optimum."""

from collections import deque
from collections.abc import Sequence

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.space import configs
from solver.heuristics import local
from solver.heuristics.local import local_plans, surveyed_plan
from solver.heuristics.time_tables import TimeTables
from solver.simulate import step_time_ns
from tests.best_plans import least_ns
from tests.random_spaces import random_space, spread
from tests.recorded import Cases, digest, recorded
from tests.seeds import few_and_many
from tests.small_instances import random_instance


@pytest.mark.parametrize("seeds", few_and_many(range(40), 20))
def test_plans_fit_get_better_and_nearly_all_tiny_instances_are_solved(
    seeds: Sequence[int],
) -> None:
    """Memory, batch, space and step times; the same ones again."""
    best = planned = 0
    for seed in seeds:
        instance = random_instance(seed)
        plans = list(local_plans(instance, configs(instance), seed))
        for plan, time_ns in plans:
            costs = plan_costs(instance, plan)
            assert (costs.memory_bytes <= costs.limit_bytes).all()
            assert step_time_ns(costs) == time_ns
            batch = sum(costs.micro_batches) * plan.config.micro_batch
            assert batch == instance.workload.global_batch
            assert plan.config in set(configs(instance))
        times, least = [time_ns for _, time_ns in plans], least_ns(instance)
        assert times == sorted(set(times), reverse=True)
        assert list(local_plans(instance, configs(instance), seed)) == plans
        assert not list(local_plans(instance, configs(instance), stop=lambda: True))
        assert bool(plans) == (least is not None)
        best += bool(plans) and times[-1] == least
        planned += bool(plans)
    assert best >= 0.9 * planned > 0


@recorded("local")
def test_plans_of_every_feature_are_the_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """The first, the last, how many; what a survey of few failures finds; states that are kept."""
    monkeypatch.setattr(local, "SURVEYED", 1)
    for seed in (0, 3, 5, 8):
        instance = random_space(seed, "any")
        if seed % 2:
            instance = instance.but(objective={"minimize": "cost_per_step"})
        space, surveyed = spread(instance, 30), []
        plans = list(local_plans(instance, space, seed))
        best = plans[-1][1] if plans else 0
        for below in (float("inf"), 1.5 * best, best):
            plan = surveyed_plan(instance, space, below)
            surveyed.append(plan and plan[1])
        search, states = local._LocalSearch(TimeTables(instance), seed, lambda: False), []
        for phase in (search.starts(space), search.improve(1), search.improve(1)):
            deque(phase, 0)
            states.append(len(search.entries))
        ends = [(digest(plan.replicas), time_ns) for plan, time_ns in plans[:1] + plans[-1:]]
        yield f"space {seed}", [len(plans), ends, surveyed, states]
