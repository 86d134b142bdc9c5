"""Whether switches between strategies of mixed lengths take what a file says.

Those of the step have switch files, which show that they are possible. Of the others, a time that
is too long would make a slower step the best one: times have to be between what no switch plan goes
below and the published rule (HotSPa, SOSP 2024).
"""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Final, get_args

from formulations.lengths.problem import Switching
from formulations.lengths.tour import Hop
from formulations.plan import Plan
from formulations.switching.port_bound import port_bound
from formulations.switching.published import published_plan
from formulations.switching.seats import Kind, layout_of
from formulations.switching.switch import switch_of
from formulations.units import seconds
from solver.lengths_document import LengthsDocument
from solver.verify.clock import Clock
from solver.verify.findings import Findings
from solver.verify.switch_file import verify_switch

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


def check_switches(
    document: LengthsDocument, asked: Sequence[Hop], plans: Sequence[Plan], findings: Findings
) -> None:
    """Those of the step: files of these plans, of the times in the tables."""
    pairs = [(hop, kind) for hop in asked for kind in _KINDS if hop.moves in (kind, "both")]
    if not findings.equal("switch_plans: number", len(document.switch_plans), len(pairs)):
        return
    for n, ((hop, kind), file) in enumerate(zip(pairs, document.switch_plans, strict=True)):
        field = f"switch_plans[{n}]"
        findings.equal(f"{field}.moves", file.moves, kind)
        same = (file.before, file.after) == (plans[hop.leaves], plans[hop.enters])
        leaves = document.plans[hop.leaves].instance  # the workload of a switch is that of `before`
        same &= (file.workload, file.cluster) == (leaves.workload, leaves.cluster)
        text = f"of plans {hop.leaves} and {hop.enters}"
        findings.require(same, f"{field}: plans, model and machines", "others", text)
        for problem in verify_switch(file).problems:
            findings.refuse(field, problem, "a switch file that verify accepts")
        time_ns = _tables(document)[kind][hop.leaves][hop.enters]
        findings.equal(f"{field}.time_s", file.time_s, seconds(time_ns or 0))
    findings.note(f"{len(pairs)} switches of the step, sending by sending")


def _tables(document: LengthsDocument) -> Mapping[Kind, Sequence[Sequence[int | None]]]:
    problem = document.problem
    return {"parameters": problem.parameters_ns, "gradients": problem.gradients_ns}


def shortest_switches(
    document: LengthsDocument, plans: Sequence[Plan], findings: Findings, clock: Clock
) -> Switching:
    """What no switch plan goes below, of every pair. Raises TimeUpError.

    Times in the tables have to be no less, and no more than by the published rule.
    """
    model = document.plans[0].instance
    layouts = [layout_of(model.cluster, plan) for plan in plans]
    shortest: dict[Kind, list[list[int]]] = {}
    for kind, table in _tables(document).items():
        shortest[kind] = [[0] * len(plans) for _ in plans]
        for a, b in permutations(range(len(plans)), 2):
            clock.check()
            switch = switch_of(model.cluster, model.workload, layouts[a], layouts[b], [kind])
            bound_ns, rule_ns = port_bound(switch).time_ns, switch.time_ns(published_plan(switch))
            time_ns, field = table[a][b], f"problem.{kind}_ns[{a}][{b}]"
            fits = time_ns is not None and bound_ns <= time_ns <= rule_ns
            findings.require(fits, field, time_ns, f"{bound_ns} to {rule_ns}")
            shortest[kind][a][b] = bound_ns
        itself = {table[a][a] for a in range(len(plans))}
        findings.equal(f"problem.{kind}_ns, to itself", itself, {0})
    rows = {kind: tuple(map(tuple, table)) for kind, table in shortest.items()}
    return Switching(rows["parameters"], rows["gradients"])
