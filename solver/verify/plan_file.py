"""All checks of one plan file, in order: digest, plan, figures, log, claims.

Every figure of a plan is held against what the definition gives, with the limits it must keep;
status, lower bound and gap, which speak of all plans, against the log.
"""

from itertools import product

import numpy as np

from formulations.costs.plan_costs import plan_costs
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
LAYOUT = {"config", "node_order", "micro_batches", "layers", "recomputed"}
LAYOUT |= {"node", "gpus", "degrees"}


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
        findings.compare(name, getattr(document, name), figures[name], LAYOUT)
    for k, r in product(range(plan.config.pp), range(plan.config.dp)):
        need, room = int(costs.memory_bytes[k, r]), int(costs.limit_bytes[k, r])
        findings.at_most(f"replicas[{r}].stages[{k}].memory_bytes", need, room)
    limited = {
        "max_step_time_s": seconds(time_ns),
        "max_cost_usd_per_step": figures["cost_usd_per_step"],
    }
    for name, value in limited.items():
        limit = getattr(document.instance.limits, name)
        if limit is not None:
            findings.at_most(f"instance.limits.{name}", value, limit * (1 + NOISE))
    findings.note(f"step time, memory and {findings.num_figures} figures of the plan")
    return time_ns


def check_claims(
    document: PlanDocument,
    plan: Plan | None,
    time_ns: int,
    log: LogSummary | None,
    findings: Findings,
) -> None:
    """Status, bound and gap of a document; `time_ns` is the step time of its plan, if any."""
    instance, asked = document.instance, document.requested_gap
    findings.equal("minimize", document.minimize, instance.objective.minimize)
    findings.require(0 <= asked < 1, "requested_gap", asked, "0 or more, below 1")
    closed = document.termination is Termination.CLOSED
    findings.equal("termination is closed", closed, log is not None and not log.num_open)
    bounds = () if log is None else log.bounds
    if plan is None:
        # INFEASIBLE if no record leaves a plan possible, else UNKNOWN
        impossible = log is not None and not bounds
        status = Status.INFEASIBLE if impossible else Status.UNKNOWN
        claim = f"{status.value}, from the log"
        timed = instance.objective.minimize == "step_time"
        bound_ns = min(bounds, default=None) if timed else None
    else:
        weight = objective_weight(instance, plan.config)
        objective = time_ns * weight
        bound = None if log is None else min((*bounds, objective))
        # of the step time at the rent of the plan; none if money is free
        bound_ns = None if bound is None or not weight else bound / weight
        gap = None if bound is None else (objective - bound) / objective if objective else 0.0
        findings.close("gap", document.gap, gap)
        proved = gap is not None and gap <= asked + NOISE_NEAR_ZERO
        status = Status.OPTIMAL if proved else Status.FEASIBLE
        claim = f"{status.value}: gap {gap}, requested {asked}"
        text = f"{document.status.value} for {TARGETS[document.target].name}"
        findings.note(text if gap is None else f"{text}, gap {gap:.3%}")
        closing = objective * (1 - asked) * (1 - NOISE)
        for i, record in enumerate(document.closed_configs):
            field, record_ns = f"closed_configs[{i}]", record.bound_ns
            if record.config == plan.config:
                text = f"a bound of at most {time_ns}, the plan's own"
                holds = record_ns is not None and record_ns <= time_ns
                findings.require(holds, field, f"{record.reason}, bound {record_ns}", text)
            if record.reason == "bounded" and record_ns is not None:
                # closed by a bound only within the requested gap of the plan
                reaches = record_ns * objective_weight(instance, record.config) >= closing
                text = f"open, as its bound is below {closing}"
                findings.require(reaches, f"{field}.reason", "bounded", text)
    findings.require(document.status is status, "status", document.status.value, claim)
    bound_s = None if bound_ns is None else bound_ns / NANOSECONDS_PER_SECOND
    findings.close("lower_bound_s", document.lower_bound_s, bound_s)
    if document.status in (Status.OPTIMAL, Status.INFEASIBLE):
        num_open = "all" if log is None else log.num_open
        findings.require(
            not num_open, "status", f"{num_open} configurations open", "all configurations closed"
        )


def verify_document(document: PlanDocument, effort: Effort | None = None) -> Verification:
    """Checks every constraint, figure and claim of a plan file against its own instance."""

    def check(findings: Findings) -> None:
        space = PlanSpace(document.instance)
        check_target(document, findings)
        plan, time_ns = checked_plan(space, document, findings), 0
        if plan is not None:
            time_ns = check_figures(document, plan, findings)
        if document.config is None:
            for name in (*NO_FIGURES, "gap"):
                value, text = getattr(document, name), "nothing, as there is no plan"
                findings.require(value is None or value == (), name, value, text)
        log = check_log(space, document, findings, effort or Effort())
        if plan is not None or document.config is None:
            check_claims(document, plan, time_ns, log, findings)

    return verification(document, check)
