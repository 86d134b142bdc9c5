"""All checks of one file of mixed lengths: its groups, switches and times, and that none is faster.

In ascending order the least time is worked out again, in any order too where strategies of atoms
are few enough to try all; else a bound of its own shows what it can, see `mixed_minimum`. What
strategies and switches take is counted again by `mixed_strategies`.
"""

from itertools import pairwise
from math import inf

from formulations.plan import Plan
from formulations.units import NANOSECONDS_PER_SECOND, seconds
from solver.lengths_document import GroupDocument, LengthsDocument
from solver.result import Status, Termination, proves, relative_gap
from solver.verify.cascade import Effort
from solver.verify.clock import Clock, TimeUpError
from solver.verify.findings import NOISE, Findings, Verification
from solver.verify.mixed_minimum import least_ascending_ns, least_tour_ns
from solver.verify.mixed_strategies import check_strategies
from solver.verify.mixed_switches import check_switches, check_tables
from solver.verify.mixed_times import MixedTimes
from solver.verify.sealed import verification


def verify_lengths(document: LengthsDocument, effort: Effort | None = None) -> Verification:
    """Checks that every sequence is run, all times, and the bound.

    Uses no code of the planner. Never raises for a document that could be read.
    """
    return verification(document, lambda own, findings: _check(own, findings, effort or Effort()))


def _check(document: LengthsDocument, findings: Findings, effort: Effort) -> None:
    times = MixedTimes(document.problem)
    _check_groups(document, findings)
    if findings.num_problems:
        return
    _check_times(document, times, findings)
    _check_single(document, times, findings)
    _check_claims(document, findings)
    if effort.prove == "nothing" or findings.num_problems:
        return
    clock, plans = Clock(effort.time_limit_s), list[Plan]()
    try:
        plans = check_strategies(document, findings, clock)
    except TimeUpError:
        findings.reserve("what strategies and switches take: no time was left")
    if plans:
        hops = times.hops(document.anchor, [group.strategy for group in document.groups])
        check_switches(document, hops, plans, findings)
    if not findings.num_problems:
        _prove(document, times, findings, effort, clock)
    if plans and not findings.num_problems:
        try:
            check_tables(document, plans, findings, clock)
        except TimeUpError:
            findings.reserve("switches that the step does not make: no time was left")


def _check_groups(document: LengthsDocument, findings: Findings) -> None:
    """That strategies exist, and that every atom is in one group, as the order allows."""
    atoms, count = document.problem.atoms, len(document.problem.strategies)
    findings.require(document.anchor < count, "anchor", document.anchor, f"below {count}")
    for n, group in enumerate(document.groups):
        field = f"groups[{n}].strategy"
        findings.require(group.strategy < count, field, group.strategy, f"below {count}")
    listed = [k for group in document.groups for k in group.atoms]
    findings.equal("groups: atoms", sorted(listed), list(range(len(atoms))))
    visited = [group.strategy for group in document.groups]
    again = any(a == b for a, b in pairwise(visited))
    findings.require(not again, "groups", visited, "no strategy twice in a row")
    ascending = listed == sorted(listed)
    once = len(set(visited)) == len(visited)
    allowed = "ascending" if document.order == "ascending" else "once each, or ascending"
    fits = ascending or (document.order == "free" and once)
    findings.require(fits, "groups: order", visited, f"strategies {allowed}")
    for n, group in enumerate(document.groups):
        field = f"groups[{n}].atoms"
        findings.equal(field, group.atoms, tuple(sorted(set(group.atoms))))
    findings.note(f"{len(atoms):,} length classes, each run by one strategy")


def _buckets(document: LengthsDocument, group: GroupDocument) -> tuple[tuple[int, int], ...]:
    """Thresholds of the runs of neighbouring atoms."""
    tokens = [0, *(atom.tokens for atom in document.problem.atoms)]
    starts = [k for k in group.atoms if k - 1 not in group.atoms]
    ends = [k for k in group.atoms if k + 1 not in group.atoms]
    return tuple((tokens[a], tokens[b + 1]) for a, b in zip(starts, ends, strict=True))


