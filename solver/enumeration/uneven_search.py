"""The best plan of a shape whose replicas may have unlike shares, where the ways are exact.

What `uneven_shares` leaves is divided: a stage gets one of its runs of layers. Where all have one,
the bounds of the shares are replaced by the largest ones with which one replica, simulated, is
below the cutoff. If their best dealing suffices, it is a plan, its tails apart: the stages of a
lane also wait for slower nodes of other lanes. If that makes the plan too slow, it is decided for
one more stage on which kinds it stands, in all ways, and its tail follows from these. Once that is
decided for every stage, no tail is too short, so the plan is below the cutoff. In the end all plans
left are found or refuted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from formulations.costs.plan_costs import split_costs
from solver.bounds.lane_places import Counts
from solver.bounds.place_knapsack import dealt
from solver.bounds.uneven_shares import Left, Stop, Uneven
from solver.enumeration.engine import solve_split
from solver.enumeration.enumerate import below
from solver.simulate import step_time_ns


@dataclass(frozen=True)
class Dealing:
    """A plan: node groups in node order, split, micro-batches per replica, step time in ns."""

    order: tuple[int, ...]
    split: tuple[int, ...]
    shares: tuple[int, ...]
    step_time_ns: int


@dataclass(frozen=True)
class Answer:
    """The best plan below the cutoff, if there is one; `complete`: nothing else is."""

    found: Dealing | None
    complete: bool


def best_dealing(
    lanes: Uneven,
    cutoff: int,
    gap: float = 0.0,
    stop: Stop = lambda: False,
    start: Left | None = None,
) -> Answer:
    """The best plan below the cutoff of a shape with exact ways, proved to the relative gap.

    start: what plans below the cutoff may use, if that is known.
    """
    found: Dealing | None = None
    target = below(cutoff, gap)
    stack = [start or lanes.everything(target)]
    while stack:
        if stop():
            return Answer(found, False)
        left = lanes.thinned(stack.pop(), target, stop)
        if left is None:
            continue
        parts = list(_parts(left))
        if parts:
            stack.extend(parts)
            continue
        dealing = _dealing(lanes, left, target)
        if dealing is None:
            continue
        if dealing.step_time_ns < target:
            found, target = dealing, below(dealing.step_time_ns, gap)
            stack.append(left)
        else:
            stack.extend(_hosted(lanes, left, dealing))
    return Answer(found, True)


def _parts(left: Left) -> Iterator[Left]:
    """One for every run of layers of the stage with the fewest of several; none if all have one."""
    sizes = [int(mask.sum()) for mask in left.stages.layers]
    several = [k for k, size in enumerate(sizes) if size > 1]
    if several:
        k = min(several, key=lambda k: sizes[k])
        for start, end in np.argwhere(left.stages.layers[k]).tolist():
            yield replace(left, stages=left.stages.with_layers(k, start, end))


def _hosted(lanes: Uneven, left: Left, dealing: Dealing) -> Iterator[Left]:
    """One for every choice of kinds of an undecided stage, of several in the dealing if it can."""
    number, kinds = lanes.places.number, range(len(lanes.places.kinds))
    undecided = [k for k, hosts in enumerate(left.stages.hosts) if hosts is None]
    mixed = [k for k in undecided if len(set(dealing.order[k * number : (k + 1) * number])) > 1]
    k = (mixed or undecided)[0]
    for size in range(1, min(len(kinds), number) + 1):
        for hosts in combinations(kinds, size):
            yield replace(left, stages=left.stages.with_hosts(k, hosts))


@dataclass(frozen=True)
class _Way:
    """The largest share of a lane, and the node group of each of its stages."""

    share: int
    groups: tuple[int, ...]


def _ways(lanes: Uneven, left: Left, cutoff: int) -> dict[Counts, _Way]:
    """The fastest ways with the largest shares of which one replica alone is below the cutoff."""
    found = {}
    for counts, least in left.needed.items():
        for share in range(left.largest[counts], least - 1, -1):
            problem = lanes.lane.problem(counts, left.stages, share)
            arcs = solve_split(problem, cutoff).arcs
            if arcs is not None:
                found[counts] = _Way(share, problem.order(arcs.tolist()))
                break
    return found


def _dealing(lanes: Uneven, left: Left, cutoff: int) -> Dealing | None:
    """The plan of one split whose replicas alone are below the cutoff; None if there is none."""
    ways = _ways(lanes, left, cutoff)
    shares = {counts: way.share for counts, way in ways.items()}
    if lanes.together(shares) < lanes.total:
        return None
    chosen = [ways[counts] for counts in dealt(shares, lanes.places.number, lanes.places.there)]
    order = tuple(
        group for stage in zip(*(way.groups for way in chosen), strict=True) for group in stage
    )
    split = (0, *(int(np.argwhere(mask)[0, 1]) for mask in left.stages.layers))
    each = [way.share for way in chosen for _ in range(lanes.places.width)]
    dealt_out = _trimmed(each, lanes.tables.num_micro_batches)
    costs = split_costs(lanes.tables, lanes.placer.costs(order), split, dealt_out)
    return Dealing(order, split, dealt_out, step_time_ns(costs))


def _trimmed(shares: list[int], total: int) -> tuple[int, ...]:
    """Shares that add up to `total`, the largest ones less by what is over."""
    left = list(shares)
    for _ in range(sum(left) - total):
        left[left.index(max(left))] -= 1
    return tuple(left)
