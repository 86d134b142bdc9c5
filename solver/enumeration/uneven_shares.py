"""Bounds of all plans of a configuration whose replicas may have unlike shares: lane by lane.

Take a plan below a cutoff, in lanes of q replicas (see `solver.bounds.lanes`). A lane with c_j
places on class j has a largest share s; the shares of its replicas add up to q s at most, those of
all lanes to M. So the s of all lanes add up to M / q or more, and the c to the places of the
configuration.

Shares. S(c) bounds the share of any lane with counts c, whatever its layers and order, see
`largest_share` and `Lane.most`: the plan has no more than the best dealing of places gives, see
`place_knapsack`. If that is below M / q there is no such plan.
Needed. A lane with counts c has at least M / q less the most that the others can have with the
places left. What only leaves it less is nothing that it uses.
Shared split. All lanes have the same layers on a stage. If the shares that they can have with these
layers there, dealt best, are below M / q, the stage does not have these layers.
Paths: those of `latency_bottleneck`, lane by lane; lanes are joined by a knapsack.
Each step makes the others stronger, so they are repeated until nothing changes.

The best plan, where the ways are exact. What the bounds leave is divided: a stage gets one of its
runs of layers. Where all have one, the bounds of the shares are replaced by the largest ones with
which one replica, simulated, is below the cutoff. If their best dealing suffices, it is a plan, its
tails apart: the stages of a lane also wait for slower nodes of other lanes. If that makes the plan
too slow, it is decided for one more stage where it stands, in all ways, and its tail follows from
these. Once that is decided for every stage, no tail is too short, so the plan is below the cutoff.
In the end all plans left are found or refuted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

import numpy as np

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import split_costs
from formulations.decisions import Decisions
from formulations.units import ceil_div
from solver.bounds.lanes import Counts, Hosts, Lane, dealt, needed, together
from solver.bounds.largest_share import shared_out
from solver.enumeration.engine import ConfigAnswer, solve_split
from solver.enumeration.enumerate import below
from solver.graph.problem import Array, Intervals, Mask
from solver.interrupt import Stop
from solver.simulate import step_time_ns

#: With more edges of the ways on all counts, about, lanes are bounded by their work alone.
MOST_EDGES = 50_000_000
#: Additions with which dealings of single runs of layers are looked at.
MOST_ADDITIONS = 1 << 28
#: Trial times for a bound: they grow by half, or halve the interval in which it is.
TRIALS = 8
#: Growth of the cutoff with which lanes are dealt.
FURTHER = 1.01


@dataclass(frozen=True)
class Remaining:
    """What plans below a cutoff may use: per stage [n, n] its layers, and its hosts.

    needed, largest: by counts of a lane, least and largest share.
    """

    layers: tuple[Mask, ...]
    hosts: tuple[Hosts, ...]
    needed: dict[Counts, int]
    largest: dict[Counts, int]


class Uneven:
    """The plans of one configuration; if `split`, those none of whose stages spans zones."""

    def __init__(self, intervals: Intervals, placer: Placer, split: bool = False) -> None:
        self.tables, self.placer, self.allowed = intervals.tables, placer, intervals.allowed
        self.lane = Lane(intervals, placer, split)
        self.total = ceil_div(self.tables.num_micro_batches, self.lane.width)
        self.most = min(self.total, self.tables.num_micro_batches - self.tables.config.dp + 1)
        self.possible = self.lane.num_edges <= MOST_EDGES
        #: Whether all that these bounds leave can be told apart, see `uneven_search`.
        self.exact = self.possible and self.lane.exact

    def everything(self, cutoff: int) -> Remaining:
        """All plans below the cutoff, as far as the work of a lane tells."""
        largest = {c: min(self.most, self.lane.most(c, cutoff)) for c in self.lane.counts()}
        least_shares, pp = self._needed(largest), self.tables.config.pp
        largest = {c: largest[c] for c in least_shares}
        return Remaining((self.allowed,) * pp, (None,) * pp, least_shares, largest)

    def thinned(
        self, remaining: Remaining, cutoff: int, stop: Stop = lambda: False
    ) -> Remaining | None:
        """What plans below the cutoff may use of this; None if there is none.

        If stopped, or if there are too many ways, what was known until then.
        """
        before = None if self.possible else _size(remaining)
        while before != (size := _size(remaining)):
            before = size
            runs = self._runs(remaining, cutoff, stop)
            if runs is None:
                return remaining
            largest = {
                c: max(int(run.max()) for run in stage_runs) for c, stage_runs in runs.items()
            }
            least_shares = self._needed(largest)
            layers = list[Mask]()
            for k, mask in enumerate(remaining.layers):
                of_stage = {c: stage_runs[k] for c, stage_runs in runs.items() if c in least_shares}
                layers.append(self._shared(mask, of_stage))
            if not all(mask.any() for mask in layers):
                return None
            largest = {c: largest[c] for c in least_shares}
            remaining = Remaining(tuple(layers), remaining.hosts, least_shares, largest)
        return remaining

    def _needed(self, largest: Mapping[Counts, int]) -> dict[Counts, int]:
        """Least shares of lanes with these largest shares; none if these are too small."""
        return needed(largest, self.lane.number, self.lane.there, self.total)

    def _runs(
        self, remaining: Remaining, cutoff: int, stop: Stop
    ) -> dict[Counts, list[Array]] | None:
        """By counts, per stage [n, n] largest share of a lane with these layers there.

        Not of counts that have become too few on the way; None if stopped.
        """
        runs: dict[Counts, list[Array]] = {}
        largest, least_shares = dict(remaining.largest), remaining.needed
        # First the counts that are near those of the mean lane.
        mean = np.array(self.lane.there) / self.lane.number
        distance = {c: float(np.abs(np.array(c) - mean).sum()) for c in remaining.needed}
        for counts in sorted(remaining.needed, key=distance.__getitem__):
            if stop():
                return None
            if counts not in least_shares:
                continue
            least = least_shares[counts]
            problem = self.lane.problem(counts, remaining.layers, remaining.hosts, least)
            shared = shared_out(problem, self.lane.room, cutoff, least_shares[counts])
            largest[counts] = min(self.most, shared.largest) if shared else 0
            least_shares = self._needed(largest)
            if shared is None:
                continue
            runs[counts] = [np.zeros_like(self.lane.costs.forward[0]) for _ in shared.layers]
            for run, edges, edge_shares in zip(
                runs[counts], shared.layers, shared.shares, strict=True
            ):
                run_shares = np.minimum(edge_shares, largest[counts])
                np.maximum.at(run, (edges.start, edges.end), run_shares)
        return runs

    def _shared(self, mask: Mask, runs: Mapping[Counts, Array]) -> Mask:
        """[n, n] layers with which the lanes can have all micro-batches."""
        possible = np.zeros_like(mask)
        if not runs:
            return possible
        start, end = np.nonzero(mask & np.any([run > 0 for run in runs.values()], axis=0))
        shares = {c: run[start, end] for c, run in runs.items()}
        number, places = self.lane.number, self.lane.there
        if not len(start):
            return possible
        if number * len(shares) * prod(n + 1 for n in places[:-1]) * len(start) <= MOST_ADDITIONS:
            enough = together(shares, number, places) >= self.total
            start, end = start[enough], end[enough]
        possible[start, end] = True
        return possible

    def bound_ns(
        self, low: int, cutoff: int, remaining: Remaining, stop: Stop = lambda: False
    ) -> int:
        """Lower bound of all plans, at least `low`, which is one.

        remaining: what plans below the cutoff may use. If stopped, what is known until then.
        """
        low, high = min(cutoff, max(low, self.lane.least_ns(self.total))), cutoff
        for _ in range(TRIALS):
            middle = (low + min(high, 2 * low)) // 2
            less = self.thinned(remaining, middle, stop)
            if less is None:
                low = middle
            elif stop():
                break
            else:
                high, remaining = middle, less
        return low


def _size(remaining: Remaining) -> int:
    """Changes whenever less is left."""
    runs = sum(int(mask.sum()) for mask in remaining.layers)
    largest, needed = remaining.largest.items(), remaining.needed
    return runs + sum(1 + most_share - needed[counts] for counts, most_share in largest)


def best_dealing(
    lanes: Uneven,
    cutoff: int,
    gap: float = 0.0,
    stop: Stop = lambda: False,
    start: Remaining | None = None,
) -> ConfigAnswer:
    """The best plan below the cutoff of a config with exact ways, proved to the relative gap.

    start: what plans below the cutoff may use, if that is known.
    """
    plan, time_ns = None, None
    target = below(cutoff, gap)
    stack = [start or lanes.everything(target)]
    while stack:
        if stop():
            return ConfigAnswer(plan, time_ns, False)
        remaining = lanes.thinned(stack.pop(), target, stop)
        if remaining is None:
            continue
        parts = list(_parts(remaining))
        if parts:
            stack.extend(parts)
            continue
        dealing = _dealing(lanes, remaining, target)
        if dealing is None:
            continue
        decisions, dealt_ns = dealing
        if dealt_ns < target:
            plan, time_ns = decisions.plan(lanes.tables), dealt_ns
            target = below(dealt_ns, gap)
            stack.append(remaining)
        else:
            stack.extend(_hosted(lanes, remaining, decisions.order))
    return ConfigAnswer(plan, time_ns, True, target)


def dealt_from_below(
    lanes: Uneven, low: int, cutoff: int, gap: float, stop: Stop, remaining: Remaining
) -> ConfigAnswer:
    """As `best_dealing`, by cutoffs that grow from `low`, a bound of all plans.

    What is found below a low cutoff is as good as any, and far fewer ways lead there.
    """
    bound_ns = trial = low
    while True:
        trial = min(cutoff, int(trial * FURTHER) + 1)
        answer = best_dealing(lanes, trial, gap, stop, remaining)
        if answer.plan is not None or not answer.complete:
            return replace(answer, bound_ns=bound_ns)
        bound_ns = max(bound_ns, below(trial, gap))
        if trial == cutoff:
            return replace(answer, bound_ns=bound_ns)


def _parts(remaining: Remaining) -> Iterator[Remaining]:
    """One for every run of layers of the stage with the fewest of several; none if all have one."""
    sizes = [int(mask.sum()) for mask in remaining.layers]
    several = [k for k, size in enumerate(sizes) if size > 1]
    if several:
        k = min(several, key=lambda k: sizes[k])
        for start, end in np.argwhere(remaining.layers[k]).tolist():
            layers = list(remaining.layers)
            layers[k] = np.zeros_like(layers[k])
            layers[k][start, end] = True
            yield replace(remaining, layers=tuple(layers))


def _hosted(lanes: Uneven, remaining: Remaining, order: tuple[int, ...]) -> Iterator[Remaining]:
    """One for every choice of classes of an undecided stage, of several in the dealing if any."""
    number, classes = lanes.lane.number, range(len(lanes.lane.classes))
    undecided = [k for k, hosts in enumerate(remaining.hosts) if hosts is None]
    mixed = [k for k in undecided if len(set(order[k * number : (k + 1) * number])) > 1]
    k = (mixed or undecided)[0]
    for size in range(1, min(len(classes), number) + 1):
        for hosts in combinations(classes, size):
            chosen = (*remaining.hosts[:k], hosts, *remaining.hosts[k + 1 :])
            yield replace(remaining, hosts=chosen)


def _dealing(lanes: Uneven, remaining: Remaining, cutoff: int) -> tuple[Decisions, int] | None:
    """The plan of one split whose replicas alone are below the cutoff, and its step time.

    None if there is none.
    """
    # The fastest ways with the largest shares of which one replica alone is below the cutoff: by
    # counts the share, and the node group of each stage.
    ways: dict[Counts, tuple[int, tuple[int, ...]]] = {}
    for counts, least_share in remaining.needed.items():
        for share in range(remaining.largest[counts], least_share - 1, -1):
            problem = lanes.lane.problem(counts, remaining.layers, remaining.hosts, share)
            arcs = solve_split(problem, cutoff).arcs
            if arcs is not None:
                ways[counts] = share, problem.order(arcs.tolist())
                break
    shares = {counts: share for counts, (share, _) in ways.items()}
    number, there = lanes.lane.number, lanes.lane.there
    if not shares or together(shares, number, there) < lanes.total:
        return None
    chosen = [ways[counts] for counts in dealt(shares, number, there)]
    order = tuple(
        group for stage in zip(*(groups for _, groups in chosen), strict=True) for group in stage
    )
    split = (0, *(int(np.argwhere(mask)[0, 1]) for mask in remaining.layers))
    each = [share for share, _ in chosen for _ in range(lanes.lane.width)]
    # Shares that add up to all micro-batches: the largest ones less by what is over.
    for _ in range(sum(each) - lanes.tables.num_micro_batches):
        each[each.index(max(each))] -= 1
    costs = split_costs(lanes.tables, lanes.placer.costs(order), split, tuple(each))
    return Decisions(order, split, tuple(each)), step_time_ns(costs)
