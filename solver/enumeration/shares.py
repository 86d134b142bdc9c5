"""The largest share of micro-batches with which a replica may stay below a cutoff.

Every bound of `completion` grows with the share m of a lane, so each edge has a largest share:
(1) latency through the edge + (m - 1) work - min(w, m - 1) least < cutoff;
(2) latency through the edge + what rounds add < cutoff;
(3) arrival of the first micro-batch + m work + tail < cutoff;
(4) memory: m, or with 1F1B at most p - stage, micro-batches in flight.
A path carries no more than its worst edge, a lane no more than its best path.
"""

from dataclasses import replace

import numpy as np

from formulations.schedules import warm_up
from solver.enumeration.completion import tighten
from solver.enumeration.layered import Edges, Layers, bottlenecks, build_layers, so_far, to_go
from solver.enumeration.problem import INFINITY, Array, Intervals, SplitProblem

#: Shares below the first bound that are tried before it is taken as it is.
TRIES = 3


def _times(room: Array, each: Array) -> Array:
    """How often `each` goes into `room` >= 0; INFINITY if it takes no time."""
    return np.where(each > 0, room // np.maximum(each, 1), INFINITY)


def _by_time(room: Array, edges: Edges, most_saved: int) -> Array:
    """[R, M] largest m - 1 by (1), where `room` >= 0 is left above the latency."""
    early = _times(room, edges.work - edges.least)
    late = _times(room + most_saved * edges.least, edges.work)
    return np.where(early < most_saved, early, late)


def _by_rounds(room: Array, edges: Edges, onward: Array, length: int) -> Array:
    """[R, M] largest m - 1 by (2); onward: [R, M] latency of the stages after, length: p - k.

    The least of what one round leaves room for, and of what as many rounds as there are do.
    """
    whole = edges.forward + edges.backward + onward
    single = np.where(room < whole, length - 1, length + _times(room - whole, edges.work))
    spare = room - (length - 1) * edges.work
    rounds = np.maximum(1, _times(np.maximum(spare, 0), whole) + (spare >= 0))
    rounds = np.minimum(rounds, INFINITY // length)
    left = room - rounds * whole
    inside = np.where(left < 0, -1, np.minimum(_times(np.maximum(left, 0), edges.work), length - 1))
    most: Array = np.minimum(single, rounds * length + inside)
    return most


def _by_memory(problem: SplitProblem, held: Array, stage: int) -> Array:
    """Largest m by (4), where activations of `held` micro-batches fit; INFINITY for any."""
    if problem.schedule == "gpipe":
        return held
    most = warm_up(problem.schedule, problem.num_stages, stage, problem.num_stages) + 1
    return np.where(held >= most, INFINITY, held)


def most_shares(
    problem: SplitProblem, intervals: Intervals, layers: Layers, cutoff: int
) -> list[Array]:
    """Per stage [R, M] largest share of every lane, 0 if there is none."""
    costs = [edges.latency for edges in layers]
    costs[0] = costs[0] + layers[0].tail
    before, after = so_far(layers, costs), to_go(layers, costs)
    down = so_far(layers, [edges.forward + edges.send for edges in layers])
    found = []
    for k, (edges, cost) in enumerate(zip(layers, costs, strict=True)):
        onward = after[k + 1][:, edges.target]
        room = cutoff - 1 - (before[k][:, edges.source] + cost + onward)
        saved, length = 0, problem.num_stages - k
        left = np.maximum(room, 0)
        if problem.schedule != "gpipe":
            saved = length - 1
            most = np.minimum(_by_time(left, edges, saved), _by_rounds(left, edges, onward, length))
        else:
            most = _by_time(left, edges, 0)
        busy = cutoff - 1 - down[k][:, edges.source] - edges.send - edges.tail
        most = np.minimum(most + 1, _times(np.maximum(busy, 0), edges.work))
        columns = problem.stages[k].column[edges.arc].T
        held = intervals.room[columns, edges.start, edges.end]
        memory = _by_memory(problem, held, k)
        found.append(np.where((room < 0) | (busy < 0), 0, np.minimum(most, memory)))
    return found


def largest_share(problem: SplitProblem, intervals: Intervals, most: int, cutoff: int) -> int:
    """Largest share, up to `most`, with which one lane alone may stay below the cutoff; or 0.

    problem: a fixed order with that one lane, and one micro-batch.
    """
    layers = tighten(problem, build_layers(problem, cutoff), cutoff)
    if layers is None:
        return 0
    shares = [own[0] for own in most_shares(problem, intervals, layers, cutoff)]
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
