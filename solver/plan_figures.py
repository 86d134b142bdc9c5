"""The figures of a plan file that follow from its instance and its plan: times, memory, money.

The only place that derives them: `report` writes them, `verify` compares a file's with them.
"""

from collections import Counter
from itertools import pairwise
from typing import Any

from formulations.costs.plan_costs import PlanCosts, plan_memory, plan_tables, rounding_error_ns
from formulations.costs.renting import checkpoint_every_s, terms_of
from formulations.instance import Instance
from formulations.instance.instance import gpu_evidence
from formulations.plan import Configuration, Plan, num_gpus
from formulations.units import SECONDS_PER_HOUR, seconds
from solver.document import (
    MemoryDocument,
    RentingDocument,
    ReplicaDocument,
    StageDocument,
    StepDocument,
)
from solver.result import price_usd_per_hour
from solver.simulate import critical_path, replica_times

#: Part of the step that every kind of operation on the critical path counts for.
PATH_FIELDS = {
    "sync": "gradient_sync_s",
    "gather": "gradient_sync_s",
    "embedding": "embedding_sync_s",
    "optimizer": "optimizer_s",
}


#: The fields of `PlanDocument` that hold figures, and what stands there without a plan.
NO_FIGURES: dict[str, Any] = {
    "step_time_s": None,
    "config": None,
    "critical_path": None,
    "rounding_error_s": None,
    "throughput_sequences_per_s": None,
    "model_flop_per_s_per_gpu": None,
    "mfu": None,
    "price_usd_per_hour": None,
    "cost_usd_per_step": None,
    "training_cost_usd": None,
    "renting": None,
    "evidence": (),
    "time_sources": (),
    "node_order": (),
    "idle_nodes": (),
    "replicas": (),
}


def plan_figures(
    instance: Instance, plan: Plan, costs: PlanCosts, step_time_ns: int
) -> dict[str, Any]:
    """What the fields of NO_FIGURES hold for a plan with these costs and this step."""
    config, step_time_s = plan.config, seconds(step_time_ns)
    instance = instance.on(config.nodes_used)
    tables = plan_tables(instance, plan)
    price = price_usd_per_hour(instance, config)
    cost = price * step_time_s / SECONDS_PER_HOUR
    steps = instance.objective.steps
    rounding_ns = rounding_error_ns(config, tables.num_layers, max(costs.micro_batches))
    names = instance.cluster.node_names
    flop_per_s = instance.workload.training_flops * instance.workload.global_batch / step_time_s
    return {
        "step_time_s": step_time_s,
        "config": config,
        "critical_path": _critical_path(costs),
        "rounding_error_s": seconds(rounding_ns),
        "throughput_sequences_per_s": instance.workload.global_batch / step_time_s,
        "model_flop_per_s_per_gpu": flop_per_s / num_gpus(instance, config),
        "mfu": flop_per_s / peak_flop_per_s(instance, config),
        "price_usd_per_hour": price,
        "cost_usd_per_step": cost,
        "training_cost_usd": None if steps is None else cost * steps,
        "renting": _renting(instance, config, step_time_s),
        "evidence": gpu_evidence(instance, config.nodes_used),
        "time_sources": tuple(sorted(tables.origins)),
        "node_order": tuple(names[n] for n in plan.node_order),
        "idle_nodes": tuple(name for n, name in enumerate(names) if n not in set(plan.node_order)),
        "replicas": _replicas(instance, plan, costs),
    }


def _renting(
    instance: Instance, config: Configuration, step_time_s: float
) -> RentingDocument | None:
    """The terms that the objective chose, if it chose any."""
    if instance.objective.minimize != "cost_per_useful_sequence" or instance.preemption is None:
        return None
    terms = terms_of(instance, config.nodes_used)
    per_s = instance.workload.global_batch / step_time_s / terms.slowdown
    return RentingDocument(
        on_spot=terms.on_spot,
        preemptions_per_hour=terms.preemptions_per_hour,
        availability=1 / terms.slowdown,
        checkpoint_every_s=checkpoint_every_s(instance.preemption, terms.preemptions_per_s),
        useful_sequences_per_s=per_s,
        cost_usd_per_useful_sequence=terms.usd_per_hour / SECONDS_PER_HOUR / per_s,
    )


def peak_flop_per_s(instance: Instance, config: Configuration) -> float:
    """Dense peaks of all GPUs of the nodes that a config uses, in the workload's precision."""
    groups, precision = instance.cluster.groups, instance.workload.precision
    return sum(
        n * group.gpus_per_node * group.gpu.peak_flops[precision]
        for n, group in zip(config.nodes_used, groups, strict=True)
    )


def _critical_path(costs: PlanCosts) -> StepDocument:
    """Where the time goes along one longest path; gaps between its operations are transfers."""
    path = critical_path(costs)
    parts = Counter(transfers_s=sum(b.start_ns - a.end_ns for a, b in pairwise(path)))
    for operation in path:
        field = PATH_FIELDS.get(operation.kind, "compute_s")
        parts[field] += operation.end_ns - operation.start_ns
    return StepDocument(**{name: seconds(parts[name]) for name in StepDocument.model_fields})


def _replicas(instance: Instance, plan: Plan, costs: PlanCosts) -> tuple[ReplicaDocument, ...]:
    """Replica r with its virtual stages s, each on device s mod pp."""
    cluster, pp, last = instance.cluster, costs.config.pp, costs.config.num_stages - 1
    memory = plan_memory(instance, plan)
    replicas = []
    for r, replica in enumerate(plan.replicas):
        put_off = replica_times(costs, [r]).weight
        stages = []
        for s, stage in enumerate(replica.stages):
            device, node = s % pp, stage.group.node
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
                    memory=MemoryDocument(**memory[r][device]._asdict()),
                )
            )
        replicas.append(ReplicaDocument(micro_batches=replica.micro_batches, stages=tuple(stages)))
    return tuple(replicas)
