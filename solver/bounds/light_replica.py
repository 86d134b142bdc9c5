"""The light replica of a shape, see `replica_relaxation`: a split problem, and what is left of it.

Kinds are sets of node groups; a kind costs what its groups cost at least. Ranks number the kinds by
speed, 0 the fastest. Masks are per stage [J, n, n]: the layers that may run on each of the J kinds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from formulations.costs.placement import Placer
from solver.bounds.cycle_means import by_windows
from solver.bounds.kind_automaton import Tallying, Weighed, steps
from solver.bounds.kind_graph import KindGraph
from solver.bounds.kinds import Kind, allowed_on
from solver.bounds.latency_bottleneck import path_of, tighten
from solver.layered.all_orders import lane_width
from solver.layered.cuts import evaluate
from solver.layered.edges import Layers, build_layers, taken
from solver.layered.problem import Array, Intervals, Mask, SplitProblem

#: Weight of the fastest kind by speed.
FINEST_WEIGHT = 24

Stop = Callable[[], bool]


@dataclass(frozen=True)
class Thinned:
    """What is left of a graph; once known a bound of the step time, and the groups of its path.

    way_ns: step time of that path.
    """

    problem: SplitProblem
    layers: Layers
    bound_ns: int = 0
    groups: tuple[int, ...] = ()
    way_ns: int = 0

    @property
    def masks(self) -> list[Mask]:
        """Per stage [J, n, n] what is left."""
        masks = []
        for stage, edges in zip(self.problem.stages, self.layers, strict=True):
            mask = np.zeros(self.problem.sync.shape, dtype=np.bool_)
            mask[stage.tail[edges.arc], edges.start, edges.end] = True
            masks.append(mask)
        return masks


class LightReplica:
    """The one replica of a shape; J kinds, ranked by speed, rank 0 the fastest."""

    def __init__(self, intervals: Intervals, placer: Placer, kinds: Sequence[Kind]) -> None:
        self.tables = intervals.tables
        self.costs = KindGraph(intervals, placer, kinds, lane_width(self.tables))
        shape, self.kinds = self.tables.shape, self.costs.kinds
        self.micro_batches = self.tables.num_micro_batches // shape.dp
        slots = np.array(shape.nodes_used) * self.tables.slots_per_node
        self.slots = np.array([slots[list(kind)].sum() for kind in kinds])
        work = self.costs.work[:, 0, -1]
        self.rank = np.argsort(np.argsort(work, kind="stable"))
        self.weightings = [self._weighed(weights) for weights in self._weights(work)]
        self.allowed = [
            np.stack([allowed_on(intervals, k, kind, self.micro_batches) for kind in kinds])
            for k in range(shape.pp)
        ]

    def _weights(self, work: Array) -> list[Array]:
        """[J] weights to try: of the fastest kind alone, of it above all, and like the speeds."""
        speeds = np.maximum(1, np.round(FINEST_WEIGHT * work.min() / work)).astype(np.int64)
        slower = len(work) - 1 - self.rank
        fastest = self.rank == 0
        alone = fastest.astype(np.int64)
        if len(work) < 3:
            return [alone, speeds]
        mainly = np.where(fastest, self._heavy(slower, fastest), slower)
        return [alone, mainly, speeds]

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
    def merged(self) -> bool:
        """Whether some groups are taken for one kind."""
        return any(len(kind) > 1 for kind in self.kinds)

    @property
    def unweighed(self) -> Weighed:
        """Any replica."""
        return self._weighed(np.zeros_like(self.rank))

    def tightened(self, problem: SplitProblem, cutoff: int) -> Thinned | None:
        """What the light replica may use below the cutoff; None if there is nothing."""
        if not problem.stages:
            return None
        layers = tighten(problem, build_layers(problem, cutoff), cutoff)
        return None if layers is None else Thinned(problem, layers)

    def windowed(self, thinned: Thinned, cutoff: int, stop: Stop, halve: bool) -> Thinned | None:
        """What windows leave of that, as far as is known until `stop`; with classes halved."""
        problem, layers = thinned.problem, thinned.layers
        bounds = by_windows(problem, layers, cutoff, stop, halve=halve)
        if bounds.path is None:
            return None
        arcs, splits = path_of(layers, bounds.path[None])
        way_ns = int(evaluate(problem, arcs, splits).step_time[0])
        left, groups = taken(layers, bounds.useful), problem.order(arcs[0].tolist())
        return Thinned(problem, left, bounds.bound_ns, groups, way_ns)

    def graph(self, masks: list[Mask], tallying: Tallying, most: int) -> SplitProblem | None:
        """All ways of the light replica; without stages if there is none, None if there are `most`.

        masks: per stage [J, n, n] what it may run there.
        """
        sizes = [own.sum(axis=(1, 2)).tolist() for own in masks]
        kinds = [{j: size for j, size in enumerate(own) if size} for own in sizes]
        found = steps(kinds, tallying, most)
        if found is None:
            return None
        tails, rows = self.costs.tails, np.arange(len(self.kinds))
        arcs = [
            self.costs.arcs(k, own, [mask[one.now] for one in own], rows, tails, self.micro_batches)
            for k, (own, mask) in enumerate(zip(found, masks, strict=True))
            if all(found)
        ]
        return self.costs.problem(arcs, tails, self.micro_batches)
