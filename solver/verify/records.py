"""One record of the log: whether its claim holds, and which argument shows it here.

Where a record names a closed form (memory, limit, work, filling, packing, pipeline) the argument
must hold.
Exhaustive searches (enumeration, cpsat, milp) cannot be repeated without the code of the search;
many of their results follow from a closed form all the same, the rest are taken at the search's
word.
"""

from typing import Literal

from formulations.instance import Instance
from formulations.plan import Shape
from solver.result import Proof, Reason, ShapeRecord
from solver.verify.bounds import Prover
from solver.verify.chain import Chain
from solver.verify.figures import shortest_refused_ns
from solver.verify.filling import FillingBound
from solver.verify.findings import Findings
from solver.verify.lanes import FEW_STAGES, Lanes
from solver.verify.packing import PackingBound
from solver.verify.pipeline import PipelineBound
from solver.verify.rounds import Refutation
from solver.verify.work import work_bound_ns

#: More than any step time: no plan is faster if none fits.
ANY_TIME_NS = 1 << 56

#: What shows a claim here; "word" is the search's.
Argument = Literal["memory", "limit", "work", "filling", "packing", "pipeline", "word"]

#: Which proofs can stand behind which claim.
PROOFS: dict[Reason, tuple[Proof, ...]] = {
    "infeasible": ("memory", "limit", "enumeration", "cpsat", "milp"),
    "bounded": ("work", "filling", "packing", "pipeline", "enumeration", "cpsat", "milp"),
    "solved": ("enumeration", "cpsat", "milp"),
    "open": ("work", "filling", "packing", "pipeline", "enumeration", "cpsat", "milp"),
}


def claimed_ns(instance: Instance, record: ShapeRecord) -> int:
    """No plan of the shape has a shorter step than this, a record claims.

    Only plans within the limits on step time and cost count.
    """
    refused_ns = shortest_refused_ns(instance, record.shape.nodes_used)
    known = (ns for ns in (record.bound_ns, refused_ns) if ns is not None)
    return min(known, default=ANY_TIME_NS)


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


def refuted(prover: Prover, shape: Shape, below_ns: int) -> bool:
    """Whether a pipeline argument shows that no plan of the shape is faster than this.

    All node orders at once where they are not too many, else lanes on nodes of one size where that
    takes no seconds, else latency plus bottleneck alone.
    """
    trial_ns = min(below_ns, ANY_TIME_NS)
    question = Refutation(prover, shape)
    if question.refutes(trial_ns):
        return True
    lanes = Lanes(prover, shape)
    few = question.graph.steps is None and lanes.num_stages <= FEW_STAGES
    if few and lanes.refutes(trial_ns):
        return True
    return PipelineBound(prover, shape).bound_ns(trial_ns) >= below_ns


def _bounded(
    prover: Prover, field: str, record: ShapeRecord, claimed_ns: int, findings: Findings
) -> Argument:
    """The claimed bound against our own of the same kind; for a search, the best we have."""
    chain = Chain(prover, record.shape)
    work = work_bound_ns(chain)
    if record.proof == "work":
        text = f"at most {work}, the work bound"
        findings.require(claimed_ns <= work, f"{field}.bound_ns", claimed_ns, text)
        return "work"
    named = record.proof in ("filling", "packing", "pipeline")
    if claimed_ns <= work and not named:
        return "work"
    filling = FillingBound(chain).bound_ns()
    if record.proof == "filling":
        text = f"at most {filling}, the filling bound"
        findings.require(claimed_ns <= filling, f"{field}.bound_ns", claimed_ns, text)
    if record.proof == "filling" or (claimed_ns <= filling and not named):
        return "filling"
    packed = record.proof != "pipeline" and PackingBound(chain).refutes(claimed_ns)
    if record.proof == "packing":
        text = "a bound below which the stages cannot hold all blocks"
        findings.require(packed, f"{field}.bound_ns", claimed_ns, text)
    if record.proof == "packing" or packed:
        return "packing"
    shown = refuted(prover, record.shape, claimed_ns)
    if record.proof == "pipeline":
        text = "a bound that the pipelines of some node order do not undercut"
        findings.require(shown, f"{field}.bound_ns", claimed_ns, text)
    return "pipeline" if shown or record.proof == "pipeline" else "word"


def _infeasible(prover: Prover, field: str, record: ShapeRecord, findings: Findings) -> Argument:
    """Memory first, then the limits on step time and cost."""
    shape = record.shape
    lacking = prover.lacks_memory(shape)
    if record.proof == "memory":
        text = "no split that fits the largest GPU used"
        findings.require(lacking, field, "a split that fits", text)
        return "memory"
    refused_ns = shortest_refused_ns(prover.instance, shape.nodes_used)
    chain = Chain(prover, shape)
    broken = refused_ns is not None and (
        work_bound_ns(chain) >= refused_ns
        or FillingBound(chain).bound_ns() >= refused_ns
        or PackingBound(chain).refutes(refused_ns)
        or refuted(prover, shape, refused_ns)
    )
    if record.proof == "limit":
        text = "a bound beyond the limits on step time or cost"
        findings.require(broken, field, "a plan that may keep the limits", text)
        return "limit"
    if lacking or refuted(prover, shape, ANY_TIME_NS):
        return "memory"
    return "limit" if broken else "word"
