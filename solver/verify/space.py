"""The plan space, worked out again: which shapes a certificate must close.

Nodes used: per group 0 up to all, not none at all; all nodes if none may be idle; within the limit
on the price. For such a vector: tp divides the GPU count of every node used and the key and value
heads (Megatron-LM's `num_query_groups % tensor_model_parallel_size`), dp * pp slots fill
the nodes, no stage lacks a layer (a block, unless stages without one are allowed), b divides the
global batch, and every replica has a micro-batch (all the same number, if even). ZeRO stages, and
what the target runs of degrees, are those of `formulations.launch`. Chunks per device are for
schedules that interleave: on several devices, with a layer (block) for each chunk, and
micro-batches per replica, all the same number, that the devices divide.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple, get_args

from formulations.instance import Instance
from formulations.instance.instance import ScheduleName, SearchSpace
from formulations.instance.workload import Recompute
from formulations.launch import zero_choices
from formulations.plan import Degrees, Shape
from solver.verify.degree_choices import DegreeChoices
from solver.verify.node_choices import NodeChoices, Nodes
from solver.verify.pipeline_choices import PipelineChoices, allowed


class Key(NamedTuple):
    """A shape as a plain tuple: quick to hash and to compare."""

    nodes_used: Nodes
    degrees: tuple[Degrees, ...]
    dp: int
    pp: int
    micro_batch: int
    schedule: ScheduleName
    recompute: tuple[Recompute, ...]
    zero: int
    vpp: int
    ep: int = 1
    etp: int | None = None


def key_of(shape: Shape) -> Key:
    """The shape's fields."""
    return Key(
        shape.nodes_used,
        shape.degrees,
        shape.dp,
        shape.pp,
        shape.micro_batch,
        shape.schedule,
        shape.recompute,
        shape.zero,
        shape.vpp,
        shape.ep,
        shape.etp,
    )


@dataclass(frozen=True)
class PlanSpace:
    """Every choice of nodes, and every shape, that the instance allows."""

    instance: Instance

    @property
    def search(self) -> SearchSpace:
        """What may be chosen."""
        return self.instance.search

    @cached_property
    def nodes(self) -> NodeChoices:
        """All choices of nodes."""
        return NodeChoices(self.instance)

    @cached_property
    def degrees(self) -> DegreeChoices:
        """How the GPUs of chosen nodes may share stages."""
        return DegreeChoices(self.instance)

    @cached_property
    def pipelines(self) -> PipelineChoices:
        """How the slots may make pipelines, and what runs on these."""
        return PipelineChoices(self.instance)

    def partial_keys(
        self, nodes_used: Nodes
    ) -> Iterator[tuple[tuple[Degrees, ...], int, int, int]]:
        """All (degrees, dp, pp, b) on these nodes."""
        groups = self.instance.cluster.groups
        for degrees in self.degrees.of(nodes_used):
            known = zip(nodes_used, groups, degrees, strict=True)
            slots = sum(n * (group.gpus_per_node // own.width) for n, group, own in known)
            for dp, pp in self.pipelines.filling(slots):
                for b in self.pipelines.micro_batches:
                    if self.pipelines.shares_exist(dp, b) and not any(
                        b % own.parts for own in degrees
                    ):
                        yield degrees, dp, pp, b

    def keys(self, nodes_used: Nodes) -> Iterator[Key]:
        """All shapes that use exactly these nodes."""
        yield from self.stage_keys(nodes_used)
        for degrees, dp, pp, b in self.partial_keys(nodes_used):
            schedules = self.pipelines.schedules(dp, pp, b)
            for ep, etp in self.degrees.of_experts(nodes_used, degrees, dp):
                plain = Key(nodes_used, degrees, dp, pp, b, "1f1b", ("none",), 0, 1, ep, etp)
                yield from self._with_strategies(plain, schedules)

    def _with_strategies(
        self, plain: Key, schedules: Sequence[tuple[ScheduleName, int]]
    ) -> Iterator[Key]:
        """The shape with all strategies, and these schedules."""
        choices = zero_choices(self.instance, Shape.model_validate(plain._asdict()))
        for (schedule, vpp), zero in product(schedules, choices):
            for ways in self.recomputations(zero):
                yield plain._replace(schedule=schedule, vpp=vpp, zero=zero, recompute=ways)

    def stage_keys(self, nodes_used: Nodes) -> Iterator[Key]:
        """All shapes on these nodes whose stages have degrees of their own."""
        search, groups = self.search, self.instance.cluster.groups
        shared = 1 not in search.context_parallel or 1 not in search.expert_parallel
        shared |= "tp" not in search.expert_tensor_parallel
        zones = self.instance.cluster.has_zones
        if search.degrees != "per_stage" or shared or zones:
            return
        used = [(n, group.gpus_per_node) for n, group in zip(nodes_used, groups, strict=True) if n]
        slots = [own.width for _, size in used for own in self.degrees.slots(size, 1)]
        if not slots:
            return
        most = sum(n * size for n, size in used) // min(slots)  # slots of all stages
        schedules = [
            (name, 1) for name in sorted(set(search.schedule)) if name in ("1f1b", "gpipe")
        ]
        for b, dp in product(self.pipelines.micro_batches, range(1, most + 1)):
            if self.instance.workload.global_batch % (b * dp):
                continue
            for pp in range(2, min(self.pipelines.most_stages, most // dp) + 1):
                if allowed(search.pipeline_parallel, pp) and allowed(search.data_parallel, dp):
                    plain = Key(nodes_used, (), dp, pp, b, "1f1b", ("none",), 0, 1)
                    yield from self._with_strategies(plain, schedules)

    @cached_property
    def recompute_ways(self) -> tuple[Recompute, ...]:
        """The ways to recompute that are allowed, least time first."""
        return tuple(way for way in get_args(Recompute) if way in self.search.recompute)

    def recomputations(self, zero: int) -> list[tuple[Recompute, ...]]:
        """What the devices of a shape choose among: all ways, or one for all."""
        alike = self.instance.search.recompute_per == "plan" or zero > 1
        return [(way,) for way in self.recompute_ways] if alike else [self.recompute_ways]
