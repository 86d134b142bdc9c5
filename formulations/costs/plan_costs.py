"""Costs of one concrete plan, per stage and replica: what the simulator needs.

Costs are whole nanoseconds, each rounded up: `rounding_error_ns` bounds what that adds.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from formulations.costs.memory import MemoryParts
from formulations.costs.placement import PlacementCosts, Placer
from formulations.costs.stage_costs import StageCosts, memory_parts, recomputed_ns
from formulations.costs.stage_places import StagePlacer, stage_tables
from formulations.costs.tables import Array, CostTables, build_tables
from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.plan import Choose, Configuration, Plan, Recomputed
from formulations.schedules.graph import schedule_graph
from formulations.schedules.registry import SCHEDULES


@dataclass(frozen=True)
class PlanCosts:
    """Integers, ns and bytes; p devices per replica, S virtual stages, R replicas.

    forward_ns, backward_ns, weight_ns (the part of backward_ns for weight gradients): [S, R].
    send_ns: [S - 1, R], either way. memory: [parts, p, R] by `MemoryParts`; limit_bytes: [p, R].
    sync_ns, optimizer_ns, gather_ns: [p]; optimizer over the slowest replica. embedding_ns: one
    all-reduce between the first and last device, 0 if there is none.
    """

    config: Configuration
    micro_batches: tuple[int, ...]
    blocking_sends: bool
    forward_ns: Array
    backward_ns: Array
    weight_ns: Array
    send_ns: Array
    sync_ns: Array
    optimizer_ns: Array
    gather_ns: Array
    embedding_ns: int
    memory: Array
    limit_bytes: Array

    @cached_property
    def memory_bytes(self) -> Array:
        """[p, R] all that a GPU needs."""
        total: Array = self.memory.sum(axis=0)
        return total


def synced_ns(costs: PlanCosts, ready: Array) -> Array:
    """End of gradient sync and tied embeddings, given that of the last backwards; [p, ..]."""
    synced: Array = ready + costs.sync_ns.reshape(-1, *(1,) * (ready.ndim - 1))
    if costs.embedding_ns:
        synced[[0, -1]] = np.maximum(synced[0], synced[-1]) + costs.embedding_ns
    return synced


def split_costs(
    tables: CostTables,
    placement: PlacementCosts,
    boundaries: tuple[int, ...],
    micro_batches: tuple[int, ...],
    recomputed: Choose | None = None,
) -> PlanCosts:
    """Costs of a uniform split on a placement, see `formulations.plan.uniform_plan`.

    recomputed: what devices recompute; as little as fits if it is not given.
    """
    config = tables.config
    cuts = list(boundaries[:-1])
    groups = placement.group_of_slot.reshape(config.pp, config.dp)
    stages = np.arange(config.num_stages)

    def per_slot(table: Array) -> Array:
        columns = np.tile(groups, (config.vpp, 1))
        return np.take_along_axis(np.add.reduceat(table, cuts, axis=0), columns, axis=1)

    def per_device(values: Array) -> Array:
        sums: Array = values.reshape(config.vpp, config.pp, *values.shape[1:]).sum(axis=0)
        return sums

    def per_stage(table: Array) -> Array:
        return per_device(np.add.reduceat(table, cuts, axis=1)[stages % config.pp, stages])

    layers, messages = list(pairwise(boundaries)), tables.message_kind[list(boundaries[1:-1])]
    # Recomputation: [S, R] ns more of a backward pass, [parts, p, R] bytes per GPU
    choose = recomputed or StageCosts(tables).recomputed
    extra = np.zeros((config.num_stages, config.dp), dtype=np.int64)
    memory = np.zeros((len(MemoryParts._fields), config.pp, config.dp), dtype=np.int64)
    for d, row in enumerate(groups):
        pairs = np.stack([row, np.array(micro_batches)])
        kinds, member = np.unique(pairs, axis=1, return_inverse=True)
        for i, (j, m) in enumerate(kinds.T.tolist()):
            alike, chunks = member.ravel() == i, tuple(layers[d :: config.pp])
            choices = choose(d, j, m, chunks)
            parts = memory_parts(tables, chunks, d, j, m, choices)
            memory[:, d, alike] = np.array(parts)[:, None]
            for s, choice in zip(config.stages_of(d), choices, strict=True):
                extra[s, alike] = recomputed_ns(tables, j, layers[s], choice)
    return PlanCosts(
        config=config,
        micro_batches=micro_batches,
        blocking_sends=tables.instance.search.blocking_sends,
        forward_ns=per_slot(tables.forward_ns),
        backward_ns=per_slot(tables.backward_ns) + extra,
        weight_ns=per_slot(tables.weight_ns),
        send_ns=placement.send_ns[messages, stages[:-1] % config.pp],
        sync_ns=per_stage(placement.sync_ns) + placement.sync_latency_ns,
        optimizer_ns=per_device(per_slot(tables.optimizer_ns)).max(axis=1),
        gather_ns=per_stage(placement.gather_ns) + placement.gather_latency_ns,
        embedding_ns=placement.embedding_ns,
        memory=memory,
        limit_bytes=tables.capacity_bytes[groups],
    )


def plan_costs(instance: Instance, plan: Plan) -> PlanCosts:
    """Costs of a plan whose replicas share one split; PlanError for any other plan.

    Replicas with as many micro-batches recompute alike on a device of one kind.
    """
    splits = {tuple(stage.layers for stage in replica.stages) for replica in plan.replicas}
    if len(splits) != 1:
        raise PlanError("replicas", "different splits", "one split shared by all replicas")
    boundaries = (0, *(end for _, end in splits.pop()))
    tables, by_replica = plan_tables(instance, plan)
    counts = tuple(replica.micro_batches for replica in plan.replicas)
    stated: dict[tuple[int, int, int], list[Recomputed]] = {}
    for replica, columns in zip(plan.replicas, by_replica, strict=True):
        for d, column in enumerate(columns[: plan.config.pp]):
            recomputed = [stage.recomputed for stage in replica.stages[d :: plan.config.pp]]
            alike = stated.setdefault((d, column, replica.micro_batches), recomputed)
            if alike != recomputed:
                raise PlanError("replicas", "unlike recomputation", "alike on GPUs alike")
    if plan.config.per_stage:
        nodes = [stage.group.node for stage in plan.replicas[0].stages]
        together = [a == b for a, b in zip([None, *nodes[:-1]], nodes, strict=True)]
        placement = StagePlacer(tables).costs(by_replica[0], together)
    else:
        groups = instance.cluster.node_groups
        placement = Placer(tables).costs([groups[node] for node in plan.node_order])
    costs = split_costs(tables, placement, boundaries, counts, lambda d, j, m, _: stated[d, j, m])
    return replace(costs, config=plan.config)


def plan_tables(instance: Instance, plan: Plan) -> tuple[CostTables, list[list[int]]]:
    """Costs of the configuration of a plan, and [R][S] their column for every stage.

    Where every stage has its own degrees they are by place.
    """
    groups = instance.cluster.node_groups
    by_replica = [
        [(groups[stage.group.node], stage.degrees) for stage in replica.stages]
        for replica in plan.replicas
    ]
    if not plan.config.per_stage:
        columns = [[group for group, _ in places] for places in by_replica]
        return build_tables(instance, plan.config), columns
    distinct = tuple(dict.fromkeys(place for places in by_replica for place in places))
    columns = [[distinct.index(place) for place in places] for places in by_replica]
    return stage_tables(instance, plan.config, distinct), columns


def rounding_error_ns(config: Configuration, num_layers: int, micro_batches: int) -> int:
    """Upper bound of (integer step time - step time without rounding) for every plan of a config.

    `micro_batches`: the largest number m of one replica. Counts times only: whole parameters
    per rank and whole bytes per message are part of the model, not rounding.

    Proof. The integer step time is the integer length of one path; the same path without
    rounding is no longer than the step time without rounding. So the difference is at most the
    number of figures on the path, each rounded up by less than 1 ns:

    * One operation at most of every level of the schedule's graph, 2 (m + p - 1) in 1F1B and
      GPipe. Each is a sum over at most n = L - S + 1 layers, as the other S - 1 virtual stages
      hold one layer at least, and is followed or prolonged by at most one transfer: n + 1
      figures. Where the backward pass is split, what it has without weight gradients is the
      whole, rounded up, less these, rounded down: two figures per layer.
    * One gradient sync: two rings for each of the l = L - S + v layers that a device may have,
      and two start-ups: 2 l + 2.
    * One all-reduce of tied embeddings: 1. One optimizer: l.
    * With ZeRO 1 or 2 one gather: 2 l + 2. With ZeRO 2 or 3 in every operation at most two
      collectives of every layer, of two rings and two start-ups each, and what of it is hidden;
      where GPUs share experts twice as many collectives.
    * With several shard groups one all-reduce more beside every reduction.
    """
    layers = num_layers - config.num_stages
    on_device = layers + config.vpp
    per_layer = 2 if SCHEDULES[config.schedule].splits_backward else 1
    across = config.optimizer_instances > 1
    exchanges = 10 + 8 * config.has_expert_grid + 4 * across
    per_layer += exchanges * config.in_lockstep
    levels = schedule_graph(config.schedule, config.pp, micro_batches, *config.chunking).levels
    rings = (2 * on_device + 2) * (1 + (config.zero > 0) + across)
    return len(levels) * (per_layer * (layers + 1) + 1) + rings + 1 + on_device
