"""Costs of one concrete plan, per stage and replica: what the simulator needs."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from formulations.costs.memory import MemoryParts, layer_memory
from formulations.costs.placement import PlacementCosts, Placer
from formulations.costs.tables import Array, CostTables, build_tables
from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.plan import Plan, Shape
from formulations.schedules import in_flight


@dataclass(frozen=True)
class PlanCosts:
    """Integers, ns and bytes; p stages, R replicas.

    forward_ns, backward_ns, memory_bytes, limit_bytes: [p, R]. send_ns: [p - 1, R], either way.
    sync_ns, optimizer_ns, gather_ns: [p]; optimizer over the slowest replica. embedding_ns: one
    all-reduce between the first and last stage, 0 if there is none.
    """

    shape: Shape
    micro_batches: tuple[int, ...]
    blocking_sends: bool
    tied: bool
    forward_ns: Array
    backward_ns: Array
    send_ns: Array
    sync_ns: Array
    optimizer_ns: Array
    gather_ns: Array
    embedding_ns: int
    memory_bytes: Array
    limit_bytes: Array


def split_costs(
    tables: CostTables,
    placement: PlacementCosts,
    boundaries: tuple[int, ...],
    micro_batches: tuple[int, ...],
) -> PlanCosts:
    """Costs of a uniform split on a placement, see `formulations.plan.uniform_plan`."""
    shape = tables.shape
    cuts = list(boundaries[:-1])
    groups = placement.group_of_slot.reshape(shape.pp, shape.dp)
    stages = np.arange(shape.pp)

    def per_slot(table: Array) -> Array:
        return np.take_along_axis(np.add.reduceat(table, cuts, axis=0), groups, axis=1)

    def per_stage(table: Array) -> Array:
        return np.add.reduceat(table, cuts, axis=1)[stages, stages]

    kinds = tables.message_kind[list(boundaries[1:-1])]
    counts, share = np.unique(np.array(micro_batches), return_inverse=True)
    memory = [
        [tables.stage_memory(boundaries[k], boundaries[k + 1], k, int(m)) for m in counts]
        for k in range(shape.pp)
    ]
    return PlanCosts(
        shape=shape,
        micro_batches=micro_batches,
        blocking_sends=tables.instance.search.blocking_sends,
        tied=tables.embedding_bytes > 0,
        forward_ns=per_slot(tables.forward_ns),
        backward_ns=per_slot(tables.backward_ns),
        send_ns=placement.send_ns[kinds, stages[:-1]],
        sync_ns=per_stage(placement.sync_ns) + placement.sync_latency_ns,
        optimizer_ns=per_slot(tables.optimizer_ns).max(axis=1),
        gather_ns=per_stage(placement.gather_ns) + placement.gather_latency_ns,
        embedding_ns=placement.embedding_ns,
        memory_bytes=np.array(memory, dtype=np.int64)[:, share],
        limit_bytes=tables.capacity_bytes[groups],
    )


def plan_costs(instance: Instance, plan: Plan) -> PlanCosts:
    """Costs of a plan whose replicas share one split; PlanError for any other plan."""
    splits = {tuple(stage.layers for stage in replica.stages) for replica in plan.replicas}
    if len(splits) != 1:
        raise PlanError("replicas", "different splits", "one split shared by all replicas")
    layers = splits.pop()
    tables = build_tables(instance, plan.shape)
    order = [instance.cluster.node_groups[node] for node in plan.node_order]
    boundaries = (0, *(end for _, end in layers))
    counts = tuple(replica.micro_batches for replica in plan.replicas)
    return split_costs(tables, Placer(tables).costs(order), boundaries, counts)


def plan_memory(instance: Instance, plan: Plan) -> list[list[MemoryParts]]:
    """[R][p] what the memory of a GPU of every replica and stage holds; in all `memory_bytes`."""
    memory = layer_memory(instance, plan.shape)
    held = partial(in_flight, plan.shape.schedule, plan.shape.pp)
    return [
        [
            memory.parts([(range(*stage.layers), held(k, replica.micro_batches))])
            for k, stage in enumerate(replica.stages)
        ]
        for replica in plan.replicas
    ]
