"""Status, lower bound and gap: what the document claims of all plans, held against its log."""

from formulations.instance.target import TARGET_NAMES
from formulations.plan import Plan
from formulations.units import NANOSECONDS_PER_SECOND
from solver.document import PlanDocument
from solver.result import Status, Termination, objective_weight
from solver.verify.certificate import LogSummary
from solver.verify.findings import NOISE, NOISE_NEAR_ZERO, Findings


def check_claims(
    document: PlanDocument,
    plan: Plan | None,
    time_ns: int | None,
    log: LogSummary | None,
    findings: Findings,
) -> None:
    """Status, bound and gap of a document; `time_ns` is the step time of its plan, if any."""
    findings.equal("minimize", document.minimize, document.instance.objective.minimize)
    allowed = 0 <= document.requested_gap < 1
    findings.require(allowed, "requested_gap", document.requested_gap, "0 or more, below 1")
    ended = document.termination is Termination.CLOSED
    findings.equal("termination is closed", ended, log is not None and not log.num_open)
    if plan is not None and time_ns is not None:
        _check_own_record(document, plan, time_ns, findings)
        _check_with_plan(document, plan, time_ns, log, findings)
    else:
        _check_without_plan(document, log, findings)


def _check_own_record(document: PlanDocument, plan: Plan, time_ns: int, findings: Findings) -> None:
    """The record of the plan's own shape leaves the plan possible."""
    own = plan.shape
    for i, record in enumerate(document.closed_shapes):
        if record.shape == own:
            field, text = f"closed_shapes[{i}]", f"a bound of at most {time_ns}, the plan's own"
            holds = record.bound_ns is not None and record.bound_ns <= time_ns
            found = f"{record.reason}, bound {record.bound_ns}"
            findings.require(holds, field, found, text)


def _check_with_plan(
    document: PlanDocument,
    plan: Plan,
    time_ns: int,
    log: LogSummary | None,
    findings: Findings,
) -> None:
    weight = objective_weight(document.instance, plan.shape)
    objective = time_ns * weight
    bound = None if log is None else min((*log.bounds, objective))
    findings.close("lower_bound_s", document.lower_bound_s, _in_seconds(bound, weight))
    gap = None if bound is None else (objective - bound) / objective if objective else 0.0
    findings.close("gap", document.gap, gap)
    proved = gap is not None and gap <= document.requested_gap + NOISE_NEAR_ZERO
    status = Status.OPTIMAL if proved else Status.FEASIBLE
    text = f"{status.value}: gap {gap}, requested {document.requested_gap}"
    findings.require(document.status is status, "status", document.status.value, text)
    claim = f"{document.status.value} for {TARGET_NAMES[document.target]}"
    findings.note(claim if gap is None else f"{claim}, gap {gap:.3%}")
    _check_closed(document, log, findings)
    _check_bounded(document, objective, findings)


def _check_bounded(document: PlanDocument, objective: float, findings: Findings) -> None:
    """A shape is closed by a bound only if that is within the requested gap of the plan."""
    least = objective * (1 - document.requested_gap) * (1 - NOISE)
    for i, record in enumerate(document.closed_shapes):
        if record.reason == "bounded" and record.bound_ns is not None:
            bound = record.bound_ns * objective_weight(document.instance, record.shape)
            text = f"open, as its bound is below {least}"
            findings.require(bound >= least, f"closed_shapes[{i}].reason", "bounded", text)


def _in_seconds(bound: float | None, weight: float) -> float | None:
    """Bound of the step time at the rent of the plan; None if money is free."""
    return None if bound is None or not weight else bound / weight / NANOSECONDS_PER_SECOND


def _check_closed(document: PlanDocument, log: LogSummary | None, findings: Findings) -> None:
    if document.status in (Status.OPTIMAL, Status.INFEASIBLE):
        num_open = "all" if log is None else log.num_open
        findings.require(not num_open, "status", f"{num_open} shapes open", "all shapes closed")


def _check_without_plan(document: PlanDocument, log: LogSummary | None, findings: Findings) -> None:
    """No plan: INFEASIBLE if no record leaves one possible, else UNKNOWN."""
    bounds = () if log is None else log.bounds
    impossible = log is not None and not bounds
    status = Status.INFEASIBLE if impossible else Status.UNKNOWN
    text = f"{status.value}, from the log"
    findings.require(document.status is status, "status", document.status.value, text)
    _check_closed(document, log, findings)
    timed = document.instance.objective.minimize == "step_time"
    bound = min(bounds, default=None) if timed else None
    findings.close("lower_bound_s", document.lower_bound_s, _in_seconds(bound, 1.0))
