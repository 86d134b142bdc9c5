"""Shapes in which every stage has degrees of its own: all ways to lay them out at once."""

from formulations.plan import Plan
from formulations.slot_degrees import ByPlace
from solver.enumeration.engine import SplitOutcome, Stop, solve_split
from solver.layered.problem import Intervals
from solver.layered.stage_degrees import StageDegrees

#: With more arcs the graph of all layouts is not looked at.
MOST_ARCS = 20_000


def best_by_stage(
    intervals: Intervals, whole: ByPlace, cutoff: int, gap: float, stop: Stop
) -> tuple[Plan | None, SplitOutcome]:
    """The best plan of a shape with a step time below `cutoff`; intervals: by place."""
    graph = StageDegrees(intervals, whole)
    if sum(map(len, graph.arcs)) > MOST_ARCS:
        return None, SplitOutcome(None, None, None, 0, False)
    if not graph.arcs:
        return None, SplitOutcome(None, None, None, cutoff, True)
    found = solve_split(graph.problem, cutoff, gap, stop)
    if found.arcs is None or found.split is None:
        return None, found
    return graph.plan(found.arcs.tolist(), found.split.tolist()), found
