"""Stages with degrees of their own: places, layouts, and bounds below the best plan."""

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.plan import ByPlace
from formulations.space import PlanSpace, configs
from formulations.space.slots import stage_places
from solver.interrupt import Deadline
from solver.simulate import step_time_ns
from solver.verify.bounds import Prover
from solver.verify.stage_degrees import StageGraph, StageWork, exhaust_stages
from tests.conftest import present
from tests.recorded import Cases, digest, recorded, summary
from tests.seeds import one_each
from tests.stage_degrees import Bench, stage_instance


@pytest.mark.parametrize("seed", one_each(range(12), 4))
def test_bounds_and_trials_of_small_configs(seed: int) -> None:
    """No bound is above the best of all layouts; a claim 1 ns above that is refuted by a plan."""
    instance = stage_instance(seed)
    prover = Prover(PlanSpace(instance))
    per_stage = [config for config in configs(instance) if config.per_stage and config.pp <= 3]
    for config in per_stage[:3]:
        best = Bench(instance, config).optimum_ns()
        if best is None:
            continue
        assert StageWork(prover).bound_ns(config) <= best
        below = present(exhaust_stages(prover, config, best, Deadline(None)))
        above = present(exhaust_stages(prover, config, best + 1, Deadline(None)))
        assert below.plan is None
        assert step_time_ns(plan_costs(instance, present(above.plan))) == best


@recorded("verify_stage_degrees")
def test_bounds_and_graphs_are_as_recorded() -> Cases:
    for seed in range(8):
        instance = stage_instance(seed)
        space, parts = PlanSpace(instance), list[object]()
        for config in (config for config in configs(instance) if config.per_stage):
            graph = StageGraph(ByPlace(instance, config, stage_places(instance, config)))
            parts += [StageWork(Prover(space)).bound_ns(config), digest(graph.places)]
            for step in graph.built if graph.built[0].source.size else ():
                parts += [step.source, step.target, step.group, step.send, step.tail]
            parts += [*graph.epilogues.all_ns, *graph.epilogues.embeddings]
        yield f"seed {seed}", [len(parts), digest(summary(parts))]
