"""From results to the content of plan and front files, and back to a plan and its costs."""

from formulations.costs.memory import MemoryParts
from formulations.costs.plan_costs import (
    PlanCosts,
    plan_costs,
    plan_memory,
    plan_tables,
    rounding_error_ns,
)
from formulations.costs.renting import Terms, checkpoint_every_s, terms_of
from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.instance.instance import gpu_evidence
from formulations.plan import Plan, Replica, Shape, Stage, num_gpus
from formulations.units import seconds
from solver.document import (
    MemoryDocument,
    PlanDocument,
    RentingDocument,
    ReplicaDocument,
    StageDocument,
    StepDocument,
    shape_counts,
)
from solver.family_result import FamilyPoint, FamilyResult
from solver.files import digest, sealed
from solver.front_document import (
    Aim,
    FrontDocument,
    PointDocument,
    TermsDocument,
)
from solver.options import SolveOptions
from solver.report.critical import path_times_ns
from solver.result import Result, objective_weight, price_usd_per_hour
from solver.simulate import critical_path, replica_times


def build_document(result: Result, options: SolveOptions) -> PlanDocument:
    """The sealed plan file of a result; figures of the plan are None where there is none."""
    plan = result.plan
    document = PlanDocument(
        status=result.status,
        termination=result.termination,
        method=result.method,
        requested_gap=result.requested_gap,
        seed=options.seed,
        minimize=result.instance.objective.minimize,
        target=result.instance.search.target,
        step_time_s=None if result.step_time_ns is None else seconds(result.step_time_ns),
        lower_bound_s=_lower_bound_s(result),
        gap=result.gap,
        critical_path=None,
        rounding_error_s=None,
        runtime_s=result.runtime_s,
        throughput_sequences_per_s=None,
        model_flop_per_s_per_gpu=None,
        mfu=None,
        price_usd_per_hour=None,
        cost_usd_per_step=None,
        training_cost_usd=None,
        renting=None,
        evidence=(),
        time_sources=(),
        shape=plan.shape if plan else None,
        node_order=(),
        idle_nodes=(),
        replicas=(),
        history=result.log.history,
        shapes=shape_counts(result.log.shapes),
        closed_shapes=result.log.shapes,
        instance=result.instance,
    )
    if plan is not None and result.step_time_ns is not None:
        document = _with_plan(document, plan, seconds(result.step_time_ns))
    return sealed(document)


def _lower_bound_s(result: Result) -> float | None:
    """Bound of the step time; if money is minimised, at the rent of the plan found."""
    if result.bound is None:
        return None
    if result.plan is None:
        weight = 1.0 if result.instance.objective.minimize == "step_time" else 0.0
    else:
        weight = objective_weight(result.instance, result.plan.shape)
    return result.bound / weight / 1e9 if weight else None


def _with_plan(document: PlanDocument, plan: Plan, step_time_s: float) -> PlanDocument:
    shape = plan.shape
    instance = document.instance.on(shape.nodes_used)
    costs = plan_costs(instance, plan)
    tables = plan_tables(instance, plan)
    price = price_usd_per_hour(instance, shape)
    cost = price * step_time_s / 3600
    steps = instance.objective.steps
    rounding_ns = rounding_error_ns(shape, tables.num_layers, max(costs.micro_batches))
    memory, names = plan_memory(instance, plan), instance.cluster.node_names
    flop_per_s = instance.workload.training_flops * instance.workload.global_batch / step_time_s
    return document.model_copy(
        update={
            "critical_path": _step(costs),
            "rounding_error_s": seconds(rounding_ns),
            "throughput_sequences_per_s": instance.workload.global_batch / step_time_s,
            "model_flop_per_s_per_gpu": flop_per_s / num_gpus(instance, shape),
            "mfu": flop_per_s / peak_flop_per_s(instance, shape),
            "price_usd_per_hour": price,
            "cost_usd_per_step": cost,
            "training_cost_usd": None if steps is None else cost * steps,
            "renting": _renting(instance, shape, step_time_s),
            "evidence": gpu_evidence(instance, shape.nodes_used),
            "time_sources": tuple(sorted(tables.origins)),
            "node_order": tuple(names[n] for n in plan.node_order),
            "idle_nodes": tuple(
                name for n, name in enumerate(names) if n not in set(plan.node_order)
            ),
            "replicas": tuple(
                _replica(instance, replica, costs, memory[r], r)
                for r, replica in enumerate(plan.replicas)
            ),
        }
    )


def _renting(instance: Instance, shape: Shape, step_time_s: float) -> RentingDocument | None:
    """The terms that the objective chose, if it chose any."""
    if instance.objective.minimize != "cost_per_useful_sequence" or instance.preemption is None:
        return None
    terms = terms_of(instance, shape.nodes_used)
    per_s = instance.workload.global_batch / step_time_s / terms.slowdown
    return RentingDocument(
        on_spot=terms.on_spot,
        preemptions_per_hour=terms.preemptions_per_hour,
        availability=1 / terms.slowdown,
        checkpoint_every_s=checkpoint_every_s(instance.preemption, terms.preemptions_per_s),
        useful_sequences_per_s=per_s,
        cost_usd_per_useful_sequence=terms.usd_per_hour / 3600 / per_s,
    )


