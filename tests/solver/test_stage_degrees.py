"""Stages with degrees of their own, against trying every plan."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.instance import Instance
from formulations.plan import Shape
from solver.bounds.stage_choice import StageChoice
from solver.options import SolveOptions
from solver.search.by_stage import best_by_stage
from solver.search.stage_shapes import stage_places, stage_shapes
from solver.simulate import step_time_ns
from solver.verify.bounds import Prover
from solver.verify.clock import Clock
from solver.verify.recount import Recount
from solver.verify.space import PlanSpace
from solver.verify.stage_exhaust import exhaust_stages
from solver.verify.stage_work import StageWork
from tests.seeds import few_and_many
from tests.stage_degrees import Bench, stage_instance

ROOT = Path(__file__).parents[2]
NO_CUTOFF = 1 << 56
EXACT = SolveOptions(gap=0.0)


def small_shapes(instance: Instance) -> list[Shape]:
    """Few enough stages and replicas to try everything."""
    return [s for s in stage_shapes(instance) if s.pp <= 4 and s.dp <= 4]


@pytest.mark.parametrize("seeds", few_and_many(range(150), 10))
def test_search_equals_brute_force(seeds: Sequence[int]) -> None:
    """The best plan of every shape; bounds are no higher, and the verifier finds none below it."""
    for seed in seeds:
        instance = stage_instance(seed)
        prover, choice = Prover(PlanSpace(instance)), StageChoice(instance)
        work = StageWork(prover)
        for shape in small_shapes(instance):
            best = Bench(instance, shape).optimum_ns()
            found = best_by_stage(instance, shape, NO_CUTOFF, 0.0, lambda: False)
            assert (found.step_time_ns, found.complete) == (best, True), (seed, shape)
            if best is None or found.plan is None:
                continue
            bound = choice.bound_ns(shape, tuple(stage_places(instance, shape)))
            assert max(bound, work.bound_ns(shape)) <= best, (seed, shape)
            for costs in (Recount(instance, found.plan).costs(), plan_costs(instance, found.plan)):
                assert step_time_ns(costs) == best, (seed, shape)
            below = exhaust_stages(prover, shape, best, Clock())
            above = exhaust_stages(prover, shape, best + 1, Clock())
            assert below is not None, (seed, shape)
            assert above is not None, (seed, shape)
            assert (below.plan, above.step_time_ns) == (None, best), (seed, shape)
