"""The light replica of a shape, see `relaxation`: as a split problem, and what is left of that.

Kinds are sets of node groups; a kind costs what its groups cost at least. Ranks number the kinds by
speed, 0 the fastest. `common` and `light` are masks, per stage [J, n, n]: the layers that any
replica, and the light one, may run on each of the J kinds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from formulations.costs.placement import Placer
from solver.bounds.classes import by_class
from solver.bounds.completion import tighten
from solver.bounds.kinds import Kind, allowed_on, least_of, least_sends
from solver.bounds.node_costs import cheapest, least_costs
from solver.bounds.tallies import Tally, Tallying, Way, Weighed
from solver.bounds.windows import by_windows
from solver.layered.graph import Layers, build_layers, taken
from solver.layered.placements import passes
from solver.layered.problem import Arcs, Array, Intervals, Mask, SplitProblem

#: Weight of the fastest kind by speed.
FINEST_WEIGHT = 24

Stop = Callable[[], bool]
Row = tuple[int, int, int, int, int]  #: state before, state after, kind before, kind, rank


@dataclass(frozen=True)
class Thinned:
    """What is left of a graph, a bound of the step time, and the groups of its path."""

    problem: SplitProblem
    layers: Layers
    bound_ns: int
    groups: tuple[int, ...]

    @property
    def masks(self) -> list[Mask]:
        """Per stage [J, n, n] what is left."""
        masks = []
        for stage, edges in zip(self.problem.stages, self.layers, strict=True):
            mask = np.zeros(self.problem.forward.shape, dtype=np.bool_)
            mask[stage.tail[edges.arc], edges.start, edges.end] = True
            masks.append(mask)
        return masks


class LightReplica:
    """The one replica of a shape; J kinds, ranked by speed, rank 0 the fastest."""

    def __init__(self, intervals: Intervals, placer: Placer, kinds: Sequence[Kind]) -> None:
        self.tables = intervals.tables
        shape = self.tables.shape
        costs = {j: least_costs(placer, j) for kind in kinds for j in kind}
        self.kinds = [tuple(sorted(kind, key=lambda j: costs[j].sync_ns)) for kind in kinds]
        self.least = [cheapest([costs[j] for j in kind]) for kind in kinds]
        self.forward = least_of(intervals.forward, kinds)
        backward, weight = passes(intervals)
        self.backward = least_of(backward, kinds)
        self.weight = None if weight is None else least_of(weight, kinds)
        self.optimizer = least_of(intervals.optimizer, kinds)
        self.micro_batches = self.tables.num_micro_batches // shape.dp
        slots = np.array(shape.nodes_used) * self.tables.slots_per_node
        self.slots = np.array([slots[list(kind)].sum() for kind in kinds])
        work = (self.forward + self.backward)[:, 0, -1]
        order = np.argsort(work, kind="stable")
        self.rank = np.argsort(order)
        self.weightings = [self._weighed(weights) for weights in self._weights(work)]
        self._send_ns = least_sends(self.least)
        self.most: list[int] = (np.cumsum(self.slots[order])[:-1] // shape.dp).tolist()
        self.allowed = [
            np.stack([allowed_on(intervals, k, kind, self.micro_batches) for kind in kinds])
            for k in range(shape.pp)
        ]

    def _weights(self, work: Array) -> list[Array]:
        """[J] weights to try: of the faster kinds alone, more and more, and like the speeds."""
        speeds = np.maximum(1, np.round(FINEST_WEIGHT * work.min() / work)).astype(np.int64)
        slower = len(work) - 1 - self.rank
        fastest = self.rank == 0
        alone = fastest.astype(np.int64)
        if len(work) < 3:
            return [alone, speeds]
        alike = np.where(slower > 0, slower + 1, 0)
        mainly = np.where(fastest, self._heavy(slower, fastest), slower)
        return [alone, alike, mainly, speeds]

    def _heavy(self, slower: Array, fastest: Mask) -> int:
        """The least weight of the fastest kind with which one more than its mean is too heavy.

        Mean: of the slots per replica, rounded down. The lighter it is, the more the others weigh.
        """
        dp = self.tables.shape.dp
        more = dp - int(self.slots[fastest].sum()) % dp
        return int(slower[~fastest] @ self.slots[~fastest]) // more + 1

    def _weighed(self, weights: Array) -> Weighed:
        """With the most that the light replica weighs."""
        most = int(weights @ self.slots) // self.tables.shape.dp
        return Weighed(tuple(weights.tolist()), most)

    @property
    def unweighed(self) -> Weighed:
        """Any replica."""
        return self._weighed(np.zeros_like(self.rank))

    def thinned(
        self, problem: SplitProblem, cutoff: int, stop: Stop | None = None
    ) -> Thinned | None:
        """What the light replica may use below the cutoff; None if there is nothing.

        Windows are looked at until `stop` says so, if it is given.
        """
        if not problem.stages:
            return None
        layers = tighten(problem, build_layers(problem, cutoff), cutoff)
        if layers is None:
            return None
        bounds = by_class(problem, layers, cutoff)
        if bounds.path is not None and stop is not None and not stop():
            layers = taken(layers, bounds.useful)
            bounds = by_windows(problem, layers, cutoff, stop)
        if bounds.path is None:
            return None
        left = taken(layers, bounds.useful)
        arcs = [edges.arc[x] for edges, x in zip(layers, bounds.path, strict=True)]
        return Thinned(problem, left, bounds.bound_ns, problem.order(arcs))

    def graph(
        self,
        common: list[Mask],
        light: list[Mask],
        tallying: Tallying,
        most: int,
    ) -> SplitProblem | None:
        """All ways of the light replica; without stages if there is none, None if there are `most`.

        common, light: per stage [J, n, n] what any replica, and that one, may run there.
        """
        masks = self._masks(common, light)
        rows = self._rows(masks, tallying, most)
        if rows is None:
            return None
        stages: list[Arcs] = []
        if all(rows):
            stages = [
                self._arcs(k, own, mask)
                for k, (own, mask) in enumerate(zip(rows, masks, strict=True))
            ]
        return self._problem(stages)

    def _masks(self, common: list[Mask], light: list[Mask]) -> list[dict[Way, Mask]]:
        """Per stage, kind and rank [n, n] what the light replica may run.

        Rank: that of the slowest kind on which some replica may run these layers.
        """
        indices = range(len(self.kinds))
        ranks = [np.where(own, self.rank[:, None, None], 0).max(axis=0) for own in common]
        return [
            {
                (i, rank): mask
                for i in indices
                for rank in indices
                if (mask := own[i] & (slowest == rank)).any()
            }
            for own, slowest in zip(light, ranks, strict=True)
        ]

    def _rows(
        self, masks: list[dict[Way, Mask]], tallying: Tallying, most: int
    ) -> list[list[Row]] | None:
        """Rows of every stage from what may run there; None if they have `most` edges or more."""
        states: dict[tuple[int, Tally], int] = {(0, tallying.start): 0}
        stages = []
        for k, ways in enumerate(masks):
            sizes = {way: int(mask.sum()) for way, mask in ways.items()}
            found: dict[tuple[int, Tally], int] = {}
            rows = []
            for (before, tally), index in states.items():
                for way, size in sizes.items():
                    whole = tallying.after(tally, way, len(masks) - 1 - k)
                    if whole is not None:
                        target = found.setdefault((way[0], whole), len(found))
                        rows.append((index, target, before, *way))
                        most -= size
                if most <= 0:
                    return None
            stages.append(rows)
            states = found
        return stages

    def _arcs(self, k: int, rows: list[Row], masks: dict[Way, Mask]) -> Arcs:
        source, target, before, now, _ = np.array(rows).T
        send = self._send_ns[before, now][:, None] * (k > 0)
        return Arcs(
            source=source,
            target=target,
            column=now[:, None],
            send=send,
            send_back=send,
            tail=now,
            embedding=self._embedding_ns(k)[now],
            allowed=tuple(masks[i, h] for _, _, _, i, h in rows),
            begins=tuple(self.kinds[i][:1] for i in now),
        )

    def _problem(self, stages: list[Arcs]) -> SplitProblem:
        return SplitProblem(
            schedule=self.tables.shape.schedule,
            blocking=self.tables.instance.search.blocking_sends,
            tied=self.tables.embedding_bytes > 0,
            stages=tuple(stages),
            micro_batches=(self.micro_batches,),
            forward=self.forward,
            backward=self.backward,
            weight=self.weight,
            sync=np.stack([one.sync_matrix for one in self.least]),
            finish=self.optimizer + np.stack([one.gather_matrix for one in self.least]),
        )

    def _embedding_ns(self, k: int) -> Array:
        """[J] what each kind adds to the tail of stage k at least."""
        last = k == self.tables.shape.pp - 1
        times = [one.embedding[1 if last else 0] for one in self.least]
        return np.array(times, dtype=np.int64)
