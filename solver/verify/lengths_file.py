"""All checks of one file of mixed lengths: its problem, groups, times, and that none is faster.

What strategies, groups and switches take is that of `formulations.lengths` and `.switching`; none
of the planner's choices is believed. In ascending order the least time is worked out again, from
the longest sequences down. In any order the bound is CP-SAT's word, and said to be.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from formulations.lengths.problem import Mixed
from formulations.lengths.strategy_time import NEVER, Numbers, strategy_times
from formulations.lengths.tour import (
    Group,
    Tour,
    back_ns,
    between_ns,
    groups_ns,
    hops,
    out_ns,
    step_ns,
)
from formulations.units import NANOSECONDS_PER_SECOND, seconds
from solver.lengths_document import GroupDocument, HopDocument, LengthsDocument, SingleDocument
from solver.result import Status, Termination, proves, relative_gap
from solver.verify.cascade import Effort
from solver.verify.clock import Clock, TimeUpError
from solver.verify.findings import Findings, Verification, verification
from solver.verify.lengths_strategies import check_strategies
from solver.verify.lengths_switches import check_switches, shortest_switches


def verify_lengths(document: LengthsDocument, effort: Effort | None = None) -> Verification:
    """Checks that every sequence is run, all times, and the bound.

    Uses no code of the planner. Never raises for a document that could be read.
    """
    return verification(document, lambda findings: _check(document, findings, effort or Effort()))


def _check(document: LengthsDocument, findings: Findings, effort: Effort) -> None:
    mixed = document.problem.mixed
    groups = tuple(Group(group.strategy, group.atoms) for group in document.groups)
    tour = Tour(document.anchor, groups)
    if not _check_tour(document, tour, findings):
        return
    _check_figures(document, mixed, tour, findings)
    _check_claims(document, findings)
    if effort.prove == "nothing" or findings.num_problems:
        return
    clock, plans = Clock(effort.time_limit_s), []
    try:
        plans = check_strategies(document, findings, clock)
        if plans:
            check_switches(document, hops(mixed.switching, tour), plans, findings)
        if findings.num_problems:
            return
        _prove(document, mixed, findings)
        if plans and not findings.num_problems:
            shortest = replace(mixed, switching=shortest_switches(document, plans, findings, clock))
            share = 100 * seconds(least_ascending_ns(shortest)) / document.step_time_s
            findings.note(
                "all switches, between what no plan goes below and the published rule; with the"
                f" former no step in ascending order is below {share:.4g} % of this one"
            )
    except TimeUpError:
        findings.reserve("what strategies and switches take, and the bound: no time was left")


def _check_tour(document: LengthsDocument, tour: Tour, findings: Findings) -> bool:
    """That strategies exist, and that every atom is in one group, as the order allows."""
    before, num_strategies = findings.num_problems, len(document.problem.strategies)
    visited = [group.strategy for group in tour.groups]
    for field, strategy in (("anchor", tour.anchor), *((f"groups: {q}", q) for q in visited)):
        findings.require(strategy < num_strategies, field, strategy, f"below {num_strategies}")
    listed = [k for group in tour.groups for k in group.atoms]
    findings.equal("groups: atoms", sorted(listed), list(range(len(document.problem.atoms))))
    again = any(a == b for a, b in pairwise(visited))
    findings.require(not again, "groups", visited, "no strategy twice in a row")
    rising = all(group.atoms == tuple(sorted(group.atoms)) for group in tour.groups)
    findings.require(rising, "groups: atoms", listed, "ascending in each group")
    once = len(set(visited)) == len(visited)
    allowed = "ascending" if document.order == "ascending" else "once each, or ascending"
    fits = listed == sorted(listed) or (document.order == "free" and once)
    findings.require(fits, "groups: order", visited, f"strategies {allowed}")
    findings.note(f"{len(document.problem.atoms):,} length classes, each run by one strategy")
    return findings.num_problems == before


def _check_figures(document: LengthsDocument, mixed: Mixed, tour: Tour, findings: Findings) -> None:
    """Content and time of every group, every switch, their sum, and the best single strategy."""
    total_ns, times = step_ns(mixed, tour), groups_ns(mixed, tour)
    for n, (group, time_ns) in enumerate(zip(tour.groups, times, strict=True)):
        if time_ns is None:
            allowed = "one that takes these lengths"
            findings.refuse(f"groups[{n}].strategy", group.strategy, allowed)
        else:
            expected = GroupDocument.of(mixed, group, time_ns)
            for field in GroupDocument.model_fields:
                found = getattr(document.groups[n], field)
                findings.equal(f"groups[{n}].{field}", found, getattr(expected, field))
    if total_ns is None:
        found = [(hop.leaves, hop.enters) for hop in document.switches]
        findings.refuse("switches", found, "possible ones")
        return
    switches = tuple(map(HopDocument.of, hops(mixed.switching, tour)))
    findings.equal("switches", document.switches, switches)
    findings.equal("step_time_s", document.step_time_s, seconds(total_ns))
    single = SingleDocument.of(mixed)
    same = document.single == single or (  # another one may be as good
        document.single is not None
        and single is not None
        and document.single.step_time_s == single.step_time_s == _alone_s(document, mixed)
    )
    findings.require(same, "single", document.single, repr(single))
    findings.note("rows, times of groups and switches")


def _alone_s(document: LengthsDocument, mixed: Mixed) -> float | None:
    """What the single strategy of the file takes for all lengths; None: it does not take them."""
    assert document.single is not None
    q = document.single.strategy
    if q >= len(mixed.strategies):
        return None
    atoms = tuple(range(len(mixed.atoms)))
    alone_ns = step_ns(mixed, Tour(q, (Group(q, atoms),)))
    return None if alone_ns is None else seconds(alone_ns)


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


def _prove(document: LengthsDocument, mixed: Mixed, findings: Findings) -> None:
    """That no step in ascending order is below the bound."""
    claimed_ns, least_ns = (
        round(document.lower_bound_s * NANOSECONDS_PER_SECOND),
        least_ascending_ns(mixed),
    )
    allowed = f"at most {seconds(least_ns)}, that of a step in ascending order"
    field, bound_s = "lower_bound_s", document.lower_bound_s
    if not findings.require(claimed_ns <= least_ns, field, bound_s, allowed):
        return
    findings.note("no step in ascending order is below the bound")
    if document.order == "free":
        findings.reserve(f"that no step in any order is below {bound_s:.6g} s: CP-SAT's word")


def least_ascending_ns(mixed: Mixed) -> int:
    """The least time of a step in ascending order, ns; `NEVER` or more if there is none.

    From the last sequences back to the first, with C[q, i, j] the time of strategy q for atoms
    i .. j - 1 and B[i, q, r] the least time in which atoms i and above are run, and the step ended,
    after q, with anchor r:

        A[i, q, r] = min over j > i of C[q, i, j] + B[j, q, r],                             (1)
        B[i, q, r] = min(min over q' != q of between[q, q'] + A[i, q', r],
                         back[q, r] + C[r, i, K] + once[r] for q != r),                     (2)
        B[K, q, r] = back[q, r] + once[r].
    """
    num_atoms, strategies = len(mixed.atoms), range(len(mixed.strategies))
    intervals = np.array([times.of_intervals() for times in strategy_times(mixed)])  # C
    once = np.array([strategy.anchor_ns for strategy in mixed.strategies], dtype=np.int64)
    out, between, back = (
        _table([[time_ns(mixed.switching, a, b) for b in strategies] for a in strategies])
        for time_ns in (out_ns, between_ns, back_ns)
    )
    np.fill_diagonal(between, NEVER)
    rest = np.full((num_atoms + 1, len(strategies), len(strategies)), NEVER)  # B
    rest[num_atoms] = back + once
    begun = rest[num_atoms]
    for i in reversed(range(num_atoms)):
        ahead = intervals[:, i, i + 1 :, None] + rest[i + 1 :].transpose(1, 0, 2)
        begun = np.minimum(ahead.min(axis=1), NEVER)  # (1) A[i], [q, r]
        onwards = (between[:, :, None] + begun[None]).min(axis=1)
        by_anchor = back + intervals[:, i, num_atoms] + once
        np.fill_diagonal(by_anchor, NEVER)
        rest[i] = np.minimum(np.minimum(onwards, by_anchor), NEVER)  # (2)
    alone = intervals[:, 0, num_atoms] + once
    return int(min((out.T + begun).min(), alone.min()))


def _table(times: list[list[int | None]]) -> Numbers:
    """Times of switches, `NEVER` where there is none."""
    return np.array([[NEVER if ns is None else ns for ns in row] for row in times], dtype=np.int64)
