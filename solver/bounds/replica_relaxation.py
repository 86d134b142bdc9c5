"""One replica in place of all: a bound for shapes with too many node orders to try.

Light replica. Let every slot of node group j weigh w_j >= 0. All slots of the shape together weigh
sum_j w_j N_j, so one of the dp replicas weighs no more than the dp-th part, rounded down if weights
are whole. The step takes no less time than that replica, whose stages stand on some groups, with
transfers and tails that no order makes shorter. So the least time over all such groups and splits
that weigh no more is a lower bound of the step time of every plan with even shares. States add up
the weights. Other weights, another light replica: what one of them cannot use another may.

This is a surrogate relaxation (Glover 1968): one weighted sum of places stands for the places of
every group, and a knapsack over these weights is part of the state. Paths: those of
`latency_bottleneck` and `cycle_means`, of one replica.

Shared split. All replicas have the same layers on a stage: what a light replica cannot run on a
stage, on any group, no replica runs there.
"""

from collections.abc import Sequence
from dataclasses import replace

from formulations.costs.tables import CostTables
from solver.bounds.kind_automaton import Weighed
from solver.bounds.light_replica import LightReplica, Stop
from solver.layered.problem import Mask, SplitProblem

#: The units that weights may be rounded down to: whoever keeps to the weight keeps to that.
UNITS = (1, 2, 4, 8)
#: Edges of a graph; and before anything is left out.
MOST_EDGES = 2_000_000
MOST_OF_ALL = 10_000_000


class Relaxation:
    """What light replicas of a shape may use below a cutoff.

    common: per stage [J, n, n] what any replica may run, as far as is known. bound_ns: no plan of
    the shape is faster, as far as windows show. groups: a node group per stage of the path with
    that bound, and problem: what is left of the light replica that has it; None without. ways_ns:
    step time of the best path known of each light replica that refutes nothing.
    """

    def __init__(self, replica: LightReplica, cutoff: int) -> None:
        self.replica, self.cutoff = replica, cutoff
        self.common = replica.allowed
        self.bound_ns = 0
        self.groups: tuple[int, ...] = ()
        self.problem: SplitProblem | None = None
        self.ways_ns: dict[Weighed, int] = {}

    @property
    def reach_ns(self) -> int:
        """From here on light replicas refute no cutoff."""
        return max(self.ways_ns.values(), default=self.cutoff)

    def refutes_at_once(self) -> bool:
        """Whether latency plus bottleneck shows that nothing is below the cutoff.

        Of any replica, and of the one that is light in the first of the weights.
        """
        replica = self.replica
        graph = replica.graph(self.common, replica.unweighed, MOST_OF_ALL)
        if graph is None:
            return False
        found = replica.tightened(graph, self.cutoff)
        if found is not None:
            self.common = found.masks
        return found is None or self._refutes(replica.weightings[0])

    def refutes(self, stop: Stop) -> bool:
        """Whether that or windows show it, of replicas that are light in any of the weights.

        By a few classes of all, then, until `stop`, by more of those not known to be in vain.
        """
        if self.refutes_at_once():
            return True
        for halve in (False, True):
            for weighed in self.replica.weightings:
                if stop():
                    return False
                in_vain = self.ways_ns.get(weighed, self.cutoff) < self.cutoff
                if not in_vain and self._refutes(weighed, stop, halve):
                    return True
        return False

    def _refutes(self, weighed: Weighed, stop: Stop | None = None, halve: bool = False) -> bool:
        """Whether a light replica refutes the cutoff; given `stop` by windows.

        With the finest units that leave few enough edges; if none do, it is in vain.
        """
        graph = self._finest(weighed)
        if graph is None:
            self.ways_ns[weighed] = 0
            return False
        found = self.replica.tightened(graph, self.cutoff)
        if found is not None and stop is not None:
            found = self.replica.windowed(found, self.cutoff, stop, halve)
        if found is None:
            return True
        self.common = shared(self.common, found.masks)
        if stop is not None:
            self.ways_ns[weighed] = found.way_ns
        if found.bound_ns > self.bound_ns:
            self.bound_ns, self.groups = found.bound_ns, found.groups
            self.problem = _masked(graph, found.masks)
        return False

    def _finest(self, weighed: Weighed) -> SplitProblem | None:
        """The graph of the finest units with few enough edges in which something weighs."""
        finest = (u for u in UNITS if u <= max(weighed.weights))
        graphs = (self.replica.graph(self.common, weighed.coarser(u), MOST_EDGES) for u in finest)
        return next((graph for graph in graphs if graph is not None), None)


def shared(common: list[Mask], light: list[Mask]) -> list[Mask]:
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
    times = tables.work_ns.sum(axis=0)
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
