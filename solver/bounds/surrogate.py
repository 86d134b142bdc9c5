"""Convex combinations of paths: a bound for any schedule, where no closed family is sharp enough.

For weights w >= 0 of paths that sum to 1, every split takes at least the weighted sum of the
lengths of the paths, and that is a sum over the edges of the layered graph: its least value is a
shortest path (surrogate relaxation, Glover 1968; with one row it is the Lagrangian dual, Geoffrion
1974). The best weights are sought by subgradients with Polyak's step, projected on the simplex.
Paths: the families that hold for every schedule (`formulations.schedules.paths`), of every device
and virtual stage, those already known, and the critical paths of the splits that the shortest
paths stand for. Sums are rounded down edge by edge.

An edge through which no shortest path is below the cutoff belongs to no split below it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.schedules import (
    ScheduleGraph,
    device_path,
    last_down,
    path_counts,
    returned,
    schedule_graph,
)
from formulations.schedules.paths import PathCounts
from solver.bounds.latency_bottleneck import path_of
from solver.graph.cuts import Cuts, evaluate, join_cuts, rows_of
from solver.graph.edges import Layers, shortest_path, so_far, to_go
from solver.graph.problem import Array, Mask, SplitProblem

Numbers = NDArray[np.float64]

#: Steps of the weights at most, and steps without a higher bound after which they are halved.
STEPS = 300
PATIENCE = 12
#: Steps are as if the dual were so much above the cutoff; those below the least end the search.
STEP = 1.0
LEAST_STEP = 1e-3
#: Steps after which the critical path of the split at hand joins in.
HARVEST = 5
#: Paths kept.
MOST_PATHS = 256


@dataclass(frozen=True)
class Combination:
    """A combination of paths. bound_ns: no split is faster.

    values: per stage [M] what each edge adds at least. useful: per stage [M] edges of splits that
    may be below the cutoff. paths: those it is made of and has met. tried: [N, S] edges of splits
    that it has met.
    """

    bound_ns: int
    values: list[Array]
    useful: list[Mask]
    paths: Cuts
    tried: Array


def family_cuts(problem: SplitProblem) -> Cuts:
    """Paths of the families that hold for any schedule, of every lane, device and virtual stage."""
    rows, lanes, devices = [], [], []
    for lane, m in enumerate(problem.micro_batches):
        graph = schedule_graph(problem.schedule, problem.num_devices, m, problem.chunks)
        for path, device in _members(graph):
            counts = path_counts(graph, path)
            column = PathCounts(counts.weights[:, None], counts.transfers[:, None])
            rows.append(rows_of(column, problem.blocking)[0])
            lanes.append(lane)
            devices.append(device)
    return Cuts(np.array(rows), np.array(lanes), np.array(devices), problem.num_devices)


def _members(graph: ScheduleGraph) -> Iterator[tuple[Array, int]]:
    """Paths, each with the device that it ends on."""
    for device in range(graph.num_devices):
        yield device_path(graph, device), 0
        yield device_path(graph, device, device), device
    for stage in range(graph.num_stages):
        yield returned(graph, stage), 0
        if graph.index[0, stage, -1] >= graph.index[0, stage % graph.num_devices, 0]:
            yield last_down(graph, stage), 0


def _projected(weights: Numbers) -> Numbers:
    """The nearest point of the simplex (Held, Wolfe and Crowder 1974)."""
    ordered = np.sort(weights)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)
    nearest: Numbers = np.maximum(weights - excess[np.flatnonzero(ordered > excess)[-1]], 0.0)
    return nearest


def _some(cuts: Cuts) -> Cuts:
    """No more than are kept, spread over all."""
    return cuts.take(np.arange(0, len(cuts), -(-len(cuts) // MOST_PATHS)))


class _Ascent:
    """Weights of a growing set of paths. best: the highest bound so far, with its edge values."""

    def __init__(self, problem: SplitProblem, layers: Layers, cuts: Cuts) -> None:
        self.problem, self.layers = problem, layers
        self.cuts, self.values = cuts, self._values(cuts)
        self.weights: Numbers = np.full(len(cuts), 1 / len(cuts))
        self.best: tuple[int, list[Array]] = (-1, [])
        self.tried: list[Array] = []

    def _values(self, cuts: Cuts) -> list[Numbers]:
        """Per stage [C, M] what the edges add to every path."""
        return [cuts.values(k, edges).astype(np.float64) for k, edges in enumerate(self.layers)]

    def look(self) -> tuple[Array, Numbers]:
        """The shortest path of edges [S] under the weights, and the length of every path on it."""
        combined = [
            np.floor(self.weights @ stage_values).astype(np.int64) for stage_values in self.values
        ]
        rest = to_go(self.layers, combined)
        if int(rest[0][0]) > self.best[0]:
            self.best = int(rest[0][0]), combined
        path = shortest_path(self.layers, combined, rest)
        lengths: Numbers = np.sum(
            [stage_values[:, edge] for stage_values, edge in zip(self.values, path, strict=True)],
            axis=0,
        )
        return path, lengths

    def step(self, lengths: Numbers, aim: float) -> None:
        """Polyak's step towards paths that are long on the split at hand."""
        slope = lengths - lengths.mean()
        size = float(slope @ slope)
        if size > 0:
            away = max(aim - float(self.weights @ lengths), 0.0) / size
            self.weights = _projected(self.weights + away * slope)

    def learn(self, path: Array) -> None:
        """The critical path of a split joins in, with no weight; unweighted ones make room."""
        self.tried.append(path)
        arcs, splits = path_of(self.layers, path[None])
        critical = evaluate(self.problem, arcs, splits, harvest=True).cuts
        if critical is None:
            return
        keep = np.sort(np.argsort(-self.weights, kind="stable")[: MOST_PATHS - len(critical)])
        self.values = [
            np.concatenate([old[keep], new])
            for old, new in zip(self.values, self._values(critical), strict=True)
        ]
        self.weights = np.concatenate([self.weights[keep], np.zeros(len(critical))])
        kept = self.cuts.take(keep)
        self.cuts = Cuts(
            np.concatenate([kept.rows, critical.rows]),
            np.concatenate([kept.lane, critical.lane]),
            np.concatenate([kept.device, critical.device]),
            critical.num_devices,
        )


def combine(
    problem: SplitProblem, layers: Layers, cuts: Cuts, cutoff: int, stop: Callable[[], bool]
) -> Combination:
    """The best combination found of the families, of `cuts`, and of what is met on the way."""
    ascent = _Ascent(problem, layers, _some(join_cuts([family_cuts(problem), cuts])))
    share, failures = STEP, 0
    for count in range(STEPS):
        before = ascent.best[0]
        path, lengths = ascent.look()
        failures = 0 if ascent.best[0] > before else failures + 1
        if ascent.best[0] >= cutoff or share < LEAST_STEP or stop():
            break
        if failures == PATIENCE:
            share, failures = share / 2, 0
        if count % HARVEST == 0:
            ascent.learn(path)
            path, lengths = ascent.look()
        ascent.step(lengths, ascent.best[0] + share * max(cutoff - ascent.best[0], 1))
    bound, values = ascent.best
    ways_ns = so_far(layers, values), to_go(layers, values)
    useful = [
        ways_ns[0][k][edges.source] + values[k] + ways_ns[1][k + 1][edges.target] < cutoff
        for k, edges in enumerate(layers)
    ]
    return Combination(bound, values, useful, ascent.cuts, np.array(ascent.tried))
