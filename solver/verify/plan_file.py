"""All checks of one plan file, in order: digest, plan, figures, log, claims.

Every figure of a plan is held against what the definition gives, with the limits it must keep;
status, lower bound and gap, which speak of all plans, against the log.
"""

from itertools import product
from typing import Any

import numpy as np

from formulations.costs.plan_costs import plan_costs
from formulations.instance.record import Record
from formulations.instance.targets import TARGETS
from formulations.plan import Plan
from formulations.space import PlanSpace
from formulations.units import NANOSECONDS_PER_SECOND, seconds
from solver.document import PlanDocument
from solver.plan_figures import NO_FIGURES, plan_figures
from solver.result import Status, Termination, objective_weight
from solver.simulate import step_time_ns
from solver.verify.cascade import Effort
from solver.verify.feasibility import check_target, checked_plan
from solver.verify.findings import NOISE, NOISE_NEAR_ZERO, Findings, Verification, verification
from solver.verify.log import LogSummary, check_log

#: Those that are checked before there are costs, see `feasibility`.
LAYOUT = {
    "shape",
    "node_order",
    "micro_batches",
    "layers",
    "node",
    "gpus",
    "degrees",
    "recomputed",
}


def check_absent(document: PlanDocument, findings: Findings) -> None:
    """Requires that a document without a shape has no figures of a plan either."""
    for name in (*NO_FIGURES, "gap"):
        value = getattr(document, name)
        findings.require(value is None or value == (), name, value, "nothing, as there is no plan")


def check_figures(document: PlanDocument, plan: Plan, findings: Findings) -> int:
    """Compares every figure of the plan with its own; returns the step time in ns.

    Raises ValueError for negative times, which an instance with absurd figures has.
    """
    costs = plan_costs(document.instance, plan)
    tails = (costs.sync_ns, costs.gather_ns, costs.optimizer_ns, costs.embedding_ns)
    if min(int(np.min(times)) for times in tails) < 0:
        raise ValueError("times below 0")
    time_ns = step_time_ns(costs)
    figures = plan_figures(document.instance, plan, costs, time_ns)
    for name in sorted(figures.keys() - LAYOUT):
        _compare(name, getattr(document, name), figures[name], findings)
    for k, r in product(range(plan.shape.pp), range(plan.shape.dp)):
        need, limit = int(costs.memory_bytes[k, r]), int(costs.limit_bytes[k, r])
        field = f"replicas[{r}].stages[{k}].memory_bytes"
        findings.require(need <= limit, field, need, f"at most {limit}")
    _check_limits(document, time_ns, figures["cost_usd_per_step"], findings)
    findings.note(f"step time, memory and {findings.num_figures} figures of the plan")
    return time_ns


def _compare(field: str, found: Any, expected: Any, findings: Findings) -> None:
    """One problem for every figure in which two values differ; floats but for their noise."""
    if isinstance(expected, Record) and type(found) is type(expected):
        for name in sorted(type(expected).model_fields.keys() - LAYOUT):
            _compare(f"{field}.{name}", getattr(found, name), getattr(expected, name), findings)
    elif field.endswith(("replicas", "stages")) and len(found) == len(expected):
        for i, pair in enumerate(zip(found, expected, strict=True)):
            _compare(f"{field}[{i}]", *pair, findings)
    elif isinstance(expected, float) and found is not None:
        findings.close(field, found, expected)
    else:
        findings.equal(field, found, expected)


def _check_limits(document: PlanDocument, time_ns: int, cost_usd: Any, findings: Findings) -> None:
    """That the step keeps the limits on its time and its cost."""
    values = {"max_step_time_s": seconds(time_ns), "max_cost_usd_per_step": cost_usd}
    for name, value in values.items():
        limit = getattr(document.instance.limits, name)
        if limit is not None and value > limit * (1 + NOISE):
            findings.refuse(f"instance.limits.{name}", value, f"at most {limit}")


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
    claim = f"{document.status.value} for {TARGETS[document.target].name}"
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


def verify_document(document: PlanDocument, effort: Effort | None = None) -> Verification:
    """Checks every constraint, figure and claim of a plan file against its own instance.

    Uses no code of models, engines or search. Never raises for a document that could be read.
    """
    asked = effort or Effort()
    return verification(document, lambda findings: _check_content(document, findings, asked))


def _checked_plan(
    space: PlanSpace, document: PlanDocument, findings: Findings
) -> tuple[Plan, int] | None:
    """The plan of a document and its step time in ns; None without one that can be judged."""
    if document.shape is None:
        check_absent(document, findings)
        return None
    plan = checked_plan(space, document, findings)
    return (plan, check_figures(document, plan, findings)) if plan else None


def _check_content(document: PlanDocument, findings: Findings, effort: Effort) -> None:
    space = PlanSpace(document.instance)
    check_target(document, findings)
    found = _checked_plan(space, document, findings)
    log = check_log(space, document, findings, effort)
    if found is not None:
        check_claims(document, *found, log, findings)
    elif document.shape is None:
        check_claims(document, None, None, log, findings)
