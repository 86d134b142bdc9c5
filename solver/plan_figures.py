"""From results to plan files, with the figures that follow from instance and plan; and back.

The only place that derives times, memory and money: `verify` compares a file's with them.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from formulations.costs.memory import MemoryParts
from formulations.costs.plan_costs import (
    PlanCosts,
    plan_costs,
    plan_tables,
    rounding_error_ns,
)
from formulations.costs.renting import checkpoint_every_s, rent_usd_per_hour, terms_of
from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.instance.instance import gpu_evidence, margin_evidence
from formulations.plan import Configuration, Plan, num_gpus
from formulations.units import SECONDS_PER_HOUR, seconds
from solver.document import (
    ErrorDocument,
    MarginDocument,
    MemoryDocument,
    PlanDocument,
    RentingDocument,
    ReplicaDocument,
    StageDocument,
    StepDocument,
    config_counts,
)
from solver.files import digest, fields_of, sealed
from solver.options import SolveOptions
from solver.result import Result, objective_weight
from solver.simulate import Step, replica_times, simulate_step
from solver.uncertainty import expected_error

#: Part of the step that every kind of operation on the critical path counts for.
PATH_FIELDS = {
    "sync": "gradient_sync_s",
    "gather": "gradient_sync_s",
    "embedding": "embedding_sync_s",
    "optimizer": "optimizer_s",
}

#: The fields of `PlanDocument` that hold figures, and what stands there without a plan.
NO_FIGURES: dict[str, Any] = {
    **dict.fromkeys(("step_time_s", "config", "critical_path", "rounding_error_s", "renting")),
    **dict.fromkeys(
        ("expected_error", "throughput_sequences_per_s", "model_flop_per_s_per_gpu", "mfu")
    ),
    "memory_margin": None,
    **dict.fromkeys(("price_usd_per_hour", "cost_usd_per_step", "training_cost_usd")),
    **dict.fromkeys(("evidence", "time_sources", "node_order", "idle_nodes", "replicas"), ()),
}


def plan_figures(
    instance: Instance, plan: Plan, costs: PlanCosts, step_time_ns: int
) -> dict[str, Any]:
    """What the fields of NO_FIGURES hold for a plan with these costs and this step."""
    config, step_time_s = plan.config, seconds(step_time_ns)
    error = expected_error(instance, plan)
    instance = instance.on(config.nodes_used)
    tables, _ = plan_tables(instance, plan)
    price = rent_usd_per_hour(instance, config.nodes_used)
    cost = price * step_time_s / SECONDS_PER_HOUR
    steps = instance.objective.steps
    rounding_ns = rounding_error_ns(config, tables.num_layers, max(costs.micro_batches))
    names = instance.cluster.node_names
    # Where the time goes along one longest path; gaps between its operations are transfers
    path = simulate_step(costs).critical_path
    parts = Counter(transfers_s=sum(b.start_ns - a.end_ns for a, b in pairwise(path)))
    for operation in path:
        field = PATH_FIELDS.get(operation.kind, "compute_s")
        parts[field] += operation.end_ns - operation.start_ns
    # The terms that the objective chose, if it chose any
    renting, preemption = None, instance.preemption
    if instance.objective.minimize == "cost_per_useful_sequence" and preemption is not None:
        terms = terms_of(instance, config.nodes_used)
        rate_per_s = terms.preemptions_per_hour / SECONDS_PER_HOUR
        per_s = instance.workload.global_batch / step_time_s / terms.slowdown
        renting = RentingDocument(
            on_spot=terms.on_spot,
            preemptions_per_hour=terms.preemptions_per_hour,
            availability=1 / terms.slowdown,
            checkpoint_every_s=checkpoint_every_s(preemption, rate_per_s),
            useful_sequences_per_s=per_s,
            cost_usd_per_useful_sequence=terms.usd_per_hour / SECONDS_PER_HOUR / per_s,
        )
    flop_per_s = instance.workload.training_flops * instance.workload.global_batch / step_time_s
    return {
        "step_time_s": step_time_s,
        "expected_error": error and ErrorDocument(bar=round(error[0], 4), evidence=error[1]),
        "memory_margin": MarginDocument(
            share=instance.limits.memory_headroom,
            evidence=margin_evidence(instance, config.nodes_used),
        ),
        "config": config,
        "critical_path": StepDocument(
            **{name: seconds(parts[name]) for name in StepDocument.model_fields}
        ),
        "rounding_error_s": seconds(rounding_ns),
        "throughput_sequences_per_s": instance.workload.global_batch / step_time_s,
        "model_flop_per_s_per_gpu": flop_per_s / num_gpus(instance, config),
        "mfu": flop_per_s / peak_flop_per_s(instance, config),
        "price_usd_per_hour": price,
        "cost_usd_per_step": cost,
        "training_cost_usd": None if steps is None else cost * steps,
        "renting": renting,
        "evidence": gpu_evidence(instance, config.nodes_used),
        "time_sources": tuple(sorted(tables.origins)),
        "node_order": tuple(names[n] for n in plan.node_order),
        "idle_nodes": tuple(name for n, name in enumerate(names) if n not in set(plan.node_order)),
        "replicas": tuple(_replicas(instance, plan, costs)),
    }


def peak_flop_per_s(instance: Instance, config: Configuration) -> float:
    """Dense peaks of all GPUs of the nodes that a config uses, in the workload's precision."""
    groups, precision = instance.cluster.groups, instance.workload.precision
    return sum(
        n * group.gpus_per_node * group.gpu.peak_flops[precision]
        for n, group in zip(config.nodes_used, groups, strict=True)
    )


