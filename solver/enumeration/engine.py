"""The exact optimum of one split problem: tighten, descend, enumerate.

A descent gives a good split to start from: repeated best single-layer moves on the simulated time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formulations.costs.tables import CostTables
from formulations.decisions import Decisions, even_shares
from formulations.plan import Plan
from formulations.schedules.registry import SCHEDULES
from solver.bounds.cycle_bound import by_windows
from solver.bounds.latency_bottleneck import least_path, least_terms, path_of, tighten
from solver.enumeration.enumerate import Enumerator, below
from solver.graph.cuts import Cuts, evaluate, join_cuts
from solver.graph.edges import Layers, build_layers, renumbered, taken
from solver.graph.problem import Array, SplitProblem, distinct, distinct_rows
from solver.interrupt import Stop, after

#: Different trade-offs of latency and bottleneck that a descent may start from.
STARTS = 12
#: Sweeps of moves.
SWEEPS = 50
#: Moves tried at once.
MOST_MOVES = 1000
#: Steps of more are long to simulate, so that each sweep may be the last.
MANY_MICRO_BATCHES = 2000


def starts(layers: Layers) -> Array:
    """Paths of edges [N, p] of least latency, each under another limit on the bottleneck.

    The least limit of every lane first; the rest spread over the terms of its stages.
    """
    paths, limits = [], []
    terms = np.concatenate([edges.term for edges in layers], axis=1)
    for lane_terms, least in zip(terms, least_terms(layers), strict=True):
        values = distinct(lane_terms)
        limits.append(values[values >= least])
    for share in np.linspace(0, 1, STARTS):
        bottlenecks = np.array([values[int(share * (len(values) - 1))] for values in limits])
        path = least_path(layers, bottlenecks)
        if path is not None:
            paths.append(path)
    return distinct_rows(np.array(paths))


def neighbours(problem: SplitProblem, arcs: Array, split: Array) -> Array:
    """Allowed splits [N, p + 1] in which one layer more or less moved between two stages.

    Of too many, those that relieve a busy stage most for one that is not.
    """
    # [p] device time per micro-batch of the slowest lane.
    columns = np.array([stage.column[arc] for stage, arc in zip(problem.stages, arcs, strict=True)])
    busy = problem.work[columns, split[:-1, None], split[1:, None]].max(axis=1)
    # Pairs of stages, either of which gives the other a layer: those between shift by one.
    p = len(split) - 1
    first, last = np.triu_indices(p, 1)
    relief = np.concatenate([busy[last] - busy[first], busy[first] - busy[last]])
    inside = (np.arange(p + 1) > first[:, None]) & (np.arange(p + 1) <= last[:, None])
    moves = np.concatenate([split + inside, split - inside])
    moves = moves[np.argsort(-relief, kind="stable")[:MOST_MOVES]]
    moves = moves[(np.diff(moves, axis=1) >= 0).all(axis=1)]
    # What every stage allows.
    keep = np.ones(len(moves), dtype=bool)
    for k, stage in enumerate(problem.stages):
        keep &= stage.allowed[arcs[k]][moves[:, k], moves[:, k + 1]]
    return moves[keep & problem.fits(moves)]


def descend(
    problem: SplitProblem, arcs: Array, start: Array, stop: Stop, harvest: bool = False
) -> tuple[Array, int, list[Cuts]]:
    """Local optimum and its step time; if harvested the critical paths of all splits looked at.

    Steps of so many micro-batches that each sweep takes long are given up when `stop` says so.
    """
    long = max(problem.micro_batches) > MANY_MICRO_BATCHES
    first = evaluate(problem, arcs[None], start[None], harvest)
    best, time = start, int(first.step_time[0])
    harvested = [first.cuts]
    for _ in range(SWEEPS):
        moves = neighbours(problem, arcs, best)
        if not len(moves) or (long and stop()):
            break
        along = np.repeat(arcs[None], len(moves), axis=0)
        result = evaluate(problem, along, moves, harvest, stop)
        harvested.append(result.cuts)
        index = int(result.step_time.argmin())
        if result.step_time[index] >= time:
            break
        best, time = moves[index], int(result.step_time[index])
    return best, time, [cuts for cuts in harvested if cuts is not None]


def best_start(problem: SplitProblem, layers: Layers, stop: Stop) -> tuple[Array, Array, int, Cuts]:
    """Arcs [p], split [p + 1], step time and cuts of a descent from the best of the starts."""
    arcs, splits = path_of(layers, starts(layers))
    result = evaluate(problem, arcs, splits, harvest=True, stop=stop)
    index = int(result.step_time.argmin())
    best, time, cuts = descend(problem, arcs[index], splits[index], stop, harvest=True)
    return arcs[index], best, time, join_cuts([*cuts, *([result.cuts] if result.cuts else [])])


#: Extensions of prefixes after which windows are worth their time: so many, and one per edges.
FIRST_EXTENSIONS = 40
EDGES_PER_EXTENSION = 50
#: With a split that is better by this share, edges and bounds are worked out anew.
BETTER = 1e-3


@dataclass(frozen=True)
class ConfigAnswer:
    """Best plan below the cutoff, if any; `complete`: nothing else is, up to the gap.

    bound_ns: no other plan of the configuration is faster; of use if not complete.
    """

    plan: Plan | None
    step_time_ns: int | None
    complete: bool
    bound_ns: int = 0


def even_plan(tables: CostTables, order: Sequence[int], split: Array) -> Plan:
    """All replicas with the same split and share."""
    return Decisions(tuple(order), tuple(split.tolist()), even_shares(tables)).plan(tables)


@dataclass(frozen=True)
class SplitOutcome:
    """What is known of a problem.

    arcs, split, step_time_ns: the best below the cutoff [p], [p + 1], ns; None if none was found.
    bound_ns: no split is faster, unless it is `step_time_ns`; at least the cutoff or step time,
    less the gap, when `complete`.
    """

    arcs: Array | None
    split: Array | None
    step_time_ns: int | None
    bound_ns: int
    complete: bool


class _Search:
    """The best split so far, and the edges that a better one may use; None if there is none."""

    def __init__(self, problem: SplitProblem, cutoff: int, gap: float) -> None:
        self.problem, self.gap = problem, gap
        self.best: tuple[Array, Array] | None = None
        self.best_time = cutoff
        self.bound = 0
        self.cuts: Cuts | None = None
        self._use(build_layers(problem, self.target))

    @property
    def target(self) -> int:
        """Splits of at least this are not looked for."""
        return below(self.best_time, self.gap)

    def _use(self, layers: Layers) -> None:
        """Of these edges those that a better split may use."""
        tight = tighten(self.problem, layers, self.target)
        self.layers = None if tight is None else renumbered(tight)

    def _keep(self, arcs: Array, split: Array, time: int) -> None:
        if time < self.best_time:
            self.best, self.best_time = (arcs, split), time
            if self.layers is not None:
                self._use(self.layers)

    def descend(self, stop: Stop) -> None:
        """A first split, and cuts."""
        if self.layers is not None:
            arcs, split, time, self.cuts = best_start(self.problem, self.layers, stop)
            self._keep(arcs, split, time)

    def window(self, stop: Stop) -> None:
        """Leaves out what windows of some lane refute; descends from their best splits."""
        for lane in range(self.problem.num_lanes):
            if self.layers is None or stop():
                return
            layers = self.layers
            bounds = by_windows(self.problem, layers, self.target, stop, lane)
            self.bound = max(self.bound, bounds.bound_ns)
            if bounds.path is None:
                self.layers = None
                return
            arcs, splits = path_of(layers, bounds.path[None])
            self._use(taken(layers, bounds.useful))
            split, time, _ = descend(self.problem, arcs[0], splits[0], stop)
            self._keep(arcs[0], split, time)

    def enumerate(self, stop: Stop) -> bool:
        """Whether nothing better is left; stops with a split that is much better, too."""
        if self.layers is None or self.cuts is None or self.bound >= self.target:
            self.bound = max(self.bound, self.target)
            return True
        problem, target = self.problem, self.target
        search = Enumerator(problem, self.layers, target, self.cuts, self.gap)
        enough = (1 - BETTER) * self.best_time
        bound = search.run(lambda: stop() or (search.best_time or enough) < enough)
        self.bound = max(self.bound, bound)
        if search.best is not None and search.best_time is not None:
            self._keep(*search.best, search.best_time)
        return bound >= self.target

    def look(self, stop: Stop, briefly: bool = False) -> bool:
        """Whether nothing better is left; looks anew as long as that finds something much better.

        briefly: each time for as many extensions as are worth less than windows.
        """
        while True:
            enough, edges = (1 - BETTER) * self.best_time, sum(map(len, self.layers or []))
            extensions = FIRST_EXTENSIONS + edges // EDGES_PER_EXTENSION
            complete = self.enumerate(after(extensions if briefly else None, stop))
            if complete or self.best_time >= enough or stop():
                return complete


def solve_split(
    problem: SplitProblem, cutoff: int, gap: float = 0.0, stop: Stop = lambda: False
) -> SplitOutcome:
    """Least simulated step time below `cutoff`, proved to the relative `gap`."""
    search = _Search(problem, cutoff, gap)
    search.descend(stop)
    complete = search.look(stop, briefly=True)
    if not complete and not stop():
        if SCHEDULES[problem.schedule].turns:
            search.window(stop)
        complete = search.look(stop)
    # Edges that only splits of the target or more use are left out: nothing is known above it.
    bound = min(search.bound, search.target)
    if search.best is None:
        return SplitOutcome(None, None, None, bound, complete)
    return SplitOutcome(*search.best, search.best_time, bound, complete)
