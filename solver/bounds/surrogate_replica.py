"""One replica in place of all: a bound for configurations with too many node orders to try.

Surrogate replica. Let every slot of node group j weigh w_j >= 0. All slots of the configuration
together weigh sum_j w_j N_j, so one of the dp replicas weighs no more than the dp-th part, rounded
down if weights are whole. The step takes no less time than that replica, whose stages stand on some
groups, with transfers and tails that no order makes shorter. So the least time over all such groups
and splits that weigh no more is a lower bound of the step time of every plan with even shares.
States add up the weights. Other weights, another surrogate: what one of them cannot use another
may.

This is a surrogate relaxation (Glover 1968): one weighted sum of places stands for the places of
every group, and a knapsack over these weights is part of the state. Paths: those of
`latency_bottleneck` and `cycle_bound`, of one replica.

Shared split. All replicas have the same layers on a stage: what a surrogate replica cannot run on a
stage, on any group, no replica runs there.

Masks are per stage [J, n, n]: the layers that may run on each of the J classes.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from solver.bounds.cycle_bound import by_windows
from solver.bounds.latency_bottleneck import path_of, tighten
from solver.bounds.node_classes import ClassGraph, Resources, steps
from solver.graph.all_orders import lane_width
from solver.graph.cuts import evaluate
from solver.graph.edges import Layers, build_layers, taken
from solver.graph.problem import Arcs, Array, Intervals, Mask, SplitProblem
from solver.interrupt import Stop

#: The units that weights may be rounded down to: whoever keeps to the weight keeps to that.
UNITS = (1, 2, 4, 8)
#: Edges of a graph; and before anything is left out.
MOST_EDGES = 2_000_000
MOST_OF_ALL = 10_000_000
#: Weight of the fastest class by speed.
FINEST_WEIGHT = 24


def masks_of(problem: SplitProblem, layers: Layers) -> list[Mask]:
    """Per stage [J, n, n] what these edges run."""
    masks = []
    for stage, edges in zip(problem.stages, layers, strict=True):
        mask = np.zeros(problem.sync.shape, dtype=np.bool_)
        mask[stage.tail[edges.arc], edges.start, edges.end] = True
        masks.append(mask)
    return masks


class SurrogateReplica:
    """The one replica of a configuration; J classes."""

    def __init__(self, intervals: Intervals, placer: Placer, groups: Sequence[int]) -> None:
        self.tables = intervals.tables
        self.costs = ClassGraph(intervals, placer, groups, lane_width(self.tables))
        config = self.tables.config
        self.micro_batches = self.tables.num_micro_batches // config.dp
        slots = np.array(config.nodes_used) * self.tables.slots_per_node
        self.slots = slots[self.costs.groups]
        work = self.costs.work[:, 0, -1]
        self.weightings = self._weights(work)
        self.allowed = [self.costs.allowed(k, self.micro_batches) for k in range(config.pp)]

    def _weights(self, work: Array) -> list[Array]:
        """[J] weights to try: of the fastest class alone, of it above all others, by speed."""
        fastest = np.arange(len(work)) == work.argmin()
        speeds = np.maximum(1, np.round(FINEST_WEIGHT * work.min() / work)).astype(np.int64)
        weightings = [fastest.astype(np.int64), speeds]
        if len(work) > 2:
            # Others by rank, from 0 for the slowest. With the least weight of the fastest, one of
            # its slots per replica more than their mean, rounded down, is too heavy.
            slower = np.argsort(np.argsort(-work, kind="stable"))
            more = self.tables.config.dp - int(self.slots[fastest].sum()) % self.tables.config.dp
            heavy = int(slower[~fastest] @ self.slots[~fastest]) // more + 1
            weightings.insert(1, np.where(fastest, heavy, slower))
        return weightings

    def weighed(self, weights: Array, unit: int = 1) -> Resources:
        """With the most that the surrogate replica weighs, in these units."""
        max_weight = int(weights @ self.slots) // self.tables.config.dp
        return Resources(
            tuple((weight // unit,) for weight in weights.tolist()), (max_weight // unit,)
        )

    def graph(self, masks: list[Mask], resources: Resources, max_edges: int) -> SplitProblem | None:
        """All ways of the replica; without stages if there is none, None if there are `max_edges`.

        masks: per stage [J, n, n] what it may run there.
        """
        counts = [mask.sum(axis=(1, 2)).tolist() for mask in masks]
        classes = [{j: count for j, count in enumerate(row) if count} for row in counts]
        stages = steps(classes, resources, max_edges)
        if stages is None:
            return None
        ways, rows = stages if all(stages) else [], [np.arange(len(self.slots))] * len(stages)
        return self.costs.problem(ways, masks, rows, self.costs.tails, self.micro_batches)


class Relaxation:
    """What surrogate replicas of a configuration may use below a cutoff.

    common: per stage [J, n, n] what any replica may run, as far as is known. bound_ns: no plan of
    the configuration is faster, as far as windows show. groups: a node group per stage of the path
    with that bound, and problem: what is left of the replica that has it; None without. ways_ns: by
    number of the weighting that refutes nothing, step time of the best path known of its replica.
    """

    def __init__(self, replica: SurrogateReplica, cutoff: int) -> None:
        self.replica, self.cutoff = replica, cutoff
        self.common = replica.allowed
        self.bound_ns = 0
        self.groups: tuple[int, ...] = ()
        self.problem: SplitProblem | None = None
        self.ways_ns: dict[int, int] = {}

    @property
    def reach_ns(self) -> int:
        """From here on surrogate replicas refute no cutoff."""
        return max(self.ways_ns.values(), default=self.cutoff)

    def _tightened(self, graph: SplitProblem) -> Layers | None:
        """What latency plus bottleneck leaves below the cutoff; None if that is nothing."""
        if not graph.stages:
            return None
        return tighten(graph, build_layers(graph, self.cutoff), self.cutoff)

    def refutes(self, stop: Stop) -> bool:
        """Whether no replica that is light in some of the weights is below the cutoff.

        First any replica, by latency plus bottleneck. Then light ones, by windows: by a few classes
        of all, then, until `stop`, by more of those not known to be in vain.
        """
        replica = self.replica
        any_replica = replica.weighed(np.zeros_like(replica.slots))
        graph = replica.graph(self.common, any_replica, MOST_OF_ALL)
        if graph is not None:
            layers = self._tightened(graph)
            if layers is None:
                return True
            self.common = masks_of(graph, layers)
        for halve in (False, True):
            for number in range(len(replica.weightings)):
                if stop():
                    return False
                in_vain = self.ways_ns.get(number, self.cutoff) < self.cutoff
                if not in_vain and self._refutes(number, stop, halve):
                    return True
        return False

    def _refutes(self, number: int, stop: Stop, halve: bool) -> bool:
        """Whether windows of a surrogate replica, with classes halved or not, refute the cutoff.

        With the finest units that leave few enough edges; if none do, it is in vain.
        """
        weights = self.replica.weightings[number]
        weighings = (self.replica.weighed(weights, u) for u in UNITS if u <= weights.max())
        graphs = (self.replica.graph(self.common, light, MOST_EDGES) for light in weighings)
        graph = next((graph for graph in graphs if graph is not None), None)
        if graph is None:
            self.ways_ns[number] = 0
            return False
        layers = self._tightened(graph)
        if layers is None:
            return True
        bounds = by_windows(graph, layers, self.cutoff, stop, halve=halve)
        if bounds.path is None:
            return True
        arcs, splits = path_of(layers, bounds.path[None])
        self.ways_ns[number] = int(evaluate(graph, arcs, splits).step_time[0])
        masks = masks_of(graph, taken(layers, bounds.useful))
        # Layers that the surrogate replica cannot have on a stage are nobody's.
        self.common = [
            mask & left.any(axis=0) for mask, left in zip(self.common, masks, strict=True)
        ]
        if bounds.bound_ns > self.bound_ns:
            self.bound_ns, self.groups = bounds.bound_ns, graph.order(arcs[0].tolist())
            stages = list[Arcs]()
            for stage, mask in zip(graph.stages, masks, strict=True):
                rows = zip(stage.allowed, stage.tail, strict=True)
                stages.append(replace(stage, allowed=tuple(of_arc & mask[i] for of_arc, i in rows)))
            self.problem = replace(graph, stages=tuple(stages))
        return False


def order_along(tables: CostTables, groups: Sequence[int]) -> tuple[int, ...]:
    """A node order in which stage k stands on `groups[k]` as far as there are nodes.

    Where these run out, nodes of the group with slots to spare take their place that is nearest in
    speed.
    """
    config, sizes = tables.config, tables.slots_per_node
    times = tables.work_ns.sum(axis=0)
    nodes_left = list(config.nodes_used)
    needed = [config.dp * list(groups).count(j) for j in range(len(nodes_left))]
    order: list[int] = []
    filled = 0
    for k, wanted in enumerate(groups):
        needed[wanted] -= config.dp
        while filled < (k + 1) * config.dp:
            spare = {j: nodes_left[j] * sizes[j] - needed[j] for j, n in enumerate(nodes_left) if n}
            most_spare = max(spare.values())
            others = [j for j, slots in spare.items() if slots > 0 or slots == most_spare]
            nearest = min(others, key=lambda j: abs(times[j] - times[wanted]))
            group = wanted if nodes_left[wanted] else nearest
            order.append(group)
            nodes_left[group] -= 1
            filled += sizes[group]
    return tuple(order)
