"""What one pipeline of a template costs, stage by stage: what the simulator needs.

A stage on g GPUs is a tensor-parallel group of g. A message to it from another node crosses the
links of both nodes g times, as every GPU needs it whole; with scatter and gather once, in parts.
All messages count as the largest ones of the chain.
Pipelines keep whole optimizer states, so that a layer survives in every other pipeline (ZeRO 0).

Exchange of gradients between pipelines: one ring per layer, all at once. Every layer is held once
in each of x pipelines, which all-reduce its gradient. A node sends and receives for all its layers
over one link. Rings begin when the slowest pipeline is done, which is the latest that they can, but
for the share that `search.overlap` hides behind the backward passes of pipelines of one stage;
where the cluster has zones, all gradients are taken to cross between them, over the slowest link.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from formulations.costs.collectives import ALL_REDUCE, ring_latency_s, ring_share
from formulations.costs.compute import has_times
from formulations.costs.stage_costs import recomputed_ns
from formulations.costs.tables import Array, CostTables, build_tables
from formulations.costs.transfers import embedding_ns, inside_ns, outside_ns
from formulations.errors import PlanError
from formulations.fleet import Design, Strategy, Template
from formulations.instance import Instance, Link, NodeGroup
from formulations.instance.search import ScheduleName
from formulations.node_sharing import NodeSplit, is_power_of_two
from formulations.plan import Configuration, uniform_degrees
from formulations.schedules.registry import in_flight
from formulations.units import ceil_ns, powers_of_two


@dataclass(frozen=True)
class TemplateCosts:
    """What the simulator needs of one pipeline, and its memory: integers, ns; p stages.

    forward_ns, backward_ns: [p] per micro-batch. send_ns, send_back_ns: [p - 1] from stage k to
    k + 1 and back. optimizer_ns: [p] after the last backward. embedding_ns: all-reduce between the
    first and the last stage, 0 if there is none. memory_bytes: [p] per GPU without activations,
    activation_bytes: [p] per micro-batch in flight, limit_bytes: [p].
    """

    schedule: ScheduleName
    blocking_sends: bool
    forward_ns: Array
    backward_ns: Array
    send_ns: Array
    send_back_ns: Array
    optimizer_ns: Array
    embedding_ns: int
    memory_bytes: Array
    activation_bytes: Array
    limit_bytes: Array

    @property
    def num_stages(self) -> int:
        """Number of stages p."""
        return len(self.forward_ns)

    def fits(self, micro_batches: int) -> bool:
        """Whether every stage has room for so many micro-batches per step."""
        return bool((self.used_bytes(micro_batches) <= self.limit_bytes).all())

    def used_bytes(self, micro_batches: int) -> Array:
        """[p] bytes per GPU."""
        p = self.num_stages
        of_stages = [in_flight(self.schedule, p, k, micro_batches) for k in range(p)]
        return self.memory_bytes + np.array(of_stages, dtype=np.int64) * self.activation_bytes


def template_degrees(instance: Instance, group: NodeGroup, split: NodeSplit) -> tuple[int, ...]:
    """Numbers of GPUs that a stage may have on a node of the group, ascending.

    Those that the instance lists and the profile has times for. An instance that lists none has all
    powers of two; with these, and without a profile, `any` split allows every other number too.
    """
    heads, every = instance.workload.kv_heads, range(1, group.gpus_per_node + 1)
    listed = set(instance.search.tensor_parallel or every)
    if split is NodeSplit.ANY and instance.profile is None:
        largest = max(node_group.gpus_per_node for node_group in instance.cluster.groups)
        usual = {g for g in powers_of_two(largest) if heads % g == 0}
        listed |= set(every) if usual <= listed else set()
    possible = (g for g in every if g in listed and heads % g == 0)
    fitting = (g for g in possible if has_times(instance, group, g))
    return tuple(g for g in fitting if split is NodeSplit.ANY or is_power_of_two(g))


def template_costs(instance: Instance, strategy: Strategy, template: Template) -> TemplateCosts:
    """Costs of a template whose node groups and GPUs the cluster has.

    Raises PlanError: no times for the GPUs of a stage, a way to recompute that is none of the
    strategy's.
    """
    stages = template.stages
    groups = [template.group_of(stage) for stage in stages]
    for k, (stage, j) in enumerate(zip(stages, groups, strict=True)):
        if not has_times(instance, instance.cluster.groups[j], stage.degrees.tp):
            asked = f"{stage.degrees.tp} GPUs, for which the profile has no times"
            raise PlanError(f"stages[{k}]", asked, "degrees of the profile")
        if stage.recomputed.way not in strategy.recompute:
            allowed = " or ".join(strategy.recompute)
            raise PlanError(f"stages[{k}].recomputed", stage.recomputed.way, allowed)
    gpus = {stage.degrees.tp for stage in stages}
    tables = {g: stage_tables(instance, strategy, g, len(stages)) for g in gpus}
    by_stage = [tables[stage.degrees.tp] for stage in stages]
    placed = list(zip(by_stage, groups, stages, strict=True))

    def sums(name: str) -> Array:
        each = [int(getattr(t, name)[slice(*s.layers), j].sum()) for t, j, s in placed]
        return np.array(each, dtype=np.int64)

    def memory(in_flight: int) -> Array:
        parts = [
            t.memory[j].parts([s.layers], ((in_flight, 0),), t.is_block, [s.recomputed])
            for t, j, s in placed
        ]
        return np.array([sum(by_use) for by_use in parts], dtype=np.int64)

    again = [recomputed_ns(t, j, stage.layers, stage.recomputed) for t, j, stage in placed]
    ends = (placed[0], placed[-1])
    between = stages[0].group.node != stages[-1].group.node
    across = instance.cluster.links_among(template.node_groups)
    return TemplateCosts(
        schedule=strategy.schedule,
        blocking_sends=instance.search.blocking_sends,
        forward_ns=sums("forward_ns"),
        backward_ns=sums("backward_ns") + np.array(again, dtype=np.int64),
        send_ns=_sends(by_stage, template, 1),
        send_back_ns=_sends(by_stage, template, 0),
        optimizer_ns=sums("optimizer_ns"),
        embedding_ns=max(tied_ns(t, j, across)[between] for t, j, _ in ends),
        memory_bytes=memory(0),
        activation_bytes=memory(1) - memory(0),
        limit_bytes=by_stage[0].capacity_bytes[groups],
    )


def stage_tables(instance: Instance, strategy: Strategy, gpus: int, num_stages: int) -> CostTables:
    """Costs of stages on `gpus` GPUs each, in pipelines of so many stages."""
    config = Configuration(
        degrees=uniform_degrees(instance, gpus),
        dp=1,
        pp=num_stages,
        micro_batch=strategy.micro_batch,
        schedule=strategy.schedule,
        recompute=strategy.recompute,
        zero=0,
        nodes_used=tuple(group.nodes for group in instance.cluster.groups),
    )
    return build_tables(instance, config)


def _sends(by_stage: list[CostTables], template: Template, receiver: int) -> Array:
    """[p - 1] messages across each boundary, to its second stage (1) or to its first (0)."""
    times = []
    for tables, stages in zip(pairwise(by_stage), pairwise(template.stages), strict=True):
        groups, ends = [template.group_of(stage) for stage in stages], tables[receiver]
        if stages[0].group.node == stages[1].group.node:
            times.append(inside_ns(ends, groups[0], ends.tensors[-1]))
        else:
            times.append(between_ns(ends, *groups))
    return np.array(times, dtype=np.int64)


def between_ns(tables: CostTables, i: int, j: int) -> int:
    """Time of one message between nodes of groups i and j, to a stage with these tables."""
    cluster = tables.instance.cluster
    links = [(end, cluster.groups[end].inter_node) for end in (i, j)]
    links += [(end, link) for end in (i, j) for link in cluster.links_among((i, j))]
    return max(outside_ns(tables, end, 1, link, tables.tensors[-1]) for end, link in links)


def tied_ns(tables: CostTables, j: int, across: Sequence[Link]) -> tuple[int, int]:
    """All-reduce of the tied matrix inside a node of group j, and between two nodes.

    across: links between the zones of a template. Of several zones it is taken to cross the slowest
    link between them, wherever its ends are.
    """
    group = tables.instance.cluster.groups[j]
    links = group.inter_node, *across
    between = max(embedding_ns(tables, j, tables.config.degrees[j].tp, link) for link in links)
    return embedding_ns(tables, j, 1, group.intra_node), between


def exchange_times_ns(instance: Instance, design: Design, most_pipelines: int) -> tuple[int, ...]:
    """Time on the slowest node of a design, with 1, 2, .. `most_pipelines` of any design."""
    cluster, template = instance.cluster, design.template
    tables = {
        gpus: stage_tables(instance, design.strategy, gpus, template.num_stages)
        for gpus in {stage.degrees.tp for stage in template.stages}
    }
    node_bytes = [0] * template.num_nodes
    for stage in template.stages:
        gpus, group = stage.degrees.tp, template.group_of(stage)
        lane_bytes = int(tables[gpus].gradient_bytes[slice(*stage.layers), group].sum())
        node_bytes[stage.group.node] += gpus * lane_bytes
    links = [cluster.groups[j].inter_node for j in template.node_groups]
    loads = [
        size / link.bandwidth_bytes_per_s for size, link in zip(node_bytes, links, strict=True)
    ]
    latency_s = max(link.latency_s for link in links)
    if between := cluster.links_among(range(len(cluster.groups))):
        loads.append(sum(node_bytes) / min(link.bandwidth_bytes_per_s for link in between))
        latency_s += max(link.latency_s for link in between)
    factor = ALL_REDUCE * (1 - instance.search.overlap.hidden_sync(template.num_stages, 1))
    return tuple(
        ceil_ns(ring_share(factor, x) * max(loads) / cluster.efficiency(x))
        + ceil_ns(ring_latency_s(factor, x, latency_s))
        for x in range(1, most_pipelines + 1)
    )
