"""Every plan that may be faster than a claimed bound, lane by lane, see `lanes`.

What is left is halved by the layers of a stage, until one split is left. Then the most micro-
batches of every way of a lane are found by simulation, and lanes are dealt out: B_l(n) is the most
that l lanes on nodes n do. If that is not enough, no plan with that split is faster than claimed.
If it is, that is a plan, worked out with all its costs. If it is below the claim that is refuted.
Else its tails wait for nodes of other lanes: the plans are told apart by all the groups that one
more stage stands on, which decide its tail. Where it is so for all stages, only links between zones
can be to blame, and there is no opinion.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from formulations.costs.plan_costs import plan_costs
from formulations.plan import Plan
from formulations.schedules import SCHEDULES
from solver.simulate import step_time_ns
from solver.verify.dealing import Nodes, best_deal, deal
from solver.verify.exhaust import Trial
from solver.verify.lanes import Lanes, LanesLeft
from solver.verify.simulated import Outcome
from solver.verify.ways import Left

#: With more ways of a lane through one split they are not tried.
MOST_PATHS = 50_000


@dataclass(frozen=True)
class _Way:
    """The most micro-batches of a lane, and the nodes that begin with each stage, by group."""

    micro_batches: int
    begins: tuple[Nodes, ...]


def exhaust_lanes(lanes: Lanes, everything: LanesLeft) -> Outcome | None:
    """Whether any plan of the shape is below the claim; None without an opinion.

    Raises TimeUpError.
    """
    if not lanes.alike:
        return None
    stack, tried = [everything], True
    while stack:
        left = lanes.remaining(stack.pop())
        if left is None:
            continue
        if parts := _halves(left):
            stack.extend(parts)
            continue
        if not _has_light_way(lanes, left):
            continue
        if not lanes.dealing.few or (ways := _ways(lanes, left)) is None:
            return None
        if _suffice(lanes, {nodes: way.micro_batches for nodes, way in ways.items()}):
            plan, time_ns = _dealt(lanes, left, ways)
            if time_ns < lanes.below_ns:
                return Outcome(tried, plan, time_ns)
            if None not in left.hosts:
                return None
            stack.extend(_hosted(lanes, left))
    return Outcome(tried)


def _halves(left: LanesLeft) -> list[LanesLeft]:
    """The stage with most runs of layers cut in two; none if each has one."""
    runs = left.runs
    k = max(range(len(runs)), key=lambda k: int(runs[k].sum()))
    first, last = np.nonzero(runs[k])
    parts = []
    for part in (slice(None, len(first) // 2), slice(len(first) // 2, None)):
        run = np.zeros_like(runs[k])
        run[first[part], last[part]] = True
        parts.append(left.with_runs(k, run))
    return parts if len(first) > 1 else []


def _hosted(lanes: Lanes, left: LanesLeft) -> Iterator[LanesLeft]:
    """By all sets of groups that the first undecided stage may stand on."""
    k = left.hosts.index(None)
    used = [j for j, count in enumerate(lanes.shape.nodes_used) if count]
    for size in range(1, min(len(used), lanes.number) + 1):
        for groups in combinations(used, size):
            hosts = (*left.hosts[:k], groups, *left.hosts[k + 1 :])
            yield replace(left, hosts=hosts)


def _has_light_way(lanes: Lanes, left: LanesLeft) -> bool:
    """Whether the light lane has a way in time, by simulation, whatever the weights.

    True where there are too many ways to try.
    """
    return all(
        any(
            trial.count(ways) > MOST_PATHS
            or max(_most_of_ways(lanes, trial, ways), default=0) >= question.needed
            for question, ways in lanes.light_ways(left, weights)
            for trial in [Trial(question, lanes.below_ns)]
        )
        for weights in lanes.light.weightings
    )


def _most_of_ways(lanes: Lanes, trial: Trial, ways: Left) -> list[int]:
    """Of every complete way the most micro-batches below the claim, if fewer may be slower too."""
    plans = trial.plans(ways)
    high = trial.most(plans, ways, 0, np.full(len(plans), lanes.largest))
    low = np.zeros_like(high)
    grows = not lanes.even and SCHEDULES[lanes.shape.schedule].prefixes
    while (low < high).any():
        lanes.clock.check()
        middle = (low + high + 1) // 2 if grows else high
        for m in np.unique(middle[low < high]).tolist():
            rows = np.flatnonzero((middle == m) & (low < high))
            slow = trial.times.of(plans.take(rows), 0, m) >= trial.below_ns
            high[rows[slow]], low[rows[~slow]] = (0 if lanes.even else m - 1), m
    most: list[int] = low.tolist()
    return most


def _ways(lanes: Lanes, left: LanesLeft) -> dict[Nodes, _Way] | None:
    """By nodes, for lanes that have a way in time; None if there are too many to try."""
    question = lanes.exact(left.hosts)
    everything = question.everything(lanes.below_ns, left.allowed)
    ways = question.remaining(everything, lanes.below_ns)
    if ways is None:
        return {}
    trial = Trial(question, lanes.below_ns)
    if trial.count(ways) > MOST_PATHS:
        return None
    found: dict[Nodes, _Way] = {}
    rows = zip(trial.plans(ways).steps.T.tolist(), _most_of_ways(lanes, trial, ways), strict=True)
    for own, most in rows:
        begins = [step.begins[x] for step, x in zip(question.stages.graph.built, own, strict=True)]
        taken = Counter(group for groups in begins for group in groups)
        nodes = tuple(taken[j] for j in range(len(lanes.shape.nodes_used)))
        if most and (nodes not in found or found[nodes].micro_batches < most):
            found[nodes] = _Way(most, tuple(begins))
    return found


def _dealt(lanes: Lanes, left: LanesLeft, ways: dict[Nodes, _Way]) -> tuple[Plan, int]:
    """The plan of the lanes that together can do most, and its step time."""
    most = {nodes: way.micro_batches for nodes, way in ways.items()}
    chosen = best_deal(most, lanes.number, lanes.shape.nodes_used)
    rows = [ways[nodes].begins for nodes in chosen]
    order = [j for stage in zip(*rows, strict=True) for groups in stage for j in groups]
    ends = [0, *(int(np.flatnonzero(run.any(axis=0))[0]) for run in left.runs)]
    shares = [ways[nodes].micro_batches for nodes in chosen for _ in range(lanes.size)]
    total = lanes.prover.instance.workload.global_batch // lanes.shape.micro_batch
    while sum(shares) > total:
        shares[shares.index(max(shares))] -= 1
    plan = lanes.prover.plan(lanes.shape, order, ends, shares)
    return plan, step_time_ns(plan_costs(lanes.prover.instance, plan))


def _suffice(lanes: Lanes, most: Mapping[Nodes, int]) -> bool:
    """Whether lanes that do so much, by their nodes, do all."""
    dealt = deal(most, lanes.number, lanes.shape.nodes_used)[-1]
    return bool(dealt.flat[-1] >= lanes.total)
