"""Every plan that may be faster than a claimed bound, lane by lane, see `lanes`.

What the bounds do not strike out is halved by the layers of a stage, until one split is left. Then
the most micro-batches of every lane are found by simulation of all its ways. If these do not
suffice, no plan with that split is faster than claimed: a lane takes no longer alone, with tails
that its own nodes decide. If they do, that is a plan, worked out again by `recount`. If it is below
the claim that is refuted. Else its tails wait for nodes of other lanes: the plans are told apart by
all the groups that one more stage stands on, which decide its tail. Where it is so for all stages,
only links between zones can be to blame, and there is no opinion.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from formulations.plan import Plan, Shape, uniform_plan
from solver.simulate import step_time_ns
from solver.verify.bounds import Prover
from solver.verify.clock import Clock
from solver.verify.exhaust import Outcome, Trial
from solver.verify.lanes import Lanes, LanesLeft, Nodes, deal
from solver.verify.recount import Recount

#: With more ways of a lane through one split they are not simulated.
MOST_PATHS = 20_000


@dataclass(frozen=True)
class _Way:
    """The most micro-batches of a lane, and the node group of each stage of the fastest way."""

    micro_batches: int
    groups: tuple[int, ...]


def exhaust_lanes(prover: Prover, shape: Shape, below_ns: int, clock: Clock) -> Outcome | None:
    """Whether any plan of the shape has a step time below this; None without an opinion.

    Raises TimeUpError.
    """
    lanes = Lanes(prover, shape, clock)
    if not lanes.possible:
        return None
    stack = [lanes.everything(below_ns)]
    tried = False
    while stack:
        left = lanes.remaining(stack.pop(), below_ns)
        if left is None:
            continue
        tried = True
        if parts := _halves(left):
            stack.extend(parts)
            continue
        ways = _ways(lanes, left, below_ns)
        if ways is None:
            return None
        if lanes.needed({nodes: way.micro_batches for nodes, way in ways.items()}):
            plan, time_ns = _dealt(lanes, left, ways)
            if time_ns < below_ns:
                return Outcome(tried, plan, time_ns)
            if None not in left.hosts:
                return None
            stack.extend(_hosted(lanes, left))
    return Outcome(tried)


def _halves(left: LanesLeft) -> list[LanesLeft]:
    """The stage with most runs of layers cut in two; none if each has one."""
    k = max(range(len(left.runs)), key=lambda k: int(left.runs[k].sum()))
    first, last = np.nonzero(left.runs[k])
    parts = []
    for part in (slice(None, len(first) // 2), slice(len(first) // 2, None)):
        run = np.zeros_like(left.runs[k])
        run[first[part], last[part]] = True
        runs = (*left.runs[:k], run, *left.runs[k + 1 :])
        parts.append(replace(left, runs=runs))
    return parts if len(first) > 1 else []


def _hosted(lanes: Lanes, left: LanesLeft) -> Iterator[LanesLeft]:
    """By all sets of groups that the first undecided stage may stand on."""
    k = left.hosts.index(None)
    used = [j for j, count in enumerate(lanes.shape.nodes_used) if count]
    for size in range(1, min(len(used), lanes.number) + 1):
        for groups in combinations(used, size):
            hosts = (*left.hosts[:k], groups, *left.hosts[k + 1 :])
            yield replace(left, hosts=hosts, ways={})


def _ways(lanes: Lanes, left: LanesLeft, below_ns: int) -> dict[Nodes, _Way] | None:
    """By nodes, for lanes that have a way in time; None if there are too many to try."""
    found = {}
    for nodes, ways in left.ways.items():
        trial = Trial(lanes.refutation(nodes, left.hosts), below_ns)
        if trial.count(ways) > MOST_PATHS:
            return None
        plans = trial.plans(ways)
        for m in range(left.most[nodes], left.least[nodes] - 1, -1):
            times = trial.times(plans, np.arange(len(plans)), 0, m)
            best = int(times.argmin())
            if times[best] < below_ns:
                steps = zip(trial.refutation.steps, plans.steps[best].tolist(), strict=True)
                groups = tuple(int(step.group[index, 0]) for step, index in steps)
                found[nodes] = _Way(m, groups)
                break
    return found


def _dealt(lanes: Lanes, left: LanesLeft, ways: dict[Nodes, _Way]) -> tuple[Plan, int]:
    """The plan of the lanes that together can do most, and its step time."""
    chosen = _chosen(lanes, {nodes: way.micro_batches for nodes, way in ways.items()})
    rows = [ways[nodes].groups for nodes in chosen]
    order = [group for stage in zip(*rows, strict=True) for group in stage]
    ends = [0, *(int(np.flatnonzero(run.any(axis=0))[0]) for run in left.runs)]
    shares = [ways[nodes].micro_batches for nodes in chosen for _ in range(lanes.size)]
    total = lanes.prover.instance.workload.global_batch // lanes.shape.micro_batch
    while sum(shares) > total:
        shares[shares.index(max(shares))] -= 1
    plan = uniform_plan(lanes.prover.instance, lanes.shape, order, ends, shares)
    return plan, step_time_ns(Recount(lanes.prover.instance, plan).costs())


def _chosen(lanes: Lanes, most: dict[Nodes, int]) -> list[Nodes]:
    """The nodes of every lane in a dealing of all nodes with the largest sum."""
    sums, taken, chosen = deal(most, lanes.number), lanes.shape.nodes_used, []
    for known, before in zip(reversed(sums[1:]), reversed(sums[:-1]), strict=True):
        for nodes, own in most.items():
            rest = tuple(n - c for n, c in zip(taken, nodes, strict=True))
            if before.get(rest, -own - 1) + own == known[taken]:
                chosen.append(nodes)
                taken = rest
                break
    return chosen
