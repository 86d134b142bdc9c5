"""The log of closed shapes: that it is complete, and that its proofs hold.

A record is re-proved here where its argument is a closed form (memory, limit, work, pipeline).
Exhaustive searches (enumeration, cpsat) cannot be repeated without the code of the search: their
bounds are taken at their word, and `checked` says how many there are.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from formulations.instance import Instance
from solver.document import PlanDocument
from solver.result import Proof, Reason, ShapeRecord
from solver.verify.bounds import Prover
from solver.verify.figures import broken_limits
from solver.verify.findings import Findings
from solver.verify.pipeline import PipelineBound
from solver.verify.space import Key, Nodes, PlanSpace, key_of, price_usd_per_hour

#: Which arguments can stand behind which claim.
PROOFS: dict[Reason, tuple[Proof, ...]] = {
    "infeasible": ("memory", "limit", "enumeration", "cpsat"),
    "bounded": ("work", "pipeline", "enumeration", "cpsat"),
    "solved": ("enumeration", "cpsat"),
    "open": ("work", "pipeline", "enumeration", "cpsat"),
}
EXHAUSTIVE: tuple[Proof, ...] = ("enumeration", "cpsat")

#: Missing or surplus shapes that are named one by one.
EXAMPLES = 3


def objective_weight(instance: Instance, nodes_used: Nodes) -> float:
    """Objective per nanosecond of step time: 1, or the rent in USD per hour."""
    if instance.objective.minimize == "step_time":
        return 1.0
    return price_usd_per_hour(instance, nodes_used)


@dataclass(frozen=True)
class LogSummary:
    """What the log says of the whole plan space.

    bounds: lower bound of the objective of every record that leaves a plan possible.
    num_open: shapes that are not closed.
    """

    bounds: tuple[float, ...]
    num_open: int


def check_log(space: PlanSpace, document: PlanDocument, findings: Findings) -> LogSummary | None:
    """Checks the log of a document; None if it has none, so that nothing is proved."""
    if not document.closed_shapes and not document.closed_nodes and space_has_shapes(space):
        findings.note("no log of closed shapes: nothing is proved of other plans")
        return None
    prover = Prover(space)
    known = _check_coverage(space, document, findings)
    records = [
        (i, record)
        for i, record in enumerate(document.closed_shapes)
        if key_of(record.shape) in known
    ]
    for i, record in records:
        _check_record(prover, f"closed_shapes[{i}]", record, findings)
    _check_nodes_records(prover, document, findings)
    _note_proofs(document, findings)
    weighted = [(r.bound_ns, r.shape.nodes_used) for _, r in records if r.bound_ns is not None]
    weighted += [(r.bound_ns, r.nodes_used) for r in document.closed_nodes]
    return LogSummary(
        bounds=tuple(
            bound * objective_weight(space.instance, used)
            for bound, used in weighted
            if used in space.nodes
        ),
        num_open=sum(record.reason == "open" for record in document.closed_shapes),
    )


def space_has_shapes(space: PlanSpace) -> bool:
    """Whether the plan space holds any shape at all."""
    return any(True for used in space.nodes for _ in space.keys(used))


def _check_coverage(
    space: PlanSpace, document: PlanDocument, findings: Findings
) -> Collection[Key]:
    """Every shape once: by a record of its own or by that of its nodes; returns the former."""
    at_once = Counter(record.nodes_used for record in document.closed_nodes)
    for used in at_once.keys() - space.nodes:
        findings.refuse("closed_nodes", used, "nodes that the instance allows")
    expected = Counter(key for used in space.nodes - at_once.keys() for key in space.keys(used))
    found = Counter(key_of(record.shape) for record in document.closed_shapes)
    _name_some("closed_nodes: equal entries", [n for n in at_once if at_once[n] > 1], findings)
    _name_some("closed_shapes: missing shapes", (expected - found).keys(), findings)
    _name_some("closed_shapes: closed twice or outside", (found - expected).keys(), findings)
    return expected.keys()


def _name_some(field: str, items: Iterable[Key | Nodes], findings: Findings) -> None:
    names = sorted(map(str, items))
    shown = "; ".join(names[:EXAMPLES])
    more = f" and {len(names) - EXAMPLES} more" if len(names) > EXAMPLES else ""
    findings.require(not names, field, f"{shown}{more}", "every shape of the plan space once")


def _check_record(prover: Prover, field: str, record: ShapeRecord, findings: Findings) -> None:
    allowed = PROOFS[record.reason]
    text = f"one of {', '.join(allowed)} for {record.reason}"
    if not findings.require(record.proof in allowed, f"{field}.proof", record.proof, text):
        return
    if record.reason == "infeasible":
        text = "none, as there is no plan"
        findings.require(record.bound_ns is None, f"{field}.bound_ns", record.bound_ns, text)
        _check_infeasible(prover, field, record, findings)
    elif record.bound_ns is None:
        findings.refuse(f"{field}.bound_ns", None, "a bound in ns")
    elif record.proof not in EXHAUSTIVE:
        own = _closed_form_ns(prover, record, record.bound_ns)
        text = f"at most {own}, what the {record.proof} bound proves"
        findings.require(record.bound_ns <= own, f"{field}.bound_ns", record.bound_ns, text)


def _work_ns(prover: Prover, record: ShapeRecord) -> int:
    shape = record.shape
    return prover.work_bound_ns(shape.nodes_used, shape.tp, shape.micro_batch, shape.recompute)


def _closed_form_ns(prover: Prover, record: ShapeRecord, claimed: int) -> int:
    """Our own bound of the kind that a record names; of a pipeline at most what is claimed."""
    if record.proof == "work":
        return _work_ns(prover, record)
    return PipelineBound(prover, record.shape).bound_ns(claimed)


def _check_infeasible(prover: Prover, field: str, record: ShapeRecord, findings: Findings) -> None:
    if record.proof == "memory":
        text = "no split that fits the largest GPU used"
        found = "a split that fits"
        findings.require(prover.lacks_memory(record.shape), field, found, text)
    if record.proof == "limit":
        used = record.shape.nodes_used
        bound = max(_work_ns(prover, record), PipelineBound(prover, record.shape).bound_ns())
        broken = broken_limits(prover.instance, used, bound)
        text = "a bound beyond the limits on step time or cost"
        findings.require(bool(broken), field, f"a bound of {bound} ns", text)


def _check_nodes_records(prover: Prover, document: PlanDocument, findings: Findings) -> None:
    for i, record in enumerate(document.closed_nodes):
        if record.nodes_used not in prover.space.nodes:
            continue
        own = prover.nodes_bound_ns(record.nodes_used)
        if own is not None:
            field, text = f"closed_nodes[{i}].bound_ns", f"at most {own}, the least work bound"
            findings.require(record.bound_ns <= own, field, record.bound_ns, text)


def _note_proofs(document: PlanDocument, findings: Findings) -> None:
    counts = Counter(record.proof for record in document.closed_shapes)
    word = sum(counts[proof] for proof in EXHAUSTIVE)
    proved = {proof: n for proof, n in sorted(counts.items()) if proof not in EXHAUSTIVE}
    kinds = ", ".join(f"{proof} {n}" for proof, n in proved.items())
    findings.note(
        f"log of {len(document.closed_shapes)} shapes: {sum(proved.values())} re-proved"
        f"{f' ({kinds})' if kinds else ''}, {word} by the search's word"
    )
    if document.closed_nodes:
        findings.note(f"{len(document.closed_nodes)} choices of nodes re-proved (work)")