def peak_flop_per_s(instance: Instance, shape: Shape) -> float:
    """Dense peaks of all GPUs of the nodes that a shape uses, in the workload's precision."""
    groups, precision = instance.cluster.groups, instance.workload.precision
    return sum(
        n * group.gpus_per_node * group.gpu.peak_flops[precision]
        for n, group in zip(shape.nodes_used, groups, strict=True)
    )


def _step(costs: PlanCosts) -> StepDocument:
    times_ns = path_times_ns(critical_path(costs))
    return StepDocument(
        compute_s=seconds(times_ns["compute"]),
        transfers_s=seconds(times_ns["transfers"]),
        gradient_sync_s=seconds(times_ns["sync"] + times_ns["gather"]),
        embedding_sync_s=seconds(times_ns["embedding"]),
        optimizer_s=seconds(times_ns["optimizer"]),
    )


def _replica(
    instance: Instance, replica: Replica, costs: PlanCosts, memory: list[MemoryParts], r: int
) -> ReplicaDocument:
    stages = tuple(
        _stage(instance, stage, costs, memory[s % costs.shape.pp], s, r)
        for s, stage in enumerate(replica.stages)
    )
    return ReplicaDocument(micro_batches=replica.micro_batches, stages=stages)


def _stage(
    instance: Instance, stage: Stage, costs: PlanCosts, memory: MemoryParts, s: int, r: int
) -> StageDocument:
    cluster, node, shape = instance.cluster, stage.group.node, costs.shape
    device, last = s % shape.pp, shape.num_stages - 1
    put_off = replica_times(costs, [r]).weight
    return StageDocument(
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
        embedding_sync_s=seconds(costs.embedding_ns) if device in (0, shape.pp - 1) else 0.0,
        optimizer_s=seconds(int(costs.optimizer_ns[device])),
        memory_bytes=int(costs.memory_bytes[device, r]),
        memory_limit_bytes=int(costs.limit_bytes[device, r]),
        memory=MemoryDocument(**memory._asdict()),
    )


def plan_of(document: PlanDocument) -> Plan:
    """The plan that a document describes; PlanError if it was changed or holds no plan."""
    if digest(document.model_dump(mode="json")) != document.digest:
        allowed = "the file as solve wrote it (verify names the field)"
        raise PlanError("digest", "the plan file was changed", allowed)
    if document.shape is None:
        raise PlanError("shape", f"no plan (status {document.status})", "a file with a plan")
    number = {name: n for n, name in enumerate(document.instance.cluster.node_names)}
    replicas = tuple(replica.replica(number) for replica in document.replicas)
    order = tuple(number[name] for name in document.node_order)
    return Plan(shape=document.shape, node_order=order, replicas=replicas)


def costs_of(document: PlanDocument) -> PlanCosts:
    """Costs of the plan of a document; PlanError as in `plan_of`, or if it makes no sense."""
    try:
        return plan_costs(document.instance, plan_of(document))
    except (LookupError, ValueError) as error:
        found = f"groups and stages that do not fit ({error})"
        raise PlanError("replicas", found, "a plan that verify accepts") from error


def build_front(found: FamilyResult, aim: Aim) -> FrontDocument:
    """The sealed front file of an outcome."""
    return sealed(
        FrontDocument(
            aim=aim,
            termination=found.termination,
            requested_gap=found.options.gap,
            seed=found.options.seed,
            runtime_s=found.runtime_s,
            points=tuple(_point(found, point) for point in found.points),
            clusters=found.clusters,
            family=found.family,
        )
    )


def _point(found: FamilyResult, point: FamilyPoint) -> PointDocument:
    step_ns = point.result.step_time_ns
    assert step_ns is not None, "a point has a plan"
    return PointDocument(
        nodes=point.nodes,
        nodes_used=point.nodes_used,
        terms=tuple(_terms(found.family.instance, own, seconds(step_ns)) for own in point.terms),
        plan=build_document(point.result, found.options),
    )


def _terms(instance: Instance, terms: Terms, step_s: float) -> TermsDocument:
    kept_s, steps = step_s * terms.slowdown, instance.objective.steps
    cost = terms.usd_per_hour * kept_s / 3600
    return TermsDocument(
        on_spot=terms.on_spot,
        price_usd_per_hour=terms.usd_per_hour,
        availability=1 / terms.slowdown,
        sequences_per_s=instance.workload.global_batch / kept_s,
        cost_usd_per_step=cost,
        training_cost_usd=None if steps is None else cost * steps,
    )
