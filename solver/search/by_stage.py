"""Closing shapes in which every stage has degrees of its own: all ways to lay them out at once."""

from formulations.costs.stage_places import with_places
from formulations.costs.tables import build_tables
from formulations.instance import Instance
from formulations.plan import Shape, simulable
from solver.enumeration.engine import solve_split
from solver.layered.edges import has_split
from solver.layered.stage_degrees import StageDegrees
from solver.search.closing import ShapeAnswer, Stop
from solver.search.stage_shapes import stage_places

#: With more arcs the graph of all node orders is not built.
MOST_ARCS = 20_000


def best_by_stage(
    instance: Instance, shape: Shape, cutoff: int, gap: float, stop: Stop
) -> ShapeAnswer:
    """The best plan of a shape with a step time below `cutoff`."""
    if not simulable(instance, shape):
        return ShapeAnswer(None, None, False)
    places = stage_places(instance, shape)
    tables = build_tables(*with_places(instance, shape, places))
    graph = StageDegrees(instance, shape, places, tables)
    if sum(map(len, graph.arcs)) > MOST_ARCS:
        return ShapeAnswer(None, None, False)
    if not graph.arcs or not has_split(graph.problem):
        return ShapeAnswer(None, None, True, cutoff)
    cutoff = min(cutoff, 2 * tables.longest_ns + 2)
    found = solve_split(graph.problem, cutoff, gap, stop)
    if found.arcs is None or found.split is None:
        return ShapeAnswer(None, None, found.complete, found.bound_ns)
    plan = graph.plan(found.arcs.tolist(), found.split.tolist())
    return ShapeAnswer(plan, found.step_time_ns, found.complete, found.bound_ns)
