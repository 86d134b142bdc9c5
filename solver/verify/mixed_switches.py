"""Whether switches between strategies of mixed lengths take what a file says.

Those of the step have switch files, which show that they are possible. Of the others, a time that
is too long would make a slower step the best one: times have to be between what no switch plan goes
below and the published rule (HotSPa, SOSP 2024), and it is said what no step goes below if every
switch were as short as that.
"""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Final, get_args

from formulations.plan import Plan
from formulations.units import seconds
from solver.lengths_document import LengthsDocument
from solver.verify.clock import Clock
from solver.verify.findings import Findings
from solver.verify.held_parts import Kind
from solver.verify.mixed_minimum import least_ascending_ns
from solver.verify.mixed_times import Hop, MixedTimes
from solver.verify.switch_bounds import SwitchBounds
from solver.verify.switch_file import verify_switch

Tables = Mapping[Kind, Sequence[Sequence[int | None]]]  #: [from][to]

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


def check_switches(
    document: LengthsDocument,
    hops: Sequence[Hop],
    plans: Sequence[Plan],
    findings: Findings,
) -> None:
    """Those of the step, by their files."""
    problem = document.problem
    findings.equal("problem.parameters_return", problem.parameters_return, False)
    asked = [(hop, kind) for hop in hops for kind in _KINDS if hop.moves in (kind, "both")]
    if not findings.equal("switch_plans: number", len(document.switch_plans), len(asked)):
        return
    for n, (hop, kind) in enumerate(asked):
        _check_file(document, n, hop, kind, plans, findings)
    findings.note(f"{len(asked)} switches of the step, sending by sending")


def _check_file(
    document: LengthsDocument,
    n: int,
    hop: Hop,
    kind: Kind,
    plans: Sequence[Plan],
    findings: Findings,
) -> None:
    """A switch file, that it is of these plans, and of the time in the table."""
    field, file, own = f"switch_plans[{n}]", document.switch_plans[n], document.plans[hop.leaves]
    findings.equal(f"{field}.moves", file.moves, kind)
    same = (file.before, file.after) == (plans[hop.leaves], plans[hop.enters])
    same &= (file.workload, file.cluster) == (own.instance.workload, own.instance.cluster)
    text = f"of plans {hop.leaves} and {hop.enters}"
    findings.require(same, f"{field}: plans, model and machines", "others", text)
    for problem in verify_switch(file).problems:
        findings.refuse(field, problem, "a switch file that verify accepts")
    known_ns = _tables(document)[kind][hop.leaves][hop.enters]
    findings.equal(f"{field}.time_s", file.time_s, seconds(known_ns or 0))


def _tables(document: LengthsDocument) -> Tables:
    problem = document.problem
    return {"parameters": problem.parameters_ns, "gradients": problem.gradients_ns}


def check_tables(
    document: LengthsDocument, plans: Sequence[Plan], findings: Findings, clock: Clock
) -> None:
    """All switches, by bounds, and what no step is below by the lower ones. Raises TimeUpError."""
    own = document.plans[0].instance
    bounds = SwitchBounds(own.cluster, own.workload)
    tables = {kind: [list(row) for row in rows] for kind, rows in _tables(document).items()}
    free = {kind: [[0] * len(plans)] * len(plans) for kind in _KINDS}
    if document.order == "ascending" and _least_share(document, free, clock) >= 1:
        findings.note("however short switches were, no step in ascending order were below this one")
        return
    for kind, table in tables.items():
        for a, b in permutations(range(len(plans)), 2):
            clock.check()
            least_ns, rule_ns = bounds.of(plans[a], plans[b], kind)
            found, field = table[a][b], f"problem.{kind}_ns[{a}][{b}]"
            fits = found is not None and least_ns <= found <= rule_ns
            findings.require(fits, field, found, f"{least_ns} to {rule_ns}")
            table[a][b] = least_ns
        itself = {table[a][a] for a in range(len(plans))}
        findings.equal(f"problem.{kind}_ns, to itself", itself, {0})
    share = 100 * _least_share(document, tables, clock)
    findings.note(
        "all switches, between what no plan goes below and the published rule; with the former no"
        f" step in ascending order is below {share:.4g} % of this one"
    )


def _least_share(document: LengthsDocument, tables: Tables, clock: Clock) -> float:
    """What no step in ascending order is below with these switches, as a share of this step."""
    own = {f"{kind}_ns": tuple(map(tuple, table)) for kind, table in tables.items()}
    times = MixedTimes(document.problem.model_copy(update=own))
    return seconds(int(least_ascending_ns(times, clock))) / document.step_time_s
