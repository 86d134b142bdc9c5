"""What one pipeline of a template costs, stage by stage: what the simulator needs.

A stage on g GPUs is a tensor-parallel group of g. A message to it from another node crosses the
links of both nodes g times, as every GPU needs it whole; with scatter and gather once, in parts.
All messages count as the largest ones of the chain.
Pipelines keep whole optimizer states, so that a layer survives in every other pipeline (ZeRO 0).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from formulations.costs.compute import has_times
from formulations.costs.memory import LayerMemory
from formulations.costs.tables import Array, CostTables, build_tables
from formulations.costs.transfers import embedding_ns, inside_ns, outside_ns
from formulations.errors import PlanError
from formulations.fleet import Strategy
from formulations.instance import Cluster, Instance
from formulations.instance.instance import ScheduleName
from formulations.plan import Shape, uniform_degrees
from formulations.schedules import in_flight
from formulations.template import Template, TemplateStage


@dataclass(frozen=True)
class TemplateCosts:
    """Integers, ns and bytes; p stages.

    forward_ns, backward_ns: [p] per micro-batch. send_ns, send_back_ns: [p - 1] from stage k to
    k + 1 and back. optimizer_ns: [p] after the last backward. embedding_ns: all-reduce between the
    first and the last stage, 0 if there is none. memory_bytes: [p] per GPU without activations,
    activation_bytes: [p] per micro-batch in flight, limit_bytes: [p].
    """

    schedule: ScheduleName
    blocking_sends: bool
    tied: bool
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
        held = [in_flight(self.schedule, p, k, micro_batches) for k in range(p)]
        return self.memory_bytes + np.array(held, dtype=np.int64) * self.activation_bytes


def template_costs(instance: Instance, strategy: Strategy, template: Template) -> TemplateCosts:
    """Costs of a template whose node groups and GPUs the cluster has; PlanError without times."""
    stages = template.stages
    gpus = {stage.gpus for stage in stages}
    tables = {g: stage_tables(instance, strategy, g, len(stages)) for g in gpus}
    groups = [template.node_groups[stage.node] for stage in stages]
    for k, (stage, j) in enumerate(zip(stages, groups, strict=True)):
        if not has_times(instance, instance.cluster.groups[j], stage.gpus):
            found = f"{stage.gpus} GPUs, for which the profile has no times"
            raise PlanError(f"stages[{k}]", found, "degrees of the profile")
    own = [tables[stage.gpus] for stage in stages]

    def sums(name: str, tables: Sequence[CostTables | LayerMemory] = own) -> Array:
        found = [
            getattr(table, name)[slice(*stage.layers)]
            for table, stage in zip(tables, stages, strict=True)
        ]
        each = [
            layers.sum(axis=0)[group] if layers.ndim > 1 else layers.sum()
            for layers, group in zip(found, groups, strict=True)
        ]
        return np.array(each, dtype=np.int64)

    memory = [table.memory[j] for table, j in zip(own, groups, strict=True)]
    workspace = [
        int(held.workspace_bytes[slice(*stage.layers)].max(initial=0))
        for held, stage in zip(memory, stages, strict=True)
    ]
    fixed = np.array([held.fixed_bytes for held in memory], dtype=np.int64)
    return TemplateCosts(
        schedule=strategy.schedule,
        blocking_sends=instance.search.blocking_sends,
        tied=own[0].tied,
        forward_ns=sums("forward_ns"),
        backward_ns=sums("backward_ns"),
        send_ns=_sends(own, template, 1),
        send_back_ns=_sends(own, template, 0),
        optimizer_ns=sums("optimizer_ns"),
        embedding_ns=_embedding_ns(own, template),
        memory_bytes=fixed + sums("static_bytes", memory) + np.array(workspace, dtype=np.int64),
        activation_bytes=sums("activation_bytes", memory),
        limit_bytes=own[0].capacity_bytes[groups],
    )


def stage_tables(instance: Instance, strategy: Strategy, gpus: int, num_stages: int) -> CostTables:
    """Costs of stages on `gpus` GPUs each, in pipelines of so many stages."""
    shape = Shape(
        degrees=uniform_degrees(instance, gpus),
        dp=1,
        pp=num_stages,
        micro_batch=strategy.micro_batch,
        schedule=strategy.schedule,
        recompute=(strategy.recompute,),
        zero=0,
        nodes_used=tuple(group.nodes for group in instance.cluster.groups),
    )
    return build_tables(instance, shape)


def _sends(own: list[CostTables], template: Template, receiver: int) -> Array:
    """[p - 1] messages across each boundary, to its second stage (1) or to its first (0)."""
    found = []
    for tables, stages in zip(pairwise(own), pairwise(template.stages), strict=True):
        first, second = stages
        groups = [template.node_groups[stage.node] for stage in stages]
        if first.node == second.node:
            found.append(inside_ns(tables[receiver], groups[0], tables[receiver].tensors[-1]))
        else:
            found.append(between_ns(tables[receiver], *groups))
    return np.array(found, dtype=np.int64)


def between_ns(tables: CostTables, i: int, j: int) -> int:
    """Time of one message between nodes of groups i and j, to a stage with these tables."""
    cluster = tables.instance.cluster
    links = [(one, cluster.groups[one].inter_node) for one in (i, j)]
    zones = cluster.zone_of_group
    zone_links = [cluster.zone_link] if cluster.zone_link and zones[i] != zones[j] else []
    links += [(one, link) for one in (i, j) for link in zone_links]
    return max(outside_ns(tables, one, 1, link, tables.tensors[-1]) for one, link in links)


def _embedding_ns(own: list[CostTables], template: Template) -> int:
    """All-reduce of the tied matrix between the first stage and the last, over the slower link."""
    first, last = template.stages[0], template.stages[-1]
    times = [_copy_ns(own[0], template, first, last), _copy_ns(own[-1], template, last, first)]
    return max(times)


def _copy_ns(
    tables: CostTables, template: Template, stage: TemplateStage, other: TemplateStage
) -> int:
    """The same, as the links of `stage`'s node and its GPUs decide it.

    In a template of several zones it is taken to cross between them, wherever its ends are.
    """
    cluster, group = tables.instance.cluster, template.node_groups[stage.node]
    if stage.node == other.node:
        return embedding_ns(tables, group, 1, cluster.groups[group].intra_node)
    links = [cluster.groups[group].inter_node]
    if cluster.zone_link and in_several_zones(cluster, template.node_groups):
        links.append(cluster.zone_link)
    return max(embedding_ns(tables, group, stage.gpus, link) for link in links)


def in_several_zones(cluster: Cluster, groups: Iterable[int]) -> bool:
    """Whether nodes of these groups lie in several zones."""
    return len({cluster.zone_of_group[j] for j in groups}) > 1
