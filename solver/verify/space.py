"""The plan space, worked out again: which shapes a certificate must close.

Nodes used: per group 0 up to all, not none at all; all nodes if none may be idle; within the limit
on the price. For such a vector: tp divides the GPU count of every node used and the key and value
heads (Megatron-LM's `num_query_groups % tensor_model_parallel_size`), dp * pp slots fill
the nodes, no stage lacks a layer (a block, unless stages without one are allowed), b divides the
global batch, and every replica has a micro-batch (all the same number, if even). With one replica
nothing can be split, so of the ZeRO stages the least counts; 2 and 3 are for one pipeline stage and
even micro-batches, where torchtitan runs no others. Chunks per device are for schedules that
interleave: on several devices, with a layer (block) for each chunk, and micro-batches per replica,
all the same number, that the devices divide.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple, get_args

from formulations.instance import Instance
from formulations.instance.instance import ScheduleName, SearchSpace
from formulations.instance.workload import Recompute
from formulations.plan import Degrees, Shape, uniform_degrees
from formulations.schedules import SCHEDULES
from solver.verify.findings import NOISE
from solver.verify.launch import runs_degrees, runs_parts, runs_zero

LARGEST_MICRO_BATCH = 64  #: tried where the instance names none

Nodes = tuple[int, ...]  #: number of nodes used, per node group


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
    ep: int


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
    )


def _doubling(largest: int) -> list[int]:
    sizes = [1]
    while sizes[-1] * 2 <= largest:
        sizes.append(sizes[-1] * 2)
    return sizes


def _allowed(choice: Sequence[int] | None, value: int) -> bool:
    return choice is None or value in choice


def price_usd_per_hour(instance: Instance, nodes_used: Nodes) -> float:
    """Rent of these numbers of nodes."""
    rents = [group.price_usd_per_hour for group in instance.cluster.groups]
    return sum(n * rent for n, rent in zip(nodes_used, rents, strict=True))


@dataclass(frozen=True)
class PlanSpace:
    """Every choice of nodes, and every shape, that the instance allows."""

    instance: Instance

    @property
    def search(self) -> SearchSpace:
        """What may be chosen."""
        return self.instance.search

    @cached_property
    def num_blocks(self) -> int:
        """Blocks of the chain."""
        return sum(run.count for run in self.instance.workload.layer_runs if run.layer.is_block)

    @cached_property
    def most_stages(self) -> int:
        """Largest number of stages that the chain fills, and that the target runs."""
        if self.instance.workload.tied_embeddings and self.instance.search.target == "torchtitan":
            return 1
        if self.instance.search.embedding_only_stages:
            return len(self.instance.workload.layers)
        return self.num_blocks

    def affordable(self, nodes_used: Nodes) -> bool:
        """Whether the rent of the nodes is within the limit."""
        limit = self.instance.limits.max_price_usd_per_hour
        rent = price_usd_per_hour(self.instance, nodes_used)
        return limit is None or rent <= limit * (1 + NOISE)

    def allows_nodes(self, nodes_used: Nodes) -> bool:
        """Whether a plan may use exactly these nodes."""
        counts = [group.nodes for group in self.instance.cluster.groups]
        if len(nodes_used) != len(counts) or not any(nodes_used):
            return False
        least = [0] * len(counts) if self.instance.search.idle_nodes else counts
        inside = all(a <= n <= b for a, n, b in zip(least, nodes_used, counts, strict=True))
        return inside and self.affordable(nodes_used)

    @cached_property
    def nodes(self) -> frozenset[Nodes]:
        """All choices of nodes."""
        return frozenset(self.node_choices())

    def node_choices(self) -> Iterator[Nodes]:
        """The same one by one, fewest nodes of the first groups first."""
        counts = [group.nodes for group in self.instance.cluster.groups]
        idle = self.instance.search.idle_nodes
        return filter(self.allows_nodes, product(*(range(0 if idle else n, n + 1) for n in counts)))

    @cached_property
    def tensor_degrees(self) -> list[int]:
        """Sizes of tensor groups that share the heads evenly."""
        groups = self.instance.cluster.groups
        given = self.instance.search.tensor_parallel
        sizes = _doubling(max(group.gpus_per_node for group in groups)) if given is None else given
        return [tp for tp in sorted(set(sizes)) if self.instance.workload.kv_heads % tp == 0]

    def degrees(self, nodes_used: Nodes) -> list[tuple[Degrees, ...]]:
        """Per node group how the GPUs of a slot share its stage."""
        nodes = [group.gpus_per_node for group in self.instance.cluster.groups]
        used = [j for j, count in enumerate(nodes_used) if count]
        found: list[tuple[Degrees, ...]] = []
        alike = self._alike(nodes_used)
        for cp in sorted(set(self.search.context_parallel)):
            slots = [self.slots(nodes[j], cp) for j in used]
            if self.search.degrees == "uniform":
                shared = (own for own in slots[0] if all(own in others for others in slots))
                plain = [own for own in shared if own.parts == 1]
                found += [uniform_degrees(self.instance, own.tp, cp) for own in plain]
                continue
            for own in product(*slots):
                named = dict(zip(used, own, strict=True))
                swapped = ((named[i], named[j]) for i, j in alike)
                if any((a.tp, a.parts) > (b.tp, b.parts) for a, b in swapped):
                    continue
                if not any(all(d.parts % n == 0 for d in own) for n in range(2, max(nodes) + 1)):
                    found.append(tuple(named.get(j, own[0]) for j in range(len(nodes))))
        return found

    def _alike(self, nodes_used: Nodes) -> list[tuple[int, int]]:
        """Groups used that differ in name and size alone, and not in the nodes used of them.

        Plans of one with the degrees of the other are the same.
        """
        groups = self.instance.cluster.groups
        own = [group.model_dump(exclude={"name", "nodes"}) for group in groups]
        used = [j for j, count in enumerate(nodes_used) if count]
        pairs = ((i, j) for i in used for j in used if i < j and nodes_used[i] == nodes_used[j])
        return [(i, j) for i, j in pairs if own[i] == own[j]]

    def slots(self, gpus: int, cp: int) -> list[Degrees]:
        """Slots of which a whole number make a node of so many GPUs, cp of them per sequence."""
        pairs = product(self.tensor_degrees, range(1, gpus + 1))
        known = (Degrees(tp=tp, parts=n, cp=cp) for tp, n in pairs if gpus % (tp * n * cp) == 0)
        return [own for own in known if cp == 1 or self._shares_sequences(own)]

    def _shares_sequences(self, own: Degrees) -> bool:
        """Whether tensor groups can share every sequence: two pieces per GPU, or whole heads."""
        workload, group = self.instance.workload, own.cp * own.tp
        if self.search.context_method == "all_to_all" and workload.kv_heads % group:
            return False
        return workload.sequence_length % (2 * group) == 0

    def expert_degrees(self, nodes_used: Nodes, degrees: Sequence[Degrees], dp: int) -> list[int]:
        """GPUs that share the experts: they divide those of a stage, and lie in one zone.

        More than one only where all node groups used have equal degrees, and tensor groups split
        the sequence.
        """
        groups, found = self.instance.cluster.groups, []
        used = [j for j, n in enumerate(nodes_used) if n]
        apart = len({groups[j].zone for j in used}) > 1
        alike = len({degrees[j] for j in used}) == 1
        split = self.search.sequence_parallel or all(degrees[j].tp == 1 for j in used)
        for ep in sorted(set(self.search.expert_parallel)):
            ranks = [dp * degrees[j].parts * degrees[j].cp for j in used]
            nodes = [groups[j].gpus_per_node // degrees[j].tp for j in used]
            fits = not any(count % ep for count in (ranks + nodes if apart else ranks))
            if ep == 1 or (fits and alike and split):
                found.append(ep)
        return found

    @cached_property
    def micro_batches(self) -> list[int]:
        """Micro-batch sizes that divide the global batch."""
        given = self.instance.search.micro_batch
        sizes = _doubling(LARGEST_MICRO_BATCH) if given is None else given
        return [b for b in sorted(set(sizes)) if self.instance.workload.global_batch % b == 0]

    def zero_stages(self, ranks: int, pp: int, ep: int) -> list[int]:
        """ZeRO stages; of several that are equal where a parameter is on one GPU, the least.

        Those that exchange gradients with every micro-batch need one stage, replicas with equally
        many, and GPUs with all experts.
        """
        exchanges = pp == ep == 1 and self.search.micro_batches == "even"
        most = 3 if exchanges else 1
        found: list[int] = [zero for zero in range(most + 1) if zero in self.search.zero]
        if ranks == 1:
            return found[:1]
        return [zero for zero in found if runs_zero(self.search.target, zero, pp)]

    def pipelines(self, slots: int) -> list[tuple[int, int]]:
        """Pairs (dp, pp) that fill the slots."""
        search = self.instance.search
        return [
            (slots // pp, pp)
            for pp in range(1, min(slots, self.most_stages) + 1)
            if slots % pp == 0
            and _allowed(search.pipeline_parallel, pp)
            and _allowed(search.data_parallel, slots // pp)
        ]

    def shares_exist(self, dp: int, micro_batch: int) -> bool:
        """Whether the micro-batches of a step can be shared among dp replicas."""
        total = self.instance.workload.global_batch // micro_batch
        return total >= dp and (self.instance.search.micro_batches == "uneven" or total % dp == 0)

    def partial_keys(
        self, nodes_used: Nodes
    ) -> Iterator[tuple[tuple[Degrees, ...], int, int, int]]:
        """All (degrees, dp, pp, b) on these nodes."""
        groups = self.instance.cluster.groups
        for degrees in self.degrees(nodes_used):
            known = zip(nodes_used, groups, degrees, strict=True)
            slots = sum(n * (group.gpus_per_node // own.width) for n, group, own in known)
            for dp, pp in self.pipelines(slots):
                if not runs_degrees(self.instance, degrees, nodes_used, dp, pp):
                    continue
                for b in self.micro_batches:
                    if self.shares_exist(dp, b) and not any(b % own.parts for own in degrees):
                        yield degrees, dp, pp, b

    def keys(self, nodes_used: Nodes) -> Iterator[Key]:
        """All shapes that use exactly these nodes."""
        yield from self.stage_keys(nodes_used)
        for degrees, dp, pp, b in self.partial_keys(nodes_used):
            experts = self.expert_degrees(nodes_used, degrees, dp)
            used = [own.parts for own, count in zip(degrees, nodes_used, strict=True) if count]
            for ep, (schedule, vpp) in product(experts, self.schedules(dp, pp, b)):
                for zero in self.zero_stages(dp * max(own.copies for own in degrees), pp, ep):
                    if not runs_parts(self.search.target, used, zero):
                        continue
                    for recompute in self.recomputations(zero):
                        yield Key(
                            nodes_used, degrees, dp, pp, b, schedule, recompute, zero, vpp, ep
                        )

    def stage_keys(self, nodes_used: Nodes) -> Iterator[Key]:
        """All shapes on these nodes whose stages have degrees of their own."""
        search, groups = self.search, self.instance.cluster.groups
        shared = 1 not in search.context_parallel or 1 not in search.expert_parallel
        zones = self.instance.cluster.zone_link is not None
        if search.degrees != "per_stage" or shared or zones:
            return
        gpus = sum(n * group.gpus_per_node for n, group in zip(nodes_used, groups, strict=True))
        plain = sorted({"1f1b", "gpipe"} & set(search.schedule))
        for b, dp in product(self.micro_batches, range(1, gpus + 1)):
            if self.instance.workload.global_batch % (b * dp):
                continue
            for pp in range(2, min(self.most_stages, gpus // dp) + 1):
                if _allowed(search.pipeline_parallel, pp) and _allowed(search.data_parallel, dp):
                    for schedule, zero in product(plain, self.zero_stages(2, pp, 1)):
                        for ways in self.recomputations(zero):
                            yield Key(nodes_used, (), dp, pp, b, schedule, ways, zero, 1, 1)

    @cached_property
    def recompute_ways(self) -> tuple[Recompute, ...]:
        """The ways to recompute that are allowed, least time first."""
        allowed = self.instance.search.recompute
        return tuple(way for way in get_args(Recompute) if way in allowed)

    def recomputations(self, zero: int) -> list[tuple[Recompute, ...]]:
        """What the devices of a shape choose among: all ways, or one for all."""
        alike = self.instance.search.recompute_per == "plan" or zero > 1
        return [(way,) for way in self.recompute_ways] if alike else [self.recompute_ways]

    def schedules(self, dp: int, pp: int, micro_batch: int) -> list[tuple[ScheduleName, int]]:
        """Schedules, each with its chunks per device."""
        search, total = self.instance.search, self.instance.workload.global_batch // micro_batch
        grouped = search.micro_batches == "even" and pp > 1 and total // dp % pp == 0
        found: list[tuple[ScheduleName, int]] = []
        for schedule in sorted(set(search.schedule)):
            if not SCHEDULES[schedule].interleaves:
                found.append((schedule, 1))
            elif grouped:
                chunks = sorted(set(search.virtual_pipeline))
                found += [(schedule, v) for v in chunks if pp * v <= self.most_stages]
        return found
