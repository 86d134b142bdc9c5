"""One replica in place of all: a bound for shapes with too many node orders to try.

Light replica. Charge every slot of node group j with w_j >= 0. All slots of the shape together are
charged sum_j w_j N_j, so one of the dp replicas is charged no more than the dp-th part, the mean.
The step takes no less time than that replica, whose stages stand on some groups, with transfers and
tails that no order makes shorter. So the least time + charges over all such groups and splits,
less the mean, is a lower bound of the step time of every plan with even shares.

Shared split. All replicas have the same layers on a stage. If below a cutoff no replica at all can
run these layers on that stage but on the fastest r groups, then all slots of the stage are of these
groups: there are at most (slots of the r fastest groups) / dp such stages, rounded down. Whoever
counts them, or charges v_r >= 0 for each and takes v_r times their largest number off, still has a
lower bound. What the light replica cannot run on a stage, on any group, is not the stage's.

Any charges are valid. Those here are found by subgradient steps on the bounds of `classes`. With
charges that are multiples of whole weights the light replica also weighs no more than the mean,
rounded down; states that add up the weights leave out what is heavier. Weights like the speeds
of the groups close most shapes before any charges are looked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from solver.enumeration.classes import by_class
from solver.enumeration.completion import tighten
from solver.enumeration.layered import build_layers
from solver.enumeration.least_costs import least_costs
from solver.enumeration.placements import allowed_layers
from solver.enumeration.problem import Arcs, Array, Intervals, Mask, SplitProblem, interval_sums

#: Subgradient steps at most, and without a better bound; their length falls in the second half.
STEPS = 24
PATIENCE = 8
#: The bound that the steps aim at, as a multiple of the cutoff.
AIM = 1.002
#: Weight of the dearest group, and the units that weights are rounded down to, one after the other:
#: whoever keeps to the weight keeps to that. What is left out then makes room for the next.
FINEST_WEIGHT = 24
UNITS = (8, 4, 2, 1)
#: With more edges than these a unit is not made finer, stages are charged rather than counted.
MOST_EDGES = 1_000_000

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
class Relaxed:
    """What may be faster than a cutoff: the light replica's step time + charges, and their mean."""

    problem: SplitProblem
    mean_ns: int


@dataclass(frozen=True)
class _Graph:
    """A problem of the light replica. rank: per stage [A] of its arcs. mean_ns: see `Relaxed`."""

    problem: SplitProblem
    rank: list[Array]
    mean_ns: int

    @property
    def num_edges(self) -> int:
        """Layers of all arcs."""
        return sum(int(mask.sum()) for stage in self.problem.stages for mask in stage.allowed)


