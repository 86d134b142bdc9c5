"""The light replica of a shape, see `relaxation`: as a split problem, and what is left of that.

Ranks number the groups used by speed, 0 the fastest. `common` and `light` are masks, per stage
[J, n, n]: the layers that any replica, and the light one, may run on each of the J groups used.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.costs.placement import Placer
from solver.enumeration.classes import by_class
from solver.enumeration.completion import tighten
from solver.enumeration.layered import build_layers
from solver.enumeration.least_costs import least_costs
from solver.enumeration.placements import allowed_layers
from solver.enumeration.problem import Arcs, Array, Intervals, Mask, SplitProblem, interval_sums

#: Weight of the dearest group.
FINEST_WEIGHT = 24

Numbers = NDArray[np.float64]
Row = tuple[int, int, int, int, int]  #: state before, state after, group before, group, rank


@dataclass(frozen=True)
class Charges:
    """What is charged, ns.

    group: [J] per slot, of the groups used. rank: [J - 1] per stage that none but groups up to this
    rank can run.
    """

    group: Numbers
    rank: Numbers

    @property
    def weights(self) -> Array:
        """[J] whole numbers like the charges of groups, the least 0, the largest the finest."""
        above = self.group - self.group.min()
        weights: Array = np.round(above * (FINEST_WEIGHT / max(above.max(), 1e-9))).astype(np.int64)
        return weights

    @property
    def of_group(self) -> Array:
        """[J] in whole ns, multiples of the weights."""
        most = float(self.group.max() - self.group.min())
        charges: Array = self.weights * int(most / FINEST_WEIGHT)
        return charges

    @property
    def of_rank(self) -> Array:
        """[J] in whole ns, of a stage whose slowest possible group has this rank."""
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
    """Weights of the groups [J], and the most that the light replica weighs."""

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


class LightReplica:
    """The one replica of a shape; J groups used, ranked by speed, rank 0 the fastest."""

    def __init__(self, intervals: Intervals, placer: Placer) -> None:
        self.intervals = intervals
        self.tables = intervals.tables
        shape = self.tables.shape
        self.used = [j for j, n in enumerate(shape.nodes_used) if n]
        self.least = [least_costs(placer, j) for j in self.used]
        self.micro_batches = self.tables.num_micro_batches // shape.dp
        self.slots = np.array(
            [shape.nodes_used[j] * self.tables.slots_per_node[j] for j in self.used]
        )
        work = (intervals.forward + intervals.backward)[self.used, 0, -1]
        order = np.argsort(work, kind="stable")
        self.speeds = np.maximum(1, np.round(FINEST_WEIGHT * work.min() / work)).astype(np.int64)
        self.rank = np.argsort(order)
        self.most = np.cumsum(self.slots[order])[:-1] // shape.dp
        self.allowed = [
            np.stack([allowed_layers(intervals, k, [j], [self.micro_batches]) for j in self.used])
            for k in range(shape.pp)
        ]

    def weighed(self, weights: Array) -> Weighed:
        """With the most that the light replica weighs."""
        return Weighed(weights, int(weights @ self.slots) // self.tables.shape.dp)

    def thinned(self, graph: Graph, cutoff: int) -> Thinned | None:
        """What the light replica may use below the cutoff; None if there is nothing."""
        problem, charged = graph.problem, cutoff + graph.mean_ns
        if not problem.stages:
            return None
        layers = tighten(problem, build_layers(problem, charged), charged)
        if layers is None:
            return None
        bounds = by_class(problem, layers, charged)
        if bounds.arcs is None:
            return None
        masks = []
        for stage, edges, useful in zip(problem.stages, layers, bounds.useful, strict=True):
            mask = np.zeros((len(self.used), *self.intervals.allowed.shape), dtype=np.bool_)
            left = edges.take(useful)
            mask[stage.tail[left.arc], left.start, left.end] = True
            masks.append(mask)
        return Thinned(masks, bounds.bound_ns - graph.mean_ns, bounds.arcs)

    def _ranks(self, common: list[Mask]) -> list[Array]:
        """Per stage [n, n] rank of the slowest group that some replica may run these layers on."""
        ranks = self.rank[:, None, None]
        return [np.where(own, ranks, 0).max(axis=0) for own in common]

    def _rows(
        self, arcs: list[list[tuple[int, int]]], weighed: Weighed, counted: bool
    ) -> list[list[Row]]:
        """Rows of every stage from what may run there: (group, rank) pairs."""
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
        nothing = np.zeros(len(self.used), dtype=np.int64)
        of_group = nothing if charges is None else charges.of_group
        of_rank = nothing if charges is None or counted else charges.of_rank
        masks = self._masks(common, light)
        rows = self._rows([list(own) for own in masks], weighed or Weighed(nothing, 0), counted)
        stages: list[Arcs] = []
        if all(rows):
            stages = [
                self._arcs(k, own, mask, of_group, of_rank)
                for k, (own, mask) in enumerate(zip(rows, masks, strict=True))
            ]
        mean = int(of_group @ self.slots) // self.tables.shape.dp
        single = of_rank[:-1] - of_rank[1:]
        return Graph(
            problem=self._problem(stages),
            rank=[np.array([rank for *_, rank in own]) for own in rows],
            mean_ns=mean + int(single @ self.most),
        )

    def _masks(self, common: list[Mask], light: list[Mask]) -> list[dict[tuple[int, int], Mask]]:
        """Per stage, group and rank [n, n] what the light replica may run."""
        indices = range(len(self.used))
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
        of_group: Array,
        of_rank: Array,
    ) -> Arcs:
        source, target, _, now, rank = (np.array(column) for column in zip(*rows, strict=True))
        sends = [self._send_ns(i, j) if k else 0 for _, _, i, j, _ in rows]
        send = np.array(sends, dtype=np.int64)[:, None]
        return Arcs(
            source=source,
            target=target,
            column=np.array(self.used)[now][:, None],
            send=send,
            send_back=send,
            tail=now,
            embedding=self._embedding_ns(k)[now],
            charge=of_group[now] + of_rank[rank],
            allowed=tuple(masks[i, h] for _, _, _, i, h in rows),
            begins=tuple((self.used[i],) for i in now),
        )

    def _problem(self, stages: list[Arcs]) -> SplitProblem:
        gathers = [interval_sums(one.gather[0]) + one.gather[1] for one in self.least]
        return SplitProblem(
            schedule=self.tables.shape.schedule,
            blocking=self.tables.instance.search.blocking_sends,
            tied=self.tables.embedding_bytes > 0,
            stages=tuple(stages),
            micro_batches=(self.micro_batches,),
            forward=self.intervals.forward,
            backward=self.intervals.backward,
            sync=np.stack([interval_sums(one.sync[0]) + one.sync[1] for one in self.least]),
            finish=self.intervals.optimizer[self.used] + np.stack(gathers),
        )

    def _embedding_ns(self, k: int) -> Array:
        """[J] what each group adds to the tail of stage k at least."""
        last = k == self.tables.shape.pp - 1
        times = [one.embedding[1 if last else 0] for one in self.least]
        return np.array(times, dtype=np.int64)

    def _send_ns(self, before: int, now: int) -> int:
        """Least transfer between stages on two groups: the slower side counts."""
        outside = max(self.least[before].outside, self.least[now].outside)
        inside = self.least[now].inside
        return min(inside, outside) if before == now and inside is not None else outside
