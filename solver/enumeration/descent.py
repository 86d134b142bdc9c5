"""A good split to start from: repeated best single-layer moves on the simulated step time."""

from collections.abc import Callable

import numpy as np

from solver.bounds.latency_bottleneck import least_path, least_term, path_of
from solver.layered.cuts import Cuts, evaluate, join_cuts
from solver.layered.edges import Layers
from solver.layered.problem import Array, SplitProblem, distinct, distinct_rows

#: Different trade-offs of latency and bottleneck that a descent may start from.
STARTS = 12
#: Sweeps of moves.
SWEEPS = 50
#: Moves tried at once.
MOST_MOVES = 1000
#: Steps of more are long to simulate, so that each sweep may be the last.
MANY_MICRO_BATCHES = 2000

Stop = Callable[[], bool]


def starts(layers: Layers) -> Array:
    """Paths of edges [N, p] of least latency, each under another limit on the bottleneck.

    The least limit of every lane first; the rest spread over the terms of its stages.
    """
    paths = []
    limits = []
    for lane in range(len(layers[0].term)):
        values = distinct(np.concatenate([edges.term[lane] for edges in layers]))
        limits.append(values[values >= least_term(layers, lane)])
    for share in np.linspace(0, 1, STARTS):
        most = np.array([values[int(share * (len(values) - 1))] for values in limits])
        path = least_path(layers, most)
        if path is not None:
            paths.append(path)
    return distinct_rows(np.array(paths))


def _busy(problem: SplitProblem, arcs: Array, split: Array) -> Array:
    """[p] device time per micro-batch of the slowest lane."""
    times = problem.work
    columns = np.array([stage.column[arc] for stage, arc in zip(problem.stages, arcs, strict=True)])
    busy: Array = times[columns, split[:-1, None], split[1:, None]].max(axis=1)
    return busy


def neighbours(problem: SplitProblem, arcs: Array, split: Array) -> Array:
    """Allowed splits [N, p + 1] in which one layer more or less moved between two stages.

    Of too many, those that relieve a busy stage most for one that is not.
    """
    p = len(split) - 1
    first, last = np.triu_indices(p, 1)
    busy = _busy(problem, arcs, split)
    relief = np.concatenate([busy[last] - busy[first], busy[first] - busy[last]])
    inside = (np.arange(p + 1) > first[:, None]) & (np.arange(p + 1) <= last[:, None])
    moves = np.concatenate([split + inside, split - inside])
    moves = moves[np.argsort(-relief, kind="stable")[:MOST_MOVES]]
    moves = moves[(np.diff(moves, axis=1) >= 0).all(axis=1)]
    keep = np.ones(len(moves), dtype=bool)
    for k, stage in enumerate(problem.stages):
        keep &= stage.allowed[arcs[k]][moves[:, k], moves[:, k + 1]]
    return moves[keep & problem.fits(moves)]


def descend(problem: SplitProblem, arcs: Array, start: Array, stop: Stop) -> tuple[Array, int]:
    """Local optimum and its step time.

    Steps of so many micro-batches that each sweep takes long are given up when `stop` says so.
    """
    best, time, _ = _descended(problem, arcs, start, stop, harvest=False)
    return best, time


def _descended(
    problem: SplitProblem, arcs: Array, start: Array, stop: Stop, harvest: bool
) -> tuple[Array, int, list[Cuts]]:
    """The same, and if harvested the critical paths of all splits looked at."""
    long = max(problem.micro_batches) > MANY_MICRO_BATCHES
    first = evaluate(problem, arcs[None], start[None], harvest)
    best, time = start, int(first.step_time[0])
    found = [first.cuts]
    for _ in range(SWEEPS):
        moves = neighbours(problem, arcs, best)
        if not len(moves) or (long and stop()):
            break
        along = np.repeat(arcs[None], len(moves), axis=0)
        result = evaluate(problem, along, moves, harvest, stop)
        found.append(result.cuts)
        index = int(result.step_time.argmin())
        if result.step_time[index] >= time:
            break
        best, time = moves[index], int(result.step_time[index])
    return best, time, [cuts for cuts in found if cuts is not None]


def best_start(problem: SplitProblem, layers: Layers, stop: Stop) -> tuple[Array, Array, int, Cuts]:
    """Arcs [p], split [p + 1], step time and cuts of a descent from the best of the starts."""
    arcs, splits = path_of(layers, starts(layers))
    result = evaluate(problem, arcs, splits, harvest=True, stop=stop)
    index = int(result.step_time.argmin())
    best, time, cuts = _descended(problem, arcs[index], splits[index], stop, harvest=True)
    return arcs[index], best, time, join_cuts([*cuts, *([result.cuts] if result.cuts else [])])