@dataclass(frozen=True)
class _Weighed:
    """Weights of the groups [J], and the most that the light replica weighs."""

    weights: Array
    most: int

    def coarser(self, unit: int) -> "_Weighed":
        """In larger units."""
        return _Weighed(self.weights // unit, self.most // unit)


@dataclass(frozen=True)
class _Thinned:
    """Per stage [J, n, n] what is left, a bound of the step time, and the arcs of its path."""

    masks: list[Mask]
    bound_ns: int
    arcs: Array


class Relaxation:
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
        self.bound_ns = 0

    def problem(self, cutoff: int, stop: Callable[[], bool] = lambda: False) -> Relaxed | None:
        """What may be faster than `cutoff`; None if nothing is. Raises `bound_ns` on the way."""
        none = Charges(np.zeros(len(self.used)), np.zeros(len(self.used) - 1))
        found = self._thinned(self._graph(self.allowed, self.allowed, none), cutoff)
        if found is None:
            return None
        by_speed = self._by_weight(found.masks, found.masks, self._weighed(self.speeds), cutoff)
        if by_speed is None:
            return None
        common = _shared(found.masks, by_speed[1])
        charged = self._charged(common, none, cutoff, stop)
        return None if charged is None else self._counted(*charged, cutoff)

    def _weighed(self, weights: Array) -> _Weighed:
        return _Weighed(weights, int(weights @ self.slots) // self.tables.shape.dp)

    def _by_weight(
        self,
        common: list[Mask],
        light: list[Mask],
        weighed: _Weighed,
        cutoff: int,
        *,
        counted: bool = False,
    ) -> tuple[_Graph | None, list[Mask]] | None:
        """The finest graph of these weights with few edges, and what it leaves; None if nothing."""
        finest = None
        for unit in UNITS:
            graph = self._graph(common, light, weighed=weighed.coarser(unit), counted=counted)
            if graph.num_edges > MOST_EDGES:
                break
            found = self._thinned(graph, cutoff)
            if found is None:
                return None
            self.bound_ns = max(self.bound_ns, found.bound_ns)
            finest, light, common = graph, found.masks, _shared(common, found.masks)
        return finest, light

    def _charged(
        self, common: list[Mask], charges: Charges, cutoff: int, stop: Callable[[], bool]
    ) -> tuple[list[Mask], Charges] | None:
        """What is left to any replica, and the best charges; None if nothing is left.

        Other charges, another light replica: what one of them cannot use another may.
        """
        best, best_ns, idle = charges, -1, 0
        for step in range(STEPS):
            if stop() or idle == PATIENCE:
                break
            graph = self._graph(common, common, charges)
            found = self._thinned(graph, cutoff)
            if found is None:
                return None
            common = _shared(common, found.masks)
            idle += 1
            if found.bound_ns > best_ns:
                best, best_ns, idle = charges, found.bound_ns, 0
            missing_ns = (AIM * cutoff - found.bound_ns) / (2 if step < STEPS // 2 else 4)
            charges = self._stepped(charges, graph, found.arcs, missing_ns)
        self.bound_ns = max(self.bound_ns, best_ns)
        of_stages = replace(best, group=np.zeros(len(self.used)))
        left = self._thinned(self._graph(common, common, of_stages), cutoff)
        return None if left is None else (left.masks, best)

    def _counted(self, common: list[Mask], charges: Charges, cutoff: int) -> Relaxed | None:
        """The problem of what is left, as fine as its number of edges allows."""
        graph = self._graph(common, common, charges, counted=True)
        if graph.num_edges > MOST_EDGES:
            graph = self._graph(common, common, charges)
        found = self._thinned(graph, cutoff)
        if found is None:
            return None
        self.bound_ns = max(self.bound_ns, found.bound_ns)
        light, common = found.masks, _shared(common, found.masks)
        weighed = self._weighed(charges.weights)
        by_weight = self._by_weight(common, light, weighed, cutoff, counted=True)
        if by_weight is None:
            return None
        finest, light = by_weight
        graph = finest or graph
        return Relaxed(_masked(graph.problem, light), graph.mean_ns)

    def _thinned(self, graph: _Graph, cutoff: int) -> _Thinned | None:
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
        return _Thinned(masks, bounds.bound_ns - graph.mean_ns, bounds.arcs)

    def _stepped(self, charges: Charges, graph: _Graph, arcs: Array, missing_ns: float) -> Charges:
        """A step along what the path of these arcs has too much of, towards the bound missing."""
        stages = list(zip(graph.problem.stages, graph.rank, arcs.tolist(), strict=True))
        groups = np.bincount([s.tail[x] for s, _, x in stages], minlength=len(self.used))
        ranks = np.cumsum(np.bincount([r[x] for _, r, x in stages], minlength=len(self.used)))
        group = groups - self.slots / self.tables.shape.dp
        rank = ranks[:-1] - self.most
        size = missing_ns / max(float(group @ group + rank @ rank), 1e-9)
        return Charges(charges.group + size * group, np.maximum(charges.rank + size * rank, 0))

    def _ranks(self, common: list[Mask]) -> list[Array]:
        """Per stage [n, n] rank of the slowest group that some replica may run these layers on."""
        ranks = self.rank[:, None, None]
        return [np.where(own, ranks, 0).max(axis=0) for own in common]

    def _rows(
        self, arcs: list[list[tuple[int, int]]], weighed: _Weighed, counted: bool
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

    def _graph(
        self,
        common: list[Mask],
        light: list[Mask],
        charges: Charges | None = None,
        *,
        weighed: _Weighed | None = None,
        counted: bool = False,
    ) -> _Graph:
        """All ways of the light replica; without stages if there is none.

        common, light: per stage [J, n, n] what any replica, and that one, may run there.
        """
        nothing = np.zeros(len(self.used), dtype=np.int64)
        of_group = nothing if charges is None else charges.of_group
        of_rank = nothing if charges is None or counted else charges.of_rank
        masks = self._masks(common, light)
        rows = self._rows([list(own) for own in masks], weighed or _Weighed(nothing, 0), counted)
        stages: list[Arcs] = []
        if all(rows):
            stages = [
                self._arcs(k, own, mask, of_group, of_rank)
                for k, (own, mask) in enumerate(zip(rows, masks, strict=True))
            ]
        mean = int(of_group @ self.slots) // self.tables.shape.dp
        single = of_rank[:-1] - of_rank[1:]
        return _Graph(
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


def _shared(common: list[Mask], light: list[Mask]) -> list[Mask]:
    """Layers that the light replica cannot have on a stage are nobody's."""
    return [own & mask.any(axis=0) for own, mask in zip(common, light, strict=True)]


def _masked(problem: SplitProblem, masks: list[Mask]) -> SplitProblem:
    stages = [
        replace(
            stage,
            allowed=tuple(own & mask[i] for own, i in zip(stage.allowed, stage.tail, strict=True)),
        )
        for stage, mask in zip(problem.stages, masks, strict=True)
    ]
    return replace(problem, stages=tuple(stages))


def order_along(tables: CostTables, groups: Sequence[int]) -> tuple[int, ...]:
    """A node order in which stage k stands on `groups[k]` as far as there are nodes.

    Where these run out, nodes of the group with the most slots to spare take their place, of at
    least equal speed if there are such.
    """
    shape, sizes = tables.shape, tables.slots_per_node
    times = (tables.forward_ns + tables.backward_ns).sum(axis=0)
    left = list(shape.nodes_used)
    needed = [shape.dp * list(groups).count(j) for j in range(len(left))]
    order: list[int] = []
    filled = 0
    for k, wanted in enumerate(groups):
        needed[wanted] -= shape.dp
        while filled < (k + 1) * shape.dp:
            spare = {j: left[j] * sizes[j] - needed[j] for j, n in enumerate(left) if n}
            fast = {j: n for j, n in spare.items() if times[j] <= times[wanted]}
            others = fast or spare
            group = wanted if left[wanted] else max(others, key=lambda j: others[j])
            order.append(group)
            left[group] -= 1
            filled += sizes[group]
    return tuple(order)
