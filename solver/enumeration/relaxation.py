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

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from solver.enumeration.light_replica import (
    Charges,
    Graph,
    LightReplica,
    Stop,
    Thinned,
    Weighed,
    kinds_of,
)
from solver.enumeration.problem import Array, Intervals, Mask, SplitProblem

#: Subgradient steps at most, and without a better bound; their length falls in the second half.
STEPS = 24
PATIENCE = 8
#: The bound that the steps aim at, as a multiple of the cutoff.
AIM = 1.002
#: How often a step asks whether to stop: it takes as long as so many of an enumeration.
ASKS = 20
#: The units that weights may be rounded down to: whoever keeps to the weight keeps to that.
UNITS = (1, 2, 4, 8)
#: With more edges than these a unit is not made finer, stages are charged rather than counted.
MOST_EDGES = 1_000_000


@dataclass(frozen=True)
class Relaxed:
    """What may be faster than a cutoff: the light replica's step time + charges, and their mean."""

    problem: SplitProblem
    mean_ns: int


class Relaxation:
    """The one replica of a shape.

    bound_ns: no plan of the shape is faster, as far as is known. groups: a node group per stage of
    the path with that bound, none if there is no bound yet. Groups that are less than `apart` in
    speed are taken for one, which leaves fewer ways.
    """

    def __init__(self, intervals: Intervals, placer: Placer, apart: float = 0.0) -> None:
        self.replica = LightReplica(intervals, placer, kinds_of(intervals, apart))
        self.bound_ns = 0
        self.groups: tuple[int, ...] = ()

    def by_speed(self, cutoff: int, stop: Stop = lambda: False) -> list[Mask] | None:
        """What any replica may run below the cutoff; None if nothing. Raises `bound_ns`."""
        replica = self.replica
        found = replica.thinned(replica.graph(replica.allowed, replica.allowed), cutoff)
        if found is None:
            return None
        speeds = replica.weighed(replica.speeds)
        left = self._by_weight(found.masks, found.masks, speeds, cutoff, stop)
        return None if left is None else _shared(found.masks, left[1])

    def problem(
        self, common: list[Mask], cutoff: int, stop: Stop = lambda: False
    ) -> Relaxed | None:
        """Of what any replica may run, what may be faster than `cutoff`; None if nothing is.

        Raises `bound_ns` on the way.
        """
        speeds = self.replica.weighed(self.replica.speeds)
        left = self._by_weight(common, common, speeds, cutoff, stop, counted=True)
        if left is None:
            return None
        charged = self._charged(_shared(common, left[1]), cutoff, stop)
        return None if charged is None else self._counted(*charged, cutoff, stop)

    def _learn(self, graph: Graph, found: Thinned) -> None:
        if found.bound_ns > self.bound_ns:
            self.bound_ns = found.bound_ns
            self.groups = graph.problem.order(found.arcs.tolist())

    def _by_weight(
        self,
        common: list[Mask],
        light: list[Mask],
        weighed: Weighed,
        cutoff: int,
        stop: Stop,
        *,
        counted: bool = False,
    ) -> tuple[Graph | None, list[Mask]] | None:
        """The finest graph of these weights with few edges, and what it leaves; None if nothing.

        What a coarse one leaves out makes room for a finer one.
        """
        finest, units = None, list(UNITS)
        while units and not stop():
            for unit in units:
                graph = self.replica.graph(
                    common, light, weighed=weighed.coarser(unit), counted=counted
                )
                if graph.num_edges <= MOST_EDGES:
                    break
            else:
                break
            found = self.replica.thinned(graph, cutoff, stop)
            if found is None:
                return None
            self._learn(graph, found)
            finest, light, common = graph, found.masks, _shared(common, found.masks)
            units = units[: units.index(unit)]
        return finest, light

    def _charged(
        self, common: list[Mask], cutoff: int, stop: Stop
    ) -> tuple[list[Mask], Charges] | None:
        """What is left to any replica, and the best charges; None if nothing is left.

        Other charges, another light replica: what one of them cannot use another may.
        """
        kinds = len(self.replica.kinds)
        best = charges = Charges(np.zeros(kinds), np.zeros(kinds - 1))
        best_ns, idle = -1, 0
        for step in range(STEPS):
            if idle == PATIENCE or any(stop() for _ in range(ASKS)):
                break
            graph = self.replica.graph(common, common, charges)
            found = self.replica.thinned(graph, cutoff)
            if found is None:
                return None
            self._learn(graph, found)
            common = _shared(common, found.masks)
            idle += 1
            if found.bound_ns > best_ns:
                best, best_ns, idle = charges, found.bound_ns, 0
            missing_ns = (AIM * cutoff - found.bound_ns) / (2 if step < STEPS // 2 else 4)
            charges = self._stepped(charges, graph, found.arcs, missing_ns)
        of_stages = replace(best, kind=np.zeros(kinds))
        left = self.replica.thinned(self.replica.graph(common, common, of_stages), cutoff, stop)
        return None if left is None else (left.masks, best)

    def _counted(
        self, common: list[Mask], charges: Charges, cutoff: int, stop: Stop
    ) -> Relaxed | None:
        """The problem of what is left, as fine as its number of edges allows."""
        graph = self.replica.graph(common, common, charges, counted=True)
        if graph.num_edges > MOST_EDGES:
            graph = self.replica.graph(common, common, charges)
        found = self.replica.thinned(graph, cutoff, stop)
        if found is None:
            return None
        self._learn(graph, found)
        light, common = found.masks, _shared(common, found.masks)
        weighed = self.replica.weighed(charges.weights)
        by_weight = self._by_weight(common, light, weighed, cutoff, stop, counted=True)
        if by_weight is None:
            return None
        finest, light = by_weight
        graph = finest or graph
        return Relaxed(_masked(graph.problem, light), graph.mean_ns)

    def _stepped(self, charges: Charges, graph: Graph, arcs: Array, missing_ns: float) -> Charges:
        """A step along what the path of these arcs has too much of, towards the bound missing."""
        stages = list(zip(graph.problem.stages, graph.rank, arcs.tolist(), strict=True))
        groups = np.bincount([s.tail[x] for s, _, x in stages], minlength=len(self.replica.kinds))
        ranks = np.cumsum(
            np.bincount([r[x] for _, r, x in stages], minlength=len(self.replica.kinds))
        )
        group = groups - self.replica.slots / self.replica.tables.shape.dp
        rank = ranks[:-1] - self.replica.most
        size = missing_ns / max(float(group @ group + rank @ rank), 1e-9)
        return Charges(charges.kind + size * group, np.maximum(charges.rank + size * rank, 0))


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

    Where these run out, nodes of the group with slots to spare take their place that is nearest in
    speed.
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
            most = max(spare.values())
            others = [j for j, slots in spare.items() if slots > 0 or slots == most]
            group = (
                wanted if left[wanted] else min(others, key=lambda j: abs(times[j] - times[wanted]))
            )
            order.append(group)
            left[group] -= 1
            filled += sizes[group]
    return tuple(order)
