"""One record of the log: whether its claim holds, and which argument shows it here.

Where a record names a closed form (memory, limit, work, pipeline) the argument must hold.
Exhaustive searches (enumeration, cpsat, milp) cannot be repeated without the code of the search;
many of their results follow from a closed form all the same, the rest are taken at the search's
word.
"""

from typing import Literal

from solver.result import Proof, Reason, ShapeRecord
from solver.verify.bounds import Prover
from solver.verify.figures import broken_limits
from solver.verify.findings import Findings
from solver.verify.pipeline import PipelineBound

#: What shows a claim here; "word" is the search's.
Argument = Literal["memory", "limit", "work", "pipeline", "word"]

#: Which proofs can stand behind which claim.
PROOFS: dict[Reason, tuple[Proof, ...]] = {
    "infeasible": ("memory", "limit", "enumeration", "cpsat", "milp"),
    "bounded": ("work", "pipeline", "enumeration", "cpsat", "milp"),
    "solved": ("enumeration", "cpsat", "milp"),
    "open": ("work", "pipeline", "enumeration", "cpsat", "milp"),
}


def check_record(prover: Prover, field: str, record: ShapeRecord, findings: Findings) -> Argument:
    """Checks one record of the plan space; returns the argument that holds."""
    allowed = PROOFS[record.reason]
    text = f"one of {', '.join(allowed)} for {record.reason}"
    if not findings.require(record.proof in allowed, f"{field}.proof", record.proof, text):
        return "word"
    if record.reason == "infeasible":
        text = "none, as there is no plan"
        findings.require(record.bound_ns is None, f"{field}.bound_ns", record.bound_ns, text)
        return _infeasible(prover, field, record, findings)
    if record.bound_ns is None:
        findings.refuse(f"{field}.bound_ns", None, "a bound in ns")
        return "word"
    return _bounded(prover, field, record, record.bound_ns, findings)


def _work_ns(prover: Prover, record: ShapeRecord) -> int:
    shape = record.shape
    return prover.work_bound_ns(shape.nodes_used, shape.tp, shape.micro_batch, shape.recompute)


def _bounded(
    prover: Prover, field: str, record: ShapeRecord, claimed_ns: int, findings: Findings
) -> Argument:
    """The claimed bound against our own of the same kind; for a search, the best we have."""
    work = _work_ns(prover, record)
    if record.proof == "work":
        text = f"at most {work}, the work bound"
        findings.require(claimed_ns <= work, f"{field}.bound_ns", claimed_ns, text)
        return "work"
    if claimed_ns <= work and record.proof != "pipeline":
        return "work"
    pipeline = PipelineBound(prover, record.shape).bound_ns(claimed_ns)
    if record.proof == "pipeline":
        text = f"at most {pipeline}, the pipeline bound"
        findings.require(claimed_ns <= pipeline, f"{field}.bound_ns", claimed_ns, text)
        return "pipeline"
    return "pipeline" if claimed_ns <= pipeline else "word"


def _infeasible(prover: Prover, field: str, record: ShapeRecord, findings: Findings) -> Argument:
    """Memory first, then the limits on step time and cost."""
    lacking = prover.lacks_memory(record.shape)
    if record.proof == "memory":
        text = "no split that fits the largest GPU used"
        findings.require(lacking, field, "a split that fits", text)
        return "memory"
    bound = max(_work_ns(prover, record), PipelineBound(prover, record.shape).bound_ns())
    broken = bool(broken_limits(prover.instance, record.shape.nodes_used, bound))
    if record.proof == "limit":
        text = "a bound beyond the limits on step time or cost"
        findings.require(broken, field, f"a bound of {bound} ns", text)
        return "limit"
    return "memory" if lacking else "limit" if broken else "word"
