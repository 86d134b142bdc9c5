"""Shapes in which every stage has degrees of its own, and the places that it may have.

Beside those in which node groups have: of 1F1B and GPipe, with even shares, in one zone, without
groups that share sequences or experts.
"""

from collections.abc import Iterator
from typing import get_args

from formulations.costs.stage_places import Place
from formulations.instance import Instance
from formulations.instance.instance import PlainSchedule
from formulations.plan import Shape
from solver.search.shapes import (
    longest_pipeline,
    micro_batches,
    node_vectors,
    recompute_ways,
    slot_degrees,
    zero_stages,
)


def has_stage_shapes(instance: Instance) -> bool:
    """Whether an instance has any."""
    search = instance.search
    shared = 1 not in search.context_parallel or 1 not in search.expert_parallel
    return search.degrees == "per_stage" and not shared and instance.cluster.zone_link is None


def stage_places(instance: Instance, shape: Shape) -> list[Place]:
    """Node groups used, with degrees that share a micro-batch, and that nodes have slots of."""
    return [
        (j, own)
        for j, (group, count) in enumerate(
            zip(instance.cluster.groups, shape.nodes_used, strict=True)
        )
        if count
        for own in slot_degrees(instance, group.gpus_per_node, 1)
        if shape.micro_batch % own.parts == 0
    ]


def stage_shapes(instance: Instance) -> Iterator[Shape]:
    """All of them; none unless the instance asks for it."""
    if not has_stage_shapes(instance):
        return
    for vector in node_vectors(instance):
        gpus = sum(
            n * group.gpus_per_node
            for n, group in zip(vector, instance.cluster.groups, strict=True)
        )
        yield from _on_nodes(instance, vector, gpus)


def _on_nodes(instance: Instance, vector: tuple[int, ...], gpus: int) -> Iterator[Shape]:
    search = instance.search
    schedules = [one for one in search.schedule if one in get_args(PlainSchedule)]
    for b in micro_batches(instance):
        total = instance.workload.global_batch // b
        for dp in range(1, gpus // 2 + 1):
            if total % dp or (search.data_parallel and dp not in search.data_parallel):
                continue
            for pp in range(2, min(longest_pipeline(instance), gpus // dp) + 1):
                if search.pipeline_parallel and pp not in search.pipeline_parallel:
                    continue
                yield from (
                    Shape(
                        degrees=(),
                        dp=dp,
                        pp=pp,
                        micro_batch=b,
                        schedule=schedule,
                        recompute=recompute,
                        zero=zero,
                        nodes_used=vector,
                    )
                    for schedule in schedules
                    for zero in zero_stages(instance, 2, pp, 1)
                    for recompute in recompute_ways(instance, zero)
                )
