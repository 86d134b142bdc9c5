"""The largest share of micro-batches with which a replica may stay below a cutoff.

Every bound of `completion` grows with the share m of a lane, so each edge has a largest share:
(1) latency through the edge + (m - 1) work - min(w, m - 1) least < cutoff;
(2) arrival of the first micro-batch + m work + tail < cutoff;
(3) memory: m, or with 1F1B at most p - stage, micro-batches in flight.
A path carries no more than its worst edge, a lane no more than its best path.
"""

from dataclasses import replace

import numpy as np

from formulations.schedules import warm_up
from solver.enumeration.completion import latencies, tighten
from solver.enumeration.layered import Layers, bottlenecks, build_layers, so_far, to_go
from solver.enumeration.problem import INFINITY, Array, Intervals, SplitProblem

#: Shares below the first bound that are tried before it is taken as it is.
TRIES = 3


def _by_time(room: Array, work: Array, least: Array, most_saved: int) -> Array:
    """[M] largest m with (m - 1) work - min(w, m - 1) least <= room; 0 if there is none."""
    late = 1 + (room + most_saved * least) // np.maximum(work, 1)
    early = 1 + np.minimum(room // np.maximum(work - least, 1), most_saved)
    most: Array = np.where(late > most_saved, late, np.minimum(early, most_saved + 1))
    return np.where(room < 0, 0, most)


def _by_memory(problem: SplitProblem, intervals: Intervals, stage: int, group: int) -> Array:
    """[n, n] largest share whose activations fit; INFINITY for any."""
    tables = intervals.tables
    free = tables.capacity_bytes[group] - intervals.static - intervals.workspace
    held: Array = np.where(free < 0, 0, free // np.maximum(intervals.activation, 1))
    if problem.schedule == "gpipe":
        return held
    most = warm_up(problem.schedule, problem.num_stages, stage, 1 << 40) + 1
    return np.where(held >= most, INFINITY, held)


def _most(problem: SplitProblem, intervals: Intervals, layers: Layers, cutoff: int) -> list[Array]:
    """Per stage [M] largest share of a problem with one lane."""
    costs = latencies(layers, 0)
    before, after = so_far(layers, costs), to_go(layers, costs)
    down = so_far(layers, [edges.forward[0] + edges.send[0] for edges in layers])
    found = []
    for k, (edges, cost) in enumerate(zip(layers, costs, strict=True)):
        work, least = edges.work[0], edges.least[0]
        through = before[k][edges.source] + cost + after[k + 1][edges.target]
        arrival = down[k][edges.source] + edges.send[0]
        saved = 0 if problem.schedule == "gpipe" else problem.num_stages - 1 - k
        most = _by_time(cutoff - 1 - through, work, least, saved)
        busy = (cutoff - 1 - arrival - edges.tail) // np.maximum(work, 1)
        group = int(problem.stages[k].column[0, 0])
        memory = _by_memory(problem, intervals, k, group)[edges.start, edges.end]
        found.append(np.minimum(np.minimum(most, busy), memory))
    return found


def largest_share(problem: SplitProblem, intervals: Intervals, most: int, cutoff: int) -> int:
    """Largest share, up to `most`, with which one lane alone may stay below the cutoff; or 0.

    problem: a fixed order with that one lane, and one micro-batch.
    """
    layers = tighten(problem, build_layers(problem, cutoff), cutoff)
    if layers is None:
        return 0
    shares = _most(problem, intervals, layers, cutoff)
    best = np.full(layers[-1].num_targets, -most)
    for edges, own in zip(reversed(layers), reversed(shares), strict=True):
        best = edges.from_sources(np.maximum(-own, best[edges.target]))
    share = max(0, -int(best[0]))
    for _ in range(TRIES):
        if share == 0 or _possible(problem, layers, shares, share, cutoff):
            break
        share -= 1
    return share


def _possible(
    problem: SplitProblem, layers: Layers, shares: list[Array], share: int, cutoff: int
) -> bool:
    """Whether the bounds leave a split for this share."""
    larger = replace(problem, micro_batches=(share,))
    left = []
    for k, (edges, own) in enumerate(zip(layers, shares, strict=True)):
        kept = edges.take(own >= share)
        left.append(replace(kept, term=bottlenecks(larger, k, kept.work, kept.least)))
    return tighten(larger, left, cutoff) is not None