def _check_times(document: LengthsDocument, times: MixedTimes, findings: Findings) -> None:
    """Content and time of every group, every switch, and their sum."""
    atoms, total = document.problem.atoms, 0.0
    for n, group in enumerate(document.groups):
        field, own = f"groups[{n}]", times.strategies[group.strategy]
        findings.equal(f"{field}.buckets", group.buckets, _buckets(document, group))
        number = sum(atoms[k].count for k in group.atoms)
        findings.equal(f"{field}.sequences", group.sequences, number)
        tokens = sum(atoms[k].count * atoms[k].tokens for k in group.atoms)
        findings.equal(f"{field}.tokens", group.tokens, tokens)
        time_ns = own.set_ns(group.atoms)
        if time_ns is None:
            findings.refuse(f"{field}.strategy", group.strategy, "one that takes these lengths")
            return
        rows = () if own.measured else tuple(own.micro_batches(group.atoms, time_ns))
        findings.equal(f"{field}.micro_batches", group.micro_batches, rows)
        findings.equal(f"{field}.time_s", group.time_s, seconds(time_ns))
        total += time_ns
    hops = times.hops(document.anchor, [group.strategy for group in document.groups])
    total += times.once_ns(document.anchor) + sum(hop.time_ns for hop in hops)
    if total == inf:
        findings.refuse("switches", [(hop.leaves, hop.enters) for hop in hops], "possible ones")
        return
    found = [(one.leaves, one.enters, one.moves, one.time_s) for one in document.switches]
    expected = [(hop.leaves, hop.enters, hop.moves, hop.time_ns) for hop in hops]
    findings.equal("switches", found, [(*one, seconds(int(ns))) for *one, ns in expected])
    findings.equal("step_time_s", document.step_time_s, seconds(int(total)))
    findings.note("rows, times of groups and switches")


def _check_single(document: LengthsDocument, times: MixedTimes, findings: Findings) -> None:
    every = range(len(document.problem.atoms))
    alone = [times.set_ns(q, every) for q in range(len(times.strategies))]
    known = {q: ns + times.once_ns(q) for q, ns in enumerate(alone) if ns is not None}
    found, expected = document.single, min(known.values(), default=None)
    own = found and known.get(found.strategy)
    findings.equal("single", found and found.step_time_s, expected and seconds(expected))
    findings.equal("single.strategy", own, expected)


def _check_claims(document: LengthsDocument, findings: Findings) -> None:
    """Gap, status and termination, from step time and bound."""
    step_s, bound_s = document.step_time_s, document.lower_bound_s
    allowed = f"at most step_time_s, {step_s}"
    findings.require(bound_s <= step_s, "lower_bound_s", bound_s, allowed)
    gap = relative_gap(step_s, bound_s)
    findings.close("gap", document.gap, gap)
    status = Status.OPTIMAL if proves(gap, document.requested_gap) else Status.FEASIBLE
    findings.equal("status", document.status, status)
    closed = status is Status.OPTIMAL or document.termination is not Termination.CLOSED
    findings.require(closed, "termination", document.termination, "another, or a proof")


def _prove(
    document: LengthsDocument, times: MixedTimes, findings: Findings, effort: Effort, clock: Clock
) -> None:
    """That no step is below the bound."""
    claimed_ns = round(document.lower_bound_s * NANOSECONDS_PER_SECOND)
    try:
        least_ns = least_ascending_ns(times, clock)
        allowed = f"at most {seconds(int(least_ns))}, that of a step in ascending order"
        holds = claimed_ns <= least_ns
        if not findings.require(holds, "lower_bound_s", document.lower_bound_s, allowed):
            return
        findings.note("no step in ascending order is below the bound")
        if document.order == "ascending":
            return
        if effort.prove == "quick":
            findings.reserve("the bound of steps in any order")
            return
        tour_ns = least_tour_ns(times, claimed_ns, clock)
    except TimeUpError:
        findings.reserve("the bound: no time was left")
        return
    if claimed_ns <= tour_ns * (1 + NOISE):
        findings.note("no step in any order is below the bound")
        return
    shown = f"{tour_ns / NANOSECONDS_PER_SECOND:.6g} s"
    claimed = f"claimed are {document.lower_bound_s:.6g} s"
    findings.reserve(f"the bound of steps in any order: none is below {shown}, {claimed}")
