"""The light replica of a shape, see `relaxation`: as a split problem, and what is left of that.

Kinds are sets of node groups; a kind costs what its groups cost at least. Ranks number the kinds by
speed, 0 the fastest. `common` and `light` are masks, per stage [J, n, n]: the layers that any
replica, and the light one, may run on each of the J kinds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.costs.placement import Placer
from solver.enumeration.classes import by_class
from solver.enumeration.completion import tighten
from solver.enumeration.layered import build_layers
from solver.enumeration.least_costs import cheapest, least_costs
from solver.enumeration.placements import allowed_layers
from solver.enumeration.problem import Arcs, Array, Intervals, Mask, SplitProblem, interval_sums
from solver.enumeration.windows import by_windows

#: Weight of the dearest kind.
FINEST_WEIGHT = 24

Numbers = NDArray[np.float64]
Stop = Callable[[], bool]
Kind = tuple[int, ...]  #: node groups
Row = tuple[int, int, int, int, int]  #: state before, state after, kind before, kind, rank


@dataclass(frozen=True)
class Charges:
    """What is charged, ns.

    kind: [J] per slot. rank: [J - 1] per stage that none but kinds up to this rank can run.
    """

    kind: Numbers
    rank: Numbers

    @property
    def weights(self) -> Array:
        """[J] whole numbers like the charges of kinds, the least 0, the largest the finest."""
        above = self.kind - self.kind.min()
        weights: Array = np.round(above * (FINEST_WEIGHT / max(above.max(), 1e-9))).astype(np.int64)
        return weights

    @property
    def of_kind(self) -> Array:
        """[J] in whole ns, multiples of the weights."""
        most = float(self.kind.max() - self.kind.min())
        charges: Array = self.weights * int(most / FINEST_WEIGHT)
        return charges

    @property
    def of_rank(self) -> Array:
        """[J] in whole ns, of a stage whose slowest possible kind has this rank."""
        single = np.floor(self.rank).astype(np.int64)
        charges: Array = np.append(np.cumsum(single[::-1])[::-1], 0)
        return charges


@dataclass(frozen=True)
class Graph:
    """A problem of the light replica. rank: per stage [A] of its arcs. mean_ns: of the charges."""

    problem: SplitProblem
    rank: list[Array]
    mean_ns: int

    @property
    def num_edges(self) -> int:
        """Layers of all arcs."""
        return sum(int(mask.sum()) for stage in self.problem.stages for mask in stage.allowed)


@dataclass(frozen=True)
class Weighed:
    """Weights of the kinds [J], and the most that the light replica weighs."""

    weights: Array
    most: int

    def coarser(self, unit: int) -> "Weighed":
        """In larger units."""
        return Weighed(self.weights // unit, self.most // unit)


@dataclass(frozen=True)
class Thinned:
    """Per stage [J, n, n] what is left, a bound of the step time, and the arcs of its path."""

    masks: list[Mask]
    bound_ns: int
    arcs: Array


def kinds_of(intervals: Intervals, apart: float) -> list[Kind]:
    """The groups used, those together whose speeds are less than this relative difference apart."""
    work = (intervals.forward + intervals.backward)[:, 0, -1]
    used = np.flatnonzero(intervals.tables.shape.nodes_used)
    kinds: list[list[int]] = []
    for j in used[np.argsort(work[used], kind="stable")].tolist():
        if kinds and work[j] < work[kinds[-1][0]] * (1 + apart):
            kinds[-1].append(j)
        else:
            kinds.append([j])
    return [tuple(kind) for kind in kinds]


class LightReplica:
    """The one replica of a shape; J kinds, ranked by speed, rank 0 the fastest."""

    def __init__(self, intervals: Intervals, placer: Placer, kinds: Sequence[Kind]) -> None:
        def least(values: Array) -> Array:
            found: Array = np.stack([values[list(kind)].min(axis=0) for kind in kinds])
            return found

        self.tables = intervals.tables
        shape = self.tables.shape
        costs = {j: least_costs(placer, j) for kind in kinds for j in kind}
        self.kinds = [tuple(sorted(kind, key=lambda j: costs[j].sync_ns)) for kind in kinds]
        self.least = [cheapest([costs[j] for j in kind]) for kind in kinds]
        self.forward, self.backward = least(intervals.forward), least(intervals.backward)
        self.optimizer = least(intervals.optimizer)
        self.micro_batches = self.tables.num_micro_batches // shape.dp
        slots = np.array(shape.nodes_used) * self.tables.slots_per_node
        self.slots = np.array([slots[list(kind)].sum() for kind in kinds])
        work = (self.forward + self.backward)[:, 0, -1]
        order = np.argsort(work, kind="stable")
        self.speeds = np.maximum(1, np.round(FINEST_WEIGHT * work.min() / work)).astype(np.int64)
        self.rank = np.argsort(order)
        self.most = np.cumsum(self.slots[order])[:-1] // shape.dp
        self.allowed = [
            np.stack([self._allowed(intervals, k, kind) for kind in kinds]) for k in range(shape.pp)
        ]

    def _allowed(self, intervals: Intervals, k: int, kind: Kind) -> Mask:
        """[n, n] layers that some group of the kind may run as stage k."""
        masks = [allowed_layers(intervals, k, [j], [self.micro_batches]) for j in kind]
        allowed: Mask = np.any(masks, axis=0)
        return allowed

    def weighed(self, weights: Array) -> Weighed:
        """With the most that the light replica weighs."""
        return Weighed(weights, int(weights @ self.slots) // self.tables.shape.dp)

    def thinned(self, graph: Graph, cutoff: int, stop: Stop | None = None) -> Thinned | None:
        """What the light replica may use below the cutoff; None if there is nothing.

        Windows are looked at until `stop` says so, if it is given.
        """
        problem, charged = graph.problem, cutoff + graph.mean_ns
        if not problem.stages:
            return None
        layers = tighten(problem, build_layers(problem, charged), charged)
        if layers is None:
            return None
        bounds = by_class(problem, layers, charged)
        if bounds.path is not None and stop is not None and not stop():
            layers = [edges.take(mask) for edges, mask in zip(layers, bounds.useful, strict=True)]
            bounds = by_windows(problem, layers, charged, stop)
        if bounds.path is None:
            return None
        masks = []
        for stage, edges, useful in zip(problem.stages, layers, bounds.useful, strict=True):
            mask = np.zeros(self.forward.shape, dtype=np.bool_)
            left = edges.take(useful)
            mask[stage.tail[left.arc], left.start, left.end] = True
            masks.append(mask)
        arcs = np.array([edges.arc[x] for edges, x in zip(layers, bounds.path, strict=True)])
        return Thinned(masks, bounds.bound_ns - graph.mean_ns, arcs)

    def _ranks(self, common: list[Mask]) -> list[Array]:
        """Per stage [n, n] rank of the slowest kind that some replica may run these layers on."""
        ranks = self.rank[:, None, None]
        return [np.where(own, ranks, 0).max(axis=0) for own in common]

    def _rows(
        self, arcs: list[list[tuple[int, int]]], weighed: Weighed, counted: bool
    ) -> list[list[Row]]:
        """Rows of every stage from what may run there: (kind, rank) pairs."""
        weights, least = weighed.weights.tolist(), int(weighed.weights.min())
        states: dict[tuple[int, ...], int] = {(0, 0, *(0 for _ in self.most)): 0}
        stages = []
        for k, pairs in enumerate(arcs):
            heaviest = weighed.most - least * (len(arcs) - 1 - k)
            found: dict[tuple[int, ...], int] = {}
            rows = []
            for (before, weight, *counts), index in states.items():
                for now, rank in pairs:
                    whole = weight + weights[now]
                    more = [n + (counted and rank <= r) for r, n in enumerate(counts)]
                    fits = all(n <= most for n, most in zip(more, self.most, strict=True))
                    if fits and whole <= heaviest:
                        target = found.setdefault((now, whole, *more), len(found))
                        rows.append((index, target, before, now, rank))
            stages.append(rows)
            states = found
        return stages

    def graph(
        self,
        common: list[Mask],
        light: list[Mask],
        charges: Charges | None = None,
        *,
        weighed: Weighed | None = None,
        counted: bool = False,
    ) -> Graph:
        """All ways of the light replica; without stages if there is none.

        common, light: per stage [J, n, n] what any replica, and that one, may run there.
        """
        nothing = np.zeros(len(self.kinds), dtype=np.int64)
        of_kind = nothing if charges is None else charges.of_kind
        of_rank = nothing if charges is None or counted else charges.of_rank
        masks = self._masks(common, light)
        rows = self._rows([list(own) for own in masks], weighed or Weighed(nothing, 0), counted)
        stages: list[Arcs] = []
        if all(rows):
            stages = [
                self._arcs(k, own, mask, of_kind, of_rank)
                for k, (own, mask) in enumerate(zip(rows, masks, strict=True))
            ]
        mean = int(of_kind @ self.slots) // self.tables.shape.dp
        single = of_rank[:-1] - of_rank[1:]
        return Graph(
            problem=self._problem(stages),
            rank=[np.array([rank for *_, rank in own]) for own in rows],
            mean_ns=mean + int(single @ self.most),
        )

    def _masks(self, common: list[Mask], light: list[Mask]) -> list[dict[tuple[int, int], Mask]]:
        """Per stage, kind and rank [n, n] what the light replica may run."""
        indices = range(len(self.kinds))
        return [
            {
                (i, rank): mask
                for i in indices
                for rank in indices
                if (mask := own[i] & (ranks == rank)).any()
            }
            for own, ranks in zip(light, self._ranks(common), strict=True)
        ]

    def _arcs(
        self,
        k: int,
        rows: list[Row],
        masks: dict[tuple[int, int], Mask],
        of_kind: Array,
        of_rank: Array,
    ) -> Arcs:
        source, target, _, now, rank = (np.array(column) for column in zip(*rows, strict=True))
        sends = [self._send_ns(i, j) if k else 0 for _, _, i, j, _ in rows]
        send = np.array(sends, dtype=np.int64)[:, None]
        return Arcs(
            source=source,
            target=target,
            column=now[:, None],
            send=send,
            send_back=send,
            tail=now,
            embedding=self._embedding_ns(k)[now],
            charge=of_kind[now] + of_rank[rank],
            allowed=tuple(masks[i, h] for _, _, _, i, h in rows),
            begins=tuple(self.kinds[i][:1] for i in now),
        )

    def _problem(self, stages: list[Arcs]) -> SplitProblem:
        gathers = [interval_sums(one.gather[0]) + one.gather[1] for one in self.least]
        return SplitProblem(
            schedule=self.tables.shape.schedule,
            blocking=self.tables.instance.search.blocking_sends,
            tied=self.tables.embedding_bytes > 0,
            stages=tuple(stages),
            micro_batches=(self.micro_batches,),
            forward=self.forward,
            backward=self.backward,
            sync=np.stack([interval_sums(one.sync[0]) + one.sync[1] for one in self.least]),
            finish=self.optimizer + np.stack(gathers),
        )

    def _embedding_ns(self, k: int) -> Array:
        """[J] what each kind adds to the tail of stage k at least."""
        last = k == self.tables.shape.pp - 1
        times = [one.embedding[1 if last else 0] for one in self.least]
        return np.array(times, dtype=np.int64)

    def _send_ns(self, before: int, now: int) -> int:
        """Least transfer between stages on two kinds: the slower side counts."""
        outside = max(self.least[before].outside, self.least[now].outside)
        inside = self.least[now].inside
        return min(inside, outside) if before == now and inside is not None else outside
