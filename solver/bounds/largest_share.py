"""The largest share of micro-batches with which a replica may stay below a cutoff.

Bounds of `latency_bottleneck` grow with the share m of a lane, so each edge has a largest share:
(1) latency through the edge + (m - 1) work - min(w, m - 1) least < cutoff;
(2) latency through the edge + what rounds add < cutoff;
(3) arrival of the first micro-batch + m work + tail < cutoff;
(4) memory: m, or with 1F1B at most p - stage, micro-batches in flight.
Paths: those of `latency_bottleneck`, solved for m instead of the time.
A path carries no more than its worst edge, a lane no more than its best path.

Bound of a configuration. No plan, whatever its node order and shares, has a shorter step.
For a trial time the layered graph of all node orders is thinned. With even shares that is `tighten`
of `latency_bottleneck`. With uneven shares every edge, a stage on some nodes, has for each lane a
largest share of micro-batches, see above. Where the lanes together cannot take all, no
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
`solver.graph.placements`. What it does not know only lengthens a step. If all replicas are alike
in every order that is left, the one with the largest share, M / dp or more, stands for all.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from formulations.costs.placement import Placer
from formulations.schedules.registry import SCHEDULES, in_flight
from formulations.units import ceil_div
from solver.bounds.latency_bottleneck import tighten
from solver.graph.all_orders import lane_width, order_graph
from solver.graph.edges import Edges, Layers, build_layers, so_far, taken, to_go
from solver.graph.placements import StageZones
from solver.graph.problem import INFINITY, Array, Intervals, Mask, SplitProblem
from solver.interrupt import Stop

#: A bound is found to this part of itself.
RESOLUTION = 500
#: Trial times grow by this part until one is possible.
STEP = 4


def _times(room: Array, each: Array) -> Array:
    """How often `each` goes into `room` >= 0; INFINITY if it takes no time."""
    return np.where(each > 0, room // np.maximum(each, 1), INFINITY)


def _by_time(room: Array, edges: Edges, most_saved: int) -> Array:
    """[R, M] largest m - 1 by (1), where `room` >= 0 is left above the latency."""
    early = _times(room, edges.work - edges.least)
    late = _times(room + most_saved * edges.least, edges.work)
    return np.where(early < most_saved, early, late)


def _by_rounds(room: Array, edges: Edges, onward: Array, length: int) -> Array:
    """[R, M] largest m - 1 by (2); onward: [R, M] latency of the stages after, length: p - k.

    The least of what one round leaves room for, and of what as many rounds as there are do.
    """
    round_ns = edges.forward + edges.backward + onward
    single = np.where(room < round_ns, length - 1, length + _times(room - round_ns, edges.work))
    spare = room - (length - 1) * edges.work
    rounds = np.maximum(1, _times(np.maximum(spare, 0), round_ns) + (spare >= 0))
    rounds = np.minimum(rounds, INFINITY // length)
    room_left = room - rounds * round_ns
    inside = np.where(
        room_left < 0, -1, np.minimum(_times(np.maximum(room_left, 0), edges.work), length - 1)
    )
    steps: Array = np.minimum(single, rounds * length + inside)
    return steps


def _missed(problem: SplitProblem, edges: Edges, stage: int) -> Array:
    """[R, M] what the better latency path of a stage misses at most, however many micro-batches.

    With blocking sends an operation takes the transfer too that it sends: each at most all of them.
    """
    p = problem.num_devices
    sizes = (np.array([n]) for n in (p, stage, 2 * p, problem.chunks))
    times = (edges.ahead, edges.behind, edges.weight)
    missed = []
    for path in SCHEDULES[problem.schedule].missed(*sizes):
        pairs = zip(path, times, strict=True)
        path_ns = sum(int(count[0]) * time for count, time in pairs if time is not None)
        missed.append(np.broadcast_to(path_ns, edges.forward.shape))
    better: Array = np.min(missed, axis=0)
    return better


def most_shares(problem: SplitProblem, room: Array, layers: Layers, cutoff: int) -> list[Array]:
    """Per stage [R, M] largest share of every lane, 0 if there is none.

    room: [J, n, n] micro-batches in flight that have room, by kind: a place has J columns.
    """
    costs = [edges.latency for edges in layers]
    costs[0] = costs[0] + layers[0].tail
    before, after = so_far(layers, costs), to_go(layers, costs)
    down = so_far(layers, [edges.forward + edges.send for edges in layers])
    shares = []
    for k, (edges, cost) in enumerate(zip(layers, costs, strict=True)):
        onward = after[k + 1][:, edges.target]
        # (1), (2): what is left above the latency through the edge.
        spare = cutoff - 1 - (before[k][:, edges.source] + cost + onward)
        length, room_ns = problem.num_stages - k, np.maximum(spare, 0)
        if SCHEDULES[problem.schedule].turns:
            share = _by_time(room_ns, edges, length - 1)
            share = np.minimum(share, _by_rounds(room_ns, edges, onward, length))
        else:
            share = _by_time(room_ns + _missed(problem, edges, k), edges, 0)
        # (3): what is left for the device from the first arrival to its tail.
        busy = cutoff - 1 - down[k][:, edges.source] - edges.send - edges.tail
        share = np.minimum(share + 1, _times(np.maximum(busy, 0), edges.work))
        columns = problem.stages[k].column[edges.arc].T
        with_room = room[columns % len(room), edges.start, edges.end]
        # (4): any number, where all that the stage ever holds has room.
        held_at_most = in_flight(problem.schedule, problem.num_stages, k, int(INFINITY))
        memory = np.where(with_room >= held_at_most, INFINITY, with_room)
        shares.append(np.where((spare < 0) | (busy < 0), 0, np.minimum(share, memory)))
    return shares


@dataclass(frozen=True)
class SharedOut:
    """What one lane may use below a cutoff, and per stage [M] its largest share with that."""

    layers: Layers
    shares: list[Array]

    @cached_property
    def largest(self) -> int:
        """The largest share of any path."""
        best = np.full(self.layers[-1].num_targets, -INFINITY)
        for edges, edge_shares in zip(reversed(self.layers), reversed(self.shares), strict=True):
            best = edges.from_sources(np.maximum(-edge_shares, best[edges.target]))
        return -int(best[0])


def shared_out(
    problem: SplitProblem, room: Array, cutoff: int, least_share: int = 1
) -> SharedOut | None:
    """What the one lane of a problem may use below the cutoff with `least_share` or more.

    problem: with so many, or fewer, micro-batches. Edges that leave too small a share go; that
    lengthens the ways through the others, so this is repeated. None if nothing is left.
    """
    layers = tighten(problem, build_layers(problem, cutoff), cutoff)
    while layers is not None and all(map(len, layers)):
        shares = [edge_shares[0] for edge_shares in most_shares(problem, room, layers, cutoff)]
        enough = [edge_shares >= least_share for edge_shares in shares]
        if all(mask.all() for mask in enough):
            return SharedOut(layers, shares)
        layers = taken(layers, enough)
    return None


def largest_share(problem: SplitProblem, room: Array, most_share: int, cutoff: int) -> int:
    """Largest share, up to `most_share`, with which one lane alone may stay below the cutoff; or 0.

    problem: a fixed order with that one lane, and one micro-batch.
    """
    shared = shared_out(problem, room, cutoff)
    return min(most_share, shared.largest) if shared else 0


@dataclass(frozen=True)
class _Trial:
    """The graph of one config. needed: sum of shares over the lanes; None: shares are given."""

    problem: SplitProblem
    intervals: Intervals
    needed: int | None

    def thinned(self, layers: Layers, cutoff: int) -> Layers | None:
        """The same among the edges that were left for a larger cutoff."""
        if self.needed is None:
            return tighten(self.problem, layers, cutoff)
        before = -1
        while before != (count := sum(map(len, layers))):
            if not all(map(len, layers)):
                return None
            before = count
            shares = most_shares(self.problem, self.intervals.room, layers, cutoff)
            layers = taken(
                layers, [self._enough(edge_shares, self.needed) for edge_shares in shares]
            )
        return layers

    def _enough(self, shares: Array, needed: int) -> Mask:
        """[..] whether lanes with these largest shares [R, ..] can take all micro-batches."""
        sums = np.minimum(shares, needed).sum(axis=0)
        return np.asarray((shares >= 1).all(axis=0) & (sums >= needed))

    def start(self, cutoff: int) -> Layers | None:
        """The edges that a plan below the cutoff may use; None if there is no such plan."""
        if self.needed is None:
            return self.thinned(build_layers(self.problem, cutoff), cutoff)
        # Without edges whose devices alone are busy until the cutoff.
        mask_of: dict[tuple[int, bytes], Mask] = {}
        stages = []
        for arcs in self.problem.stages:
            masks = []
            for allowed, column in zip(arcs.allowed, arcs.column, strict=True):
                key = (id(allowed), column.tobytes())
                if key not in mask_of:
                    work = self.problem.forward[column] + self.problem.backward[column]
                    shares = np.where(work > 0, (cutoff - 1) // np.maximum(work, 1), self.needed)
                    mask_of[key] = allowed & self._enough(shares, self.needed)
                masks.append(mask_of[key])
            stages.append(replace(arcs, allowed=tuple(masks)))
        problem = replace(self.problem, stages=tuple(stages))
        return self.thinned(build_layers(problem, cutoff), cutoff)


def config_bound_ns(intervals: Intervals, cutoff_ns: int, stop: Stop = lambda: False) -> int:
    """Lower bound of the step time of every plan of the config; the cutoff if none is below it.

    At least what the argument of this module can show, less 1 part in RESOLUTION; less if stopped;
    0 if the configuration has too many node orders for a graph of all, or several chunks.
    """
    tables, placer = intervals.tables, Placer(intervals.tables)
    if tables.config.vpp > 1:
        return 0
    total, width = tables.num_micro_batches, lane_width(tables)
    given = tables.instance.search.micro_batches == "even" or width == tables.config.dp
    share, split = ceil_div(total, tables.config.dp), StageZones(placer).split_by(cutoff_ns)
    problem = order_graph(intervals, placer, share if given else 1, split)
    if problem is None:
        return 0
    if not problem.stages:
        return cutoff_ns
    if not given and problem.num_lanes == 1:
        given, problem = True, replace(problem, micro_batches=(share,))
    trial = _Trial(problem, intervals, None if given else ceil_div(total, width))
    layers = trial.start(cutoff_ns)
    if layers is None:
        return cutoff_ns
    # No plan is below all work on the fastest GPUs, shared by all slots.
    busy_ns = ceil_div(total * tables.least_work_ns, tables.config.slots)
    low, high = min(busy_ns, cutoff_ns), cutoff_ns
    while high - low > max(1, low // RESOLUTION) and not stop():
        # Trial times grow until one is possible; from there on they halve what is left.
        if (middle := low + low // STEP + 1) < high:
            thinned = trial.start(middle)
        else:
            middle = (low + high) // 2
            thinned = trial.thinned(layers, middle)
        if thinned is None:
            low = middle
        else:
            layers, high = thinned, middle
    return low
