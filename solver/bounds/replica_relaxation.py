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

Shared split. All replicas have the same layers on a stage. If below a cutoff no replica at all can
run these layers on that stage but on the fastest r groups, then all slots of the stage are of these
groups: there are at most (slots of the r fastest groups) / dp such stages, rounded down. States may
count them. What a light replica cannot run on a stage, on any group, no replica runs there.
"""

from collections.abc import Sequence
from dataclasses import replace

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from solver.bounds.kind_automaton import Weighed
from solver.bounds.kinds import kinds_of
from solver.bounds.light_replica import LightReplica, Stop
from solver.layered.problem import Intervals, Mask, SplitProblem

#: The units that weights may be rounded down to: whoever keeps to the weight keeps to that.
UNITS = (1, 2, 4, 8)
#: Edges of a graph at first, and if that is not enough; and before anything is left out.
MOST_EDGES = (250_000, 2_000_000)
MOST_OF_ALL = 10_000_000


class Relaxation:
    """The light replicas of a shape.

    common: per stage [J, n, n] what any replica may run below the cutoffs so far. bound_ns: no plan
    of the shape is faster, as far as is known. groups: a node group per stage of the path with that
    bound, and problem: what is left of the light replica that has it; None if there is no bound
    yet. Groups that are less than `apart` in speed are taken for one, which leaves fewer ways.
    """

    def __init__(self, intervals: Intervals, placer: Placer, apart: float = 0.0) -> None:
        self.replica = LightReplica(intervals, placer, kinds_of(intervals, apart))
        self.common = self.replica.allowed
        self.bound_ns = 0
        self.groups: tuple[int, ...] = ()
        self.problem: SplitProblem | None = None
        self.units: dict[tuple[Weighed, bool], Sequence[int]] = {}

    @property
    def merged(self) -> bool:
        """Whether some groups are taken for one."""
        return any(len(kind) > 1 for kind in self.replica.kinds)

    @property
    def weightings(self) -> list[Weighed]:
        """Weights to try."""
        return self.replica.weightings

    def thin(self, cutoff: int) -> bool:
        """Leaves out what no replica can run; whether nothing is below the cutoff."""
        unweighed = self.replica.unweighed
        graph = self.replica.graph(self.common, self.common, unweighed, MOST_OF_ALL)
        found = graph and self.replica.thinned(graph, cutoff)
        if found:
            self.common = found.masks
        return graph is not None and found is None

    def closes(
        self,
        cutoff: int,
        weighed: Weighed,
        stop: Stop = lambda: False,
        *,
        counted: bool = False,
        most: int = MOST_EDGES[-1],
    ) -> bool:
        """Whether the light replica shows that nothing is below the cutoff.

        With the finest units that leave fewer than `most` edges, unless they were looked at before.
        What these leave out makes room for finer ones.
        """
        light, key = self.common, (weighed, counted)
        tallying = weighed.counted(self.replica.most) if counted else weighed
        while not stop():
            finest = self._finest(tallying, self.units.get(key, UNITS), light, most)
            if finest is None:
                return False
            unit, graph = finest
            found = self.replica.thinned(graph, cutoff, stop)
            if found is None:
                self.bound_ns = max(self.bound_ns, cutoff)
                return True
            light = found.masks
            self.common = shared(self.common, light)
            self.units[key] = UNITS[: UNITS.index(unit)]
            if found.bound_ns > self.bound_ns:
                self.bound_ns, self.groups = found.bound_ns, found.groups
                self.problem = _masked(graph, light)
        return False

    def _finest(
        self, weighed: Weighed, units: Sequence[int], light: list[Mask], most: int
    ) -> tuple[int, SplitProblem] | None:
        """The first of the units whose graph has fewer edges than `most`, with that graph."""
        for unit in units:
            graph = self.replica.graph(self.common, light, weighed.coarser(unit), most)
            if graph is not None:
                return unit, graph
        return None


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