def _replicas(instance: Instance, plan: Plan, costs: PlanCosts) -> Iterator[ReplicaDocument]:
    """Replica r with its virtual stages s, each on device s mod pp."""
    cluster, pp, last = instance.cluster, costs.config.pp, costs.config.num_stages - 1
    for r, replica in enumerate(plan.replicas):
        put_off = replica_times(costs, [r]).weight
        stages = []
        for s, stage in enumerate(replica.stages):
            device, node = s % pp, stage.group.node
            parts = MemoryParts(*costs.memory[:, device, r].tolist())
            embedding_ns = costs.embedding_ns if device in (0, pp - 1) else 0
            stages.append(
                StageDocument(
                    layers=stage.layers,
                    node=cluster.node_names[node],
                    gpus=stage.group.gpus,
                    gpu_type=cluster.groups[cluster.node_groups[node]].gpu.name,
                    degrees=stage.degrees,
                    forward_s=seconds(int(costs.forward_ns[s, r])),
                    backward_s=seconds(int(costs.backward_ns[s, r])),
                    recomputed=stage.recomputed,
                    weight_gradient_s=0.0 if put_off is None else seconds(int(put_off[s, 0])),
                    send_forward_s=seconds(int(costs.send_ns[s, r])) if s < last else 0.0,
                    send_backward_s=seconds(int(costs.send_ns[s - 1, r])) if s > 0 else 0.0,
                    gradient_sync_s=seconds(int(costs.sync_ns[device] + costs.gather_ns[device])),
                    embedding_sync_s=seconds(embedding_ns),
                    optimizer_s=seconds(int(costs.optimizer_ns[device])),
                    memory_bytes=int(costs.memory_bytes[device, r]),
                    memory_limit_bytes=int(costs.limit_bytes[device, r]),
                    memory=MemoryDocument(**parts._asdict()),
                )
            )
        yield ReplicaDocument(micro_batches=replica.micro_batches, stages=tuple(stages))


def build_document(result: Result, options: SolveOptions) -> PlanDocument:
    """The sealed plan file of a result; figures of the plan are None where there is none."""
    plan, step_time_ns, bound_s = result.plan, result.step_time_ns, None
    if plan is not None and step_time_ns is not None:
        costs = plan_costs(result.instance, plan)
        figures = plan_figures(result.instance, plan, costs, step_time_ns)
        weight = objective_weight(result.instance, plan.config)
    else:
        figures = NO_FIGURES
        weight = 1.0 if result.instance.objective.minimize == "step_time" else 0.0
    # Of the step time; if money is minimised, at the rent of the plan found
    if result.bound is not None and weight:
        bound_s = result.bound / weight / 1e9
    return sealed(
        PlanDocument(
            **fields_of(result, "status", "termination", "method", "requested_gap", "gap"),
            **fields_of(result, "runtime_s", "second_best", "instance"),
            seed=options.seed,
            minimize=result.instance.objective.minimize,
            target=result.instance.search.target,
            lower_bound_s=bound_s,
            history=result.log.history,
            configs=config_counts(result.log.configs),
            closed_configs=result.log.configs,
            **figures,
        )
    )


def plan_of(document: PlanDocument) -> Plan:
    """The plan that a document describes; PlanError if it was changed or holds no plan."""
    if digest(document.model_dump(mode="json")) != document.digest:
        allowed = "the file as solve wrote it (verify names the field)"
        raise PlanError("digest", "the plan file was changed", allowed)
    if document.config is None:
        raise PlanError("config", f"no plan (status {document.status})", "a file with a plan")
    number = {name: n for n, name in enumerate(document.instance.cluster.node_names)}
    replicas = tuple(replica.replica(number) for replica in document.replicas)
    order = tuple(number[name] for name in document.node_order)
    return Plan(config=document.config, node_order=order, replicas=replicas)


def step_of(document: PlanDocument) -> Step:
    """One step of the plan of a document; PlanError as in `costs_of`."""
    return simulate_step(costs_of(document))


def costs_of(document: PlanDocument) -> PlanCosts:
    """Costs of the plan of a document; PlanError as in `plan_of`, or if it makes no sense."""
    try:
        return plan_costs(document.instance, plan_of(document))
    except (LookupError, ValueError) as error:
        found = f"groups and stages that do not fit ({error})"
        raise PlanError("replicas", found, "a plan that verify accepts") from error
