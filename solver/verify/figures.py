"""Every figure of a plan, worked out again from its groups, and the limits that it must keep."""

from bisect import bisect_left
from collections import Counter
from itertools import pairwise, product

import numpy as np

from formulations.costs.plan_costs import PlanCosts, rounding_error_ns
from formulations.instance import Instance
from formulations.instance.instance import gpu_evidence
from formulations.plan import Plan
from formulations.schedules import SCHEDULES
from formulations.space import Nodes
from formulations.units import NANOSECONDS_PER_SECOND, seconds
from solver.document import PlanDocument, StepDocument
from solver.simulate import critical_path, step_time_ns
from solver.verify.findings import NOISE, Findings
from solver.verify.longest import check_longest
from solver.verify.recount import Recount
from solver.verify.renting import check_renting, price_usd_per_hour

SECONDS_PER_HOUR = 3600

#: Part of the step that every kind of operation on the critical path counts for.
PATH_FIELDS = {
    "sync": "gradient_sync_s",
    "gather": "gradient_sync_s",
    "embedding": "embedding_sync_s",
    "optimizer": "optimizer_s",
}

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


def check_absent(document: PlanDocument, findings: Findings) -> None:
    """Requires that a document without a shape has no figures of a plan either."""
    for name in PLAN_FIELDS:
        value = getattr(document, name)
        findings.require(value is None or value == (), name, value, "nothing, as there is no plan")


def cost_usd(instance: Instance, nodes_used: Nodes, time_ns: int) -> float:
    """Rent of the nodes for the time of one step."""
    return price_usd_per_hour(instance, nodes_used) * seconds(time_ns) / SECONDS_PER_HOUR


def broken_limits(instance: Instance, nodes_used: Nodes, time_ns: int) -> list[tuple[str, float]]:
    """Limits that a step of this length breaks: name and what it comes to."""
    limits = instance.limits
    values = [
        ("max_step_time_s", limits.max_step_time_s, seconds(time_ns)),
        (
            "max_cost_usd_per_step",
            limits.max_cost_usd_per_step,
            cost_usd(instance, nodes_used, time_ns),
        ),
    ]
    return [
        (name, value)
        for name, limit, value in values
        if limit is not None and value > limit * (1 + NOISE)
    ]


def shortest_refused_ns(instance: Instance, nodes_used: Nodes) -> int | None:
    """Shortest step that breaks a limit on time or cost; None if there is no such limit."""
    limits, price = instance.limits, price_usd_per_hour(instance, nodes_used)
    longest_s = [] if limits.max_step_time_s is None else [limits.max_step_time_s]
    if limits.max_cost_usd_per_step is not None and price > 0:
        longest_s.append(limits.max_cost_usd_per_step * SECONDS_PER_HOUR / price)
    if not longest_s:
        return None
    about_ns = min(longest_s) * NANOSECONDS_PER_SECOND
    near = range(int(about_ns * (1 - 4 * NOISE)), int(about_ns * (1 + 8 * NOISE)) + 3)
    return near[bisect_left(near, 1, key=lambda ns: len(broken_limits(instance, nodes_used, ns)))]


def check_figures(document: PlanDocument, plan: Plan, findings: Findings) -> int:
    """Compares every figure of the plan with one of our own; returns the step time in ns."""
    check_longest(document.instance, plan.shape)
    recount = Recount(document.instance, plan)
    costs = recount.costs()
    time_ns = step_time_ns(costs)
    findings.equal("step_time_s", document.step_time_s, seconds(time_ns))
    _check_path(document, costs, time_ns, findings)
    evidence = gpu_evidence(document.instance, plan.shape.nodes_used)
    findings.equal("evidence", document.evidence, evidence)
    findings.equal("time_sources", document.time_sources, recount.origins)
    layers = len(document.instance.workload.layers)
    rounding_ns = rounding_error_ns(plan.shape, layers, max(costs.micro_batches))
    findings.equal("rounding_error_s", document.rounding_error_s, seconds(rounding_ns))
    _check_stages(document, recount, costs, findings)
    _check_money(document, plan, time_ns, findings)
    _check_speed(document, plan, time_ns, findings)
    _check_memory(costs, findings)
    for name, value in broken_limits(document.instance, plan.shape.nodes_used, time_ns):
        limit = getattr(document.instance.limits, name)
        findings.refuse(f"instance.limits.{name}", value, f"at most {limit}")
    findings.note(f"step time, memory and {findings.num_figures} figures of the plan")
    return time_ns


