"""The plan space, worked out again: which shapes a certificate must close.

Nodes used: per group 0 up to all, not none at all; all nodes if none may be idle; within the limit
on the price. For such a vector: tp divides the GPU count of every node used and the key and value
heads (Megatron-LM's `num_query_groups % tensor_model_parallel_size`), dp * pp slots fill
the nodes, no stage lacks a layer (a block, unless stages without one are allowed), b divides the
global batch and into the parts of every slot, and every replica has a micro-batch (all the same
number, if even). Parts that all slots have are left out where the space has as many more replicas
of smaller micro-batches, which are the same plans. ZeRO stages, and what the target runs of
degrees, are those of `formulations.launch`. Chunks per device are for schedules that interleave: on
several devices, with a layer (block) for each chunk, and micro-batches per replica, all the same
number, that the devices divide.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, get_args

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


#: Of the plan space of no nodes, before anything is chosen.
_UNDECIDED = Key((), (), 1, 1, 1, "1f1b", ("none",), 0, 1)

#: Fields of a shape that are chosen together, and what they may be beside the fields before.
_Level = tuple[tuple[str, ...], Callable[[Key], Iterable[tuple[object, ...]]]]


class Departure(NamedTuple):
    """The first fields of a shape that no shape of the plan space has beside those before them."""

    fields: tuple[str, ...]
    values: tuple[object, ...]
    allowed: list[tuple[object, ...]]
    before: list[str]


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

    @cached_property
    def _levels(self) -> Sequence[_Level]:
        """Fields of a shape in the order in which they are chosen, each with its choices.

        These depend on the nodes used and on fields of the levels before alone.
        """
        return (
            (("degrees",), self._degrees),
            (("dp", "pp"), self._pipelines),
            (("micro_batch",), self._micro_batches),
            (("ep", "etp"), self._experts),
            (("zero",), self._zero),
            (("schedule", "vpp"), self._schedules),
            (("recompute",), self._recompute),
        )

    def keys(self, nodes_used: Nodes) -> Iterator[Key]:
        """All shapes that use exactly these nodes."""
        return self._completed(_UNDECIDED._replace(nodes_used=nodes_used), 0)

    def _completed(self, key: Key, level: int) -> Iterator[Key]:
        """All shapes that are decided as this one on the levels before."""
        if level == len(self._levels):
            yield key
            return
        fields, choices = self._levels[level]
        for values in choices(key):
            chosen: dict[str, Any] = dict(zip(fields, values, strict=True))
            yield from self._completed(key._replace(**chosen), level + 1)

    def departure(self, key: Key) -> Departure | None:
        """Where a shape leaves the plan space of its nodes; None for one of `keys`."""
        before = ["nodes_used"]
        for fields, choices in self._levels:
            values, allowed = tuple(getattr(key, name) for name in fields), list(choices(key))
            if values not in allowed:
                return Departure(fields, values, allowed, before)
            before += fields
        return None

    def _degrees(self, key: Key) -> Iterator[tuple[tuple[Degrees, ...]]]:
        yield from ((degrees,) for degrees in self.degrees.of(key.nodes_used))
        search = self.search
        shared = 1 not in search.context_parallel or 1 not in search.expert_parallel
        shared |= "tp" not in search.expert_tensor_parallel
        if search.degrees == "per_stage" and not shared and not self.instance.cluster.has_zones:
            yield ((),)

    def _pipelines(self, key: Key) -> Iterator[tuple[int, int]]:
        groups = self.instance.cluster.groups
        if not key.degrees:
            yield from self._stage_pipelines(key.nodes_used)
            return
        known = zip(key.nodes_used, groups, key.degrees, strict=True)
        slots = sum(n * (group.gpus_per_node // own.width) for n, group, own in known)
        yield from self.pipelines.filling(slots)

    def _stage_pipelines(self, nodes_used: Nodes) -> Iterator[tuple[int, int]]:
        """Of several stages, whose slots are as small as any on these nodes."""
        search, groups = self.search, self.instance.cluster.groups
        used = [(n, group.gpus_per_node) for n, group in zip(nodes_used, groups, strict=True) if n]
        slots = [own.width for _, size in used for own in self.degrees.slots(size, 1)]
        if not slots:
            return
        most = sum(n * size for n, size in used) // min(slots)  # slots of all stages
        for dp in range(1, most + 1):
            for pp in range(2, min(self.pipelines.most_stages, most // dp) + 1):
                if allowed(search.pipeline_parallel, pp) and allowed(search.data_parallel, dp):
                    yield dp, pp

    def _micro_batches(self, key: Key) -> Iterator[tuple[int]]:
        total = self.instance.workload.global_batch
        for b in self.pipelines.micro_batches:
            if not key.degrees:
                fits = total % (b * key.dp) == 0
            else:
                fits = not any(b % degrees.parts for degrees in key.degrees)
                fits = fits and self.pipelines.shares_exist(key.dp, b)
                fits = fits and not self._by_replicas(key, b)
            if fits:
                yield (b,)

    def _by_replicas(self, key: Key, b: int) -> bool:
        """Whether there are n times more replicas of smaller micro-batches, in place of parts.

        Where n divides the parts of all slots that is the same: each n-th of a slot is a replica.
        """
        return any(
            all(degrees.parts % n == 0 for degrees in key.degrees)
            and allowed(self.search.data_parallel, key.dp * n)
            and b // n in self.pipelines.micro_batches
            for n in range(2, key.degrees[0].parts + 1)
        )

    def _experts(self, key: Key) -> Sequence[tuple[int, int | None]]:
        if not key.degrees:
            return [(1, None)]
        return self.degrees.of_experts(key.nodes_used, key.degrees, key.dp)

    def _schedules(self, key: Key) -> Sequence[tuple[ScheduleName, int]]:
        if key.degrees:
            return self.pipelines.schedules(key.dp, key.pp, key.micro_batch)
        return [(one, 1) for one in sorted(set(self.search.schedule)) if one in ("1f1b", "gpipe")]

    def _zero(self, key: Key) -> Iterator[tuple[int]]:
        plain = Shape.model_validate(key._asdict())
        yield from ((zero,) for zero in zero_choices(self.instance, plain))

    def _recompute(self, key: Key) -> Iterator[tuple[tuple[Recompute, ...]]]:
        yield from ((ways,) for ways in self.recomputations(key.zero))

    @cached_property
    def recompute_ways(self) -> tuple[Recompute, ...]:
        """The ways to recompute that are allowed, least time first."""
        return tuple(way for way in get_args(Recompute) if way in self.search.recompute)

    def recomputations(self, zero: int) -> list[tuple[Recompute, ...]]:
        """What the devices of a shape choose among: all ways, or one for all."""
        alike = self.instance.search.recompute_per == "plan" or zero > 1
        return [(way,) for way in self.recompute_ways] if alike else [self.recompute_ways]
