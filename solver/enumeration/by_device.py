"""The best plan of a configuration with several chunks per device, over all node orders at once.

Branch and bound on the graph of devices (`solver.graph.devices`): what paths of the operation
graph leave below a cutoff is halved, and each half thinned again, until few plans are left, which
are simulated. Paths: the families that hold for every schedule, and the critical paths of plans
that were simulated on the way, one for every half. Cutoffs grow from the bound that thinning alone
shows, each half the way to the best plan (iterative deepening, Korf 1985): a complete search below
one of them is a bound of a search that is stopped later.

Thinning and halving lose no plan below the cutoff, and plans are simulated with all their costs.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from formulations.costs.placement import Placer
from formulations.plan import ByPlace, Plan
from solver.enumeration.engine import ConfigAnswer, descend, even_plan, solve_split
from solver.enumeration.enumerate import below
from solver.graph.all_orders import order_graph
from solver.graph.cuts import evaluate, family_cuts
from solver.graph.devices import DeviceGraph, DeviceLayers
from solver.graph.edges import shortest_path, to_go
from solver.graph.pipelines import StageDegrees
from solver.graph.placements import StageZones, fixed_order, replica_classes
from solver.graph.problem import INFINITY, Array, Intervals, SplitProblem
from solver.interrupt import Stop

#: Plans that are simulated rather than halved further.
FEW = 128
#: Critical paths that are kept.
MOST_LEARNED = 64
#: Halves of which one has the critical path of a plan looked at.
HARVEST = 3
#: Halves that are worth asking whether to stop.
HALVES_PER_STOP = 4
#: A bound is found by thinning to this part of the cutoff; from there on only the cutoff is tried.
RESOLUTION = 400


def best_by_device(
    intervals: Intervals, placer: Placer, cutoff: int, gap: float, stop: Stop
) -> ConfigAnswer | None:
    """The best plan below the cutoff, proved to the relative gap; None if the graph is too big."""
    tables = intervals.tables
    share = tables.num_micro_batches // tables.config.dp
    split = StageZones(placer).split_by(cutoff)
    problem = order_graph(intervals, placer, share, split)
    if problem is None:
        return None
    if not problem.stages:
        return ConfigAnswer(None, None, True, below(cutoff, gap))
    search = _Search(intervals, placer, problem, cutoff, gap, stop)
    layers = search.graph.everything(search.target)
    return None if layers is None else search.run(layers)


class _Search:
    """The best plan so far, and the paths known."""

    def __init__(
        self,
        intervals: Intervals,
        placer: Placer,
        problem: SplitProblem,
        cutoff: int,
        gap: float,
        stop: Stop,
    ) -> None:
        self.graph, self.problem = DeviceGraph(intervals, problem), problem
        self.gap, self.stop = gap, stop
        self.intervals, self.placer, self.tables = intervals, placer, intervals.tables
        self.of_order = dict[tuple[int, ...], SplitProblem]()
        self.num_nodes = sum(self.tables.config.nodes_used)
        self.best: Plan | None = None
        self.best_time = cutoff
        self.nearest = int(INFINITY)
        cuts = family_cuts(replace(problem, micro_batches=problem.micro_batches[:1]))
        self.families = np.column_stack([cuts.rows, cuts.device])
        self.learned = self.families[:0]

    @property
    def known(self) -> Array:
        """[C, 5 S + 1] paths, each with the device that it ends on."""
        return np.concatenate([self.learned, self.families])

    @property
    def target(self) -> int:
        """Plans of at least this are not looked for."""
        return below(self.best_time, self.gap)

    def run(self, layers: DeviceLayers) -> ConfigAnswer:
        """A first plan, what thinning alone shows, then all plans below cutoffs that grow."""
        root, low = self.thinned(layers, self.target), self.target
        if root is not None:
            self.look(*self.some(root))
            low = self.thinning_bound(root)
        while root is not None and low < self.target:
            rest = self.target - low
            trial = self.target - (rest // 2 if rest * RESOLUTION > self.target else 0)
            if not self.search(root, trial):
                break
            low = min(trial, self.target)
        time_ns = None if self.best is None else self.best_time
        return ConfigAnswer(self.best, time_ns, low >= self.target, low)

    def thinning_bound(self, root: DeviceLayers) -> int:
        """Below this no plan is left by thinning."""
        low, high = 0, self.target
        while (high - low) * RESOLUTION > self.target and not self.stop():
            middle = (low + high) // 2
            thinned = self.thinned(root, middle)
            if thinned is None:
                low = middle
            else:
                root, high = thinned, middle
        return low

    def thinned(self, layers: DeviceLayers, cutoff: int) -> DeviceLayers | None:
        """By all paths known."""
        paths = self.known
        return self.graph.thinned(layers, paths[:, :-1], paths[:, -1], cutoff)

    def search(self, root: DeviceLayers, cutoff: int) -> bool:
        """Whether all plans below the cutoff and the target were looked at."""
        stack, halves = [root], 0
        while stack:
            if halves % HALVES_PER_STOP == 0 and self.stop():
                return False
            halves += 1
            layers = self.thinned(stack.pop(), min(cutoff, self.target))
            if layers is None:
                continue
            few = self.graph.count(layers) <= FEW
            if few and not self.look(*self.graph.plans(layers)):
                return False
            if not few:
                if halves % HARVEST == 1:
                    self.look(*self.some(layers))
                stack.extend(_halves(layers))
        return True

    def some(self, layers: DeviceLayers) -> tuple[Array, Array]:
        """A plan on a shortest path by all known paths together: arcs [1, p], split [1, S + 1]."""
        rows, device = self.known[:, :-1], self.known[:, -1]
        costs = [edges.values(rows, device, k, 0).sum(axis=0) for k, edges in enumerate(layers)]
        path = shortest_path(layers, costs, to_go(layers, costs))
        single = [edges.take(np.array([edge])) for edges, edge in zip(layers, path, strict=True)]
        return self.graph.plans(single)

    def learn(self, path: Array) -> None:
        """Keeps a path, unless it is known; the oldest makes room."""
        if not (self.known == path).all(axis=1).any():
            self.learned = np.concatenate([path[None], self.learned[: MOST_LEARNED - 1]])

    def look(self, arcs: Array, splits: Array) -> bool:
        """Simulates plans, keeps the best and a critical path; whether there was time for all."""
        by_order: dict[tuple[int, ...], list[int]] = {}
        for i, device_arcs in enumerate(arcs.tolist()):
            order = self.problem.order(device_arcs * self.graph.v)[: self.num_nodes]
            by_order.setdefault(order, []).append(i)
        return all(self._look(order, splits[rows]) for order, rows in by_order.items())

    def _look(self, order: tuple[int, ...], splits: Array) -> bool:
        if order not in self.of_order:  # with all its costs
            placement = self.placer.costs(order)
            classes = replica_classes(placement, self.tables.config.dp)
            shares = [self.graph.share] * len(classes)
            self.of_order[order] = fixed_order(self.intervals, placement, classes, shares)
        problem = self.of_order[order]
        # The arcs of those splits that are allowed.
        masks = [
            np.stack([mask[splits[:, k], splits[:, k + 1]] for mask in stage.allowed])
            for k, stage in enumerate(problem.stages)
        ]
        possible = np.all([mask.any(axis=0) for mask in masks], axis=0)
        arcs = np.column_stack([mask.argmax(axis=0) for mask in masks])[possible]
        splits = splits[possible]
        if not len(splits):
            return True
        if len(splits) > 1:
            times = evaluate(problem, arcs, splits, stop=self.stop).step_time
            if len(times) < len(splits):
                return False
            best = int(times.argmin())
            arcs, splits = arcs[[best]], splits[[best]]
        simulated = evaluate(problem, arcs, splits, harvest=True)
        if simulated.cuts is not None:
            self.learn(np.append(simulated.cuts.rows[0], simulated.cuts.device[0]))
        if simulated.step_time[0] < self.nearest:
            self.nearest = int(simulated.step_time[0])
            split, time_ns, _ = descend(problem, arcs[0], splits[0], self.stop)
            if time_ns < self.best_time:
                self.best, self.best_time = even_plan(self.tables, order, split), time_ns
        return True


def _halves(layers: DeviceLayers) -> Sequence[DeviceLayers]:
    """The device with most choices cut in two: by layers in all, of a chunk, before, or arc."""
    sizes = [len(np.unique(edges.sizes, axis=1).T) for edges in layers]
    for k in sorted(range(len(layers)), key=lambda k: (-sizes[k], -len(layers[k]))):
        edges = layers[k]
        for values in (edges.sizes.sum(axis=0), *edges.sizes, edges.before, edges.arc):
            distinct_values = np.unique(values)
            if len(distinct_values) > 1:
                low = values < distinct_values[len(distinct_values) // 2]
                return [[*layers[:k], edges.take(part), *layers[k + 1 :]] for part in (~low, low)]
    raise AssertionError("one plan is not halved")


#: With more arcs the graph of all layouts is not looked at.
MOST_ARCS = 20_000


def best_by_stage(
    intervals: Intervals, by_place: ByPlace, cutoff: int, gap: float, stop: Stop
) -> ConfigAnswer:
    """The best plan of a configuration with a step time below `cutoff`; intervals: by place."""
    graph = StageDegrees(intervals, by_place)
    if sum(map(len, graph.arcs)) > MOST_ARCS:
        return ConfigAnswer(None, None, False)
    if not graph.arcs:
        return ConfigAnswer(None, None, True, cutoff)
    outcome = solve_split(graph.problem, cutoff, gap, stop)
    plan = None
    if outcome.arcs is not None and outcome.split is not None:
        plan = graph.plan(outcome.arcs.tolist(), outcome.split.tolist())
    return ConfigAnswer(plan, outcome.step_time_ns, outcome.complete, outcome.bound_ns)