def _check_path(document: PlanDocument, costs: PlanCosts, time_ns: int, findings: Findings) -> None:
    """The parts of the step, which the operations of the critical path and its gaps add up to.

    Raises ValueError for negative times, which an instance with absurd figures has.
    """
    tail = (costs.sync_ns, costs.gather_ns, costs.optimizer_ns, costs.embedding_ns)
    if min(int(np.min(times)) for times in tail) < 0:
        raise ValueError("times below 0")
    path = critical_path(costs)
    parts = Counter({"transfers_s": sum(b.start_ns - a.end_ns for a, b in pairwise(path))})
    for one in path:
        parts[PATH_FIELDS.get(one.kind, "compute_s")] += one.end_ns - one.start_ns
    findings.equal("critical_path: sum", parts.total(), time_ns)
    for name in StepDocument.model_fields:
        found = getattr(document.critical_path, name, None)
        findings.equal(f"critical_path.{name}", found, seconds(parts[name]))


def _check_speed(document: PlanDocument, plan: Plan, time_ns: int, findings: Findings) -> None:
    """Model FLOPs per GPU and over all peaks, GPU by GPU; nodes that do nothing."""
    cluster = document.instance.cluster
    workload = document.instance.on(plan.shape.nodes_used).workload
    used = [cluster.groups[cluster.node_groups[node]] for node in plan.node_order]
    peaks = [g.gpu.peak_flops[workload.precision] for g in used for _ in range(g.gpus_per_node)]
    passes = 3 * workload.global_batch  # forward, and backward of twice the FLOPs
    speed = sum(layer.forward_flops for layer in workload.layers) * passes / seconds(time_ns)
    found = document.model_flop_per_s_per_gpu
    findings.close("model_flop_per_s_per_gpu", found, speed / len(peaks))
    findings.close("mfu", document.mfu, speed / sum(peaks))
    idle = tuple(name for name in cluster.node_names if name not in document.node_order)
    findings.equal("idle_nodes", document.idle_nodes, idle)


def _check_stages(
    document: PlanDocument, recount: Recount, costs: PlanCosts, findings: Findings
) -> None:
    cluster = document.instance.cluster
    gpu_types = {
        name: cluster.groups[j].gpu.name
        for name, j in zip(cluster.node_names, cluster.node_groups, strict=True)
    }
    pp, last = costs.shape.pp, costs.shape.num_stages - 1
    put_off = SCHEDULES[costs.shape.schedule].splits_backward
    for s, r in product(range(costs.shape.num_stages), range(costs.shape.dp)):
        stage, k = document.replicas[r].stages[s], s % pp
        sync_ns = costs.sync_ns[k] + costs.gather_ns[k]
        expected = {
            "gpu_type": gpu_types[stage.node],
            "forward_s": seconds(int(costs.forward_ns[s, r])),
            "backward_s": seconds(int(costs.backward_ns[s, r])),
            "weight_gradient_s": seconds(int(costs.weight_ns[s, r])) if put_off else 0.0,
            "send_forward_s": seconds(int(costs.send_ns[s, r])) if s < last else 0.0,
            "send_backward_s": seconds(int(costs.send_ns[s - 1, r])) if s > 0 else 0.0,
            "gradient_sync_s": seconds(int(sync_ns)),
            "embedding_sync_s": seconds(costs.embedding_ns) if k in (0, pp - 1) else 0.0,
            "optimizer_s": seconds(int(costs.optimizer_ns[k])),
            "memory_bytes": int(costs.memory_bytes[k, r]),
            "memory_limit_bytes": int(costs.limit_bytes[k, r]),
        }
        for name, value in expected.items():
            findings.equal(f"replicas[{r}].stages[{s}].{name}", getattr(stage, name), value)
        for name, size in recount.memory.parts(k, r).items():
            field = f"replicas[{r}].stages[{s}].memory.{name}"
            findings.equal(field, getattr(stage.memory, name), size)


def _check_money(document: PlanDocument, plan: Plan, time_ns: int, findings: Findings) -> None:
    instance, used = document.instance, plan.shape.nodes_used
    own = check_renting(document, used, time_ns, findings)
    rent = price_usd_per_hour(instance, used) if own is None else own.usd_per_hour
    cost = rent * seconds(time_ns) / SECONDS_PER_HOUR
    steps = instance.objective.steps
    speed = instance.workload.global_batch / seconds(time_ns)
    findings.close("throughput_sequences_per_s", document.throughput_sequences_per_s, speed)
    findings.close("price_usd_per_hour", document.price_usd_per_hour, rent)
    findings.close("cost_usd_per_step", document.cost_usd_per_step, cost)
    total = None if steps is None else cost * steps
    findings.close("training_cost_usd", document.training_cost_usd, total)


def _check_memory(costs: PlanCosts, findings: Findings) -> None:
    for k, r in product(range(costs.shape.pp), range(costs.shape.dp)):
        need, limit = int(costs.memory_bytes[k, r]), int(costs.limit_bytes[k, r])
        field = f"replicas[{r}].stages[{k}].memory_bytes"
        findings.require(need <= limit, field, need, f"at most {limit}")
