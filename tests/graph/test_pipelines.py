"""Pipelines whose stages choose their GPUs, as split problems."""

from formulations.node_sharing import NodeSplit
from solver.enumeration.engine import solve_split
from solver.graph.pipelines import FreeDegrees, StageDegrees
from solver.graph.problem import Intervals
from tests.conftest import present
from tests.graph.drawn import NO_CUTOFF, figures, staged_tables
from tests.recorded import Cases, digest, recorded
from tests.template_cases import finals_of, place_costs_of


@recorded("pipelines")
def test_templates_are_the_recorded_ones() -> Cases:
    for seed in range(10):
        split = list(NodeSplit)[seed % len(NodeSplit)]
        places = place_costs_of(seed, split).several
        for number, finals in finals_of(places).items():
            pipelines = FreeDegrees(places, finals, 2 + seed % 3)
            told: list[object] = [len(stage) for stage in pipelines.arcs]
            if told:
                outcome, template = solve_split(pipelines.problem, NO_CUTOFF), None
                if outcome.arcs is not None and outcome.split is not None:
                    template = pipelines.template(outcome.arcs.tolist(), outcome.split.tolist())
                best = [outcome.step_time_ns, pipelines.least_ns(), digest(template)]
                told = [told, *best, figures(pipelines.problem)]
            yield f"template {seed} {number}", told


@recorded("pipelines")
def test_stages_with_degrees_of_their_own_are_the_recorded_ones() -> Cases:
    for name, tables in staged_tables().items():
        pipelines = StageDegrees(Intervals(tables), present(tables.by_place))
        told: list[object] = [len(stage) for stage in pipelines.arcs]
        if told:
            outcome, plan = solve_split(pipelines.problem, NO_CUTOFF), None
            if outcome.arcs is not None and outcome.split is not None:
                plan = pipelines.plan(outcome.arcs.tolist(), outcome.split.tolist())
            told = [told, outcome.step_time_ns, digest(plan), figures(pipelines.problem)]
        yield name, told
