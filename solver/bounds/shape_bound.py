"""A lower bound of the step time of every plan of a shape, whatever its node order and shares.

For a trial time the layered graph of all node orders is thinned. With even shares that is `tighten`
of `latency_bottleneck`. With uneven shares every edge, a stage on some nodes, has for each lane a
largest share of micro-batches, see `largest_share`. Where the lanes together cannot take all, no
plan below the trial time uses the edge. Fewer edges make the ways through the others longer and
their shares smaller, so this is repeated until nothing changes; if no path is left, there is no
such plan.

Paths: those of `latency_bottleneck`. The bound is found by bisection over trial times, each refuted
or not (dual approximation, Hochbaum and Shmoys 1987).

Proof for uneven shares. The edges of a plan below the trial time form a path. As long as they are
all left, shortest paths are no longer than its own way, and the shares of the plan no larger than
the largest ones, lane by lane: a lane is a block of q replicas with equal nodes, and if each of
them may take s micro-batches at most, the block takes q s. With M in all, the sum of s over the
lanes is M / q or more. So none of the plan's edges is ever removed. If there is one lane only, some
replica has M / dp micro-batches or more, which no edge of its way costs less than with just these.

Of the links between zones the graph knows what a stage and its neighbour decide; see
`solver.layered.placements`. What it does not know only lengthens a step. If all replicas are alike
in every order that is left, the one with the largest share, M / dp or more, stands for all.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from formulations.units import ceil_div
from solver.bounds.largest_share import most_shares
from solver.bounds.latency_bottleneck import tighten
from solver.layered.all_orders import lane_width, order_graph
from solver.layered.edges import Layers, build_layers
from solver.layered.placements import StageZones
from solver.layered.problem import Array, Intervals, Mask, SplitProblem

#: A bound is found to this part of itself.
RESOLUTION = 500
#: Trial times grow by this part until one is possible.
STEP = 4


@dataclass(frozen=True)
class _Trial:
    """The graph of one shape. needed: sum of shares over the lanes; None: shares are given."""

    problem: SplitProblem
    intervals: Intervals
    needed: int | None

    def start(self, cutoff: int) -> Layers | None:
        """The edges that a plan below the cutoff may use; None if there is no such plan."""
        return self.thinned(self._layers(cutoff), cutoff)

    def thinned(self, layers: Layers, cutoff: int) -> Layers | None:
        """The same among the edges that were left for a larger cutoff."""
        if self.needed is None:
            return tighten(self.problem, layers, cutoff)
        left = -1
        while left != (count := sum(map(len, layers))):
            if not all(map(len, layers)):
                return None
            left = count
            shares = most_shares(self.problem, self.intervals.room, layers, cutoff)
            masks = [self._enough(own, self.needed) for own in shares]
            layers = [
                edges if mask.all() else edges.take(mask)
                for edges, mask in zip(layers, masks, strict=True)
            ]
        return layers

    def _enough(self, shares: Array, needed: int) -> Mask:
        """[..] whether lanes with these largest shares [R, ..] can take all micro-batches."""
        most = needed - len(shares) + 1
        enough: Mask = (shares >= 1).all(axis=0) & (np.minimum(shares, most).sum(axis=0) >= needed)
        return enough

    def _layers(self, cutoff: int) -> Layers:
        """The graph without edges whose devices alone are busy until the cutoff."""
        if self.needed is None:
            return build_layers(self.problem, cutoff)
        known: dict[tuple[int, bytes], Mask] = {}
        stages = []
        for arcs in self.problem.stages:
            masks = []
            for allowed, column in zip(arcs.allowed, arcs.column, strict=True):
                key = (id(allowed), column.tobytes())
                if key not in known:
                    work = self.problem.forward[column] + self.problem.backward[column]
                    shares = np.where(work > 0, (cutoff - 1) // np.maximum(work, 1), self.needed)
                    known[key] = allowed & self._enough(shares, self.needed)
                masks.append(known[key])
            stages.append(replace(arcs, allowed=tuple(masks)))
        return build_layers(replace(self.problem, stages=tuple(stages)), cutoff)


def _trial(intervals: Intervals, cutoff: int) -> _Trial | None:
    """The graph of a shape below a cutoff; None if it has too many node orders, or chunks."""
    tables, placer = intervals.tables, Placer(intervals.tables)
    if tables.shape.vpp > 1:
        return None
    width = lane_width(tables)
    total, dp = tables.num_micro_batches, tables.shape.dp
    given = tables.instance.search.micro_batches == "even" or width == dp
    share, split = ceil_div(total, dp), StageZones(placer).split_by(cutoff)
    problem = order_graph(intervals, placer, share if given else 1, split)
    if problem is None:
        return None
    if not given and problem.num_lanes == 1:
        given, problem = True, replace(problem, micro_batches=(share,))
    return _Trial(problem, intervals, None if given else ceil_div(total, width))


def _too_short(tables: CostTables) -> int:
    """A step time that no plan is below: all work on the fastest GPUs, shared by all slots."""
    return ceil_div(tables.num_micro_batches * tables.least_work_ns, tables.shape.slots)


def shape_bound_ns(
    intervals: Intervals, cutoff_ns: int, stop: Callable[[], bool] = lambda: False
) -> int:
    """Lower bound of the step time of every plan of the shape; the cutoff if none is below it.

    At least what the argument of this module can show, less 1 part in RESOLUTION; less if stopped;
    0 if the shape has too many node orders for a graph of all.
    """
    trial = _trial(intervals, cutoff_ns)
    if trial is None:
        return 0
    if not trial.problem.stages:
        return cutoff_ns
    layers = trial.start(cutoff_ns)
    if layers is None:
        return cutoff_ns
    low, high = min(_too_short(intervals.tables), cutoff_ns), cutoff_ns
    while (middle := low + low // STEP + 1) < high and not stop():
        found = trial.start(middle)
        if found is None:
            low = middle
        else:
            layers, high = found, middle
    while high - low > max(1, low // RESOLUTION) and not stop():
        middle = (low + high) // 2
        found = trial.thinned(layers, middle)
        if found is None:
            low = middle
        else:
            layers, high = found, middle
    return low
