"""Every figure of a plan, held against what the definition gives, and the limits it must keep."""

from itertools import product
from typing import Any

import numpy as np

from formulations.costs.plan_costs import plan_costs
from formulations.instance.record import Record
from formulations.plan import Plan
from formulations.units import seconds
from solver.document import PlanDocument
from solver.plan_figures import plan_figures
from solver.simulate import step_time_ns
from solver.verify.findings import NOISE, Findings

#: Fields that describe a plan; without a plan they hold nothing.
PLAN_FIELDS = (
    "step_time_s",
    "critical_path",
    "rounding_error_s",
    "throughput_sequences_per_s",
    "model_flop_per_s_per_gpu",
    "mfu",
    "price_usd_per_hour",
    "cost_usd_per_step",
    "training_cost_usd",
    "renting",
    "evidence",
    "time_sources",
    "node_order",
    "idle_nodes",
    "replicas",
    "gap",
)

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
    for name in PLAN_FIELDS:
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
