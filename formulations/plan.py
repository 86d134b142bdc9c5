"""A plan: the decisions of PROBLEM section 3, complete enough to be launched and judged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Literal, NamedTuple

from pydantic import Field

from formulations.instance import Instance
from formulations.instance.record import Batch, Count, Index, Record, can_be_simulated
from formulations.instance.search import Chunking, ScheduleName, ZeroStage
from formulations.instance.workload import Recompute
from formulations.units import ceil_div

STATES_SPLIT, GRADIENTS_SPLIT, PARAMETERS_SPLIT = 1, 2, 3  # from which ZeRO stage on


class Degrees(Record):
    """How the GPUs of one slot share a stage: `parts` times `cp` tensor groups of `tp`.

    Every part runs b / parts sequences of each micro-batch, of which each of its cp tensor groups
    has 1 / cp. They lie on one node.
    """

    tp: Count
    parts: Count = 1
    cp: Count = 1  #: alike on all node groups

    @property
    def copies(self) -> int:
        """Tensor groups of a slot: each has the parameters of a stage."""
        return self.parts * self.cp

    @property
    def width(self) -> int:
        """GPUs of a slot."""
        return self.tp * self.copies

    def sequences(self, micro_batch: int) -> int:
        """Sequences of a micro-batch on each part. Raises ValueError where it does not divide."""
        each, rest = divmod(micro_batch, self.parts)
        if rest:
            raise ValueError(f"{micro_batch} sequences for {self.parts} equal parts")
        return each


class Splits(NamedTuple):
    """Which tensors of a layer are split among GPUs that would have the same."""

    states: bool
    gradients: bool  #: reduced with every micro-batch
    parameters: bool  #: gathered before every pass


class Configuration(Record):
    """Everything that is fixed before the split, the node order and the micro-batch shares."""

    #: Per node group of the cluster; of groups not used, any. None where every stage has its own,
    #: alike on all replicas: these lie side by side in a node, or fill whole nodes of a group.
    degrees: tuple[Degrees, ...]
    dp: Count
    pp: Count
    micro_batch: Count  #: sequences
    schedule: ScheduleName
    #: What a stage may choose among, least time first, see `formulations.costs.stage_costs`.
    recompute: tuple[Recompute, ...] = Field(min_length=1, max_length=3)
    zero: ZeroStage  #: what replicas split: 1 optimizer states, 2 gradients too, 3 parameters too
    #: Of ZeRO 3: are gradients reduced with every micro-batch, or whole until after the last?
    sync_each_batch: bool = Field(True, exclude_if=bool)
    #: Shard groups of equally many replicas in a row: each has all of what ZeRO splits.
    optimizer_instances: Count = 1
    nodes_used: tuple[Index, ...]  #: per node group of the cluster
    vpp: Count = 1  #: chunks of layers per GPU: Megatron's virtual pipeline
    ep: Count = 1  #: ranks of a stage that share the experts, see `formulations.costs.experts`
    etp: Literal[1] | None = None  #: GPUs that split an expert; None: those of a tensor group
    #: Micro-batches that go through a chunk before the next one has its turn; None: pp of them.
    microbatch_group: Count | None = None

    @property
    def slots(self) -> int:
        """Number of slots; slot k * dp + r runs stage k of replica r."""
        return self.dp * self.pp

    @property
    def num_stages(self) -> int:
        """Virtual stages; stage s lies on the slots of s mod pp."""
        return self.pp * self.vpp

    @property
    def chunking(self) -> Chunking:
        """Chunks per device, and micro-batches of a group."""
        return self.vpp, self.microbatch_group

    @property
    def per_stage(self) -> bool:
        """Whether every stage has degrees of its own."""
        return not self.degrees

    @property
    def cp(self) -> int:
        """GPUs that share every sequence."""
        return 1 if self.per_stage else self.degrees[0].cp

    @property
    def groups_used(self) -> list[int]:
        """Node groups of the nodes used."""
        return [j for j, count in enumerate(self.nodes_used) if count]

    @property
    def degrees_used(self) -> list[Degrees]:
        """Those of the node groups used; none where every stage has its own."""
        return [] if self.per_stage else [self.degrees[j] for j in self.groups_used]

    @property
    def widest_tp(self) -> int:
        """GPUs of its largest tensor groups; 1 where every stage has its own."""
        return max((degrees.tp for degrees in self.degrees_used), default=1)

    def ranks(self, group: int) -> int:
        """GPUs of a stage on a node group with the same tensors, but for `expert_ranks`."""
        return self.dp * self.degrees[group].copies

    @property
    def shard_replicas(self) -> int:
        """Replicas of a shard group: among their GPUs ZeRO splits each tensor."""
        return self.dp // self.optimizer_instances

    @property
    def has_expert_grid(self) -> bool:
        """Whether experts lie otherwise on the GPUs of a stage than all else."""
        return self.ep > 1 or self.etp is not None

    def expert_lanes(self, group: int) -> int:
        """GPUs that split an expert: 1 or those of a tensor group."""
        return self.etp or self.degrees[group].tp

    def expert_grid(self, group: int) -> int:
        """GPUs of a stage with the same share of the tensors of experts."""
        return self.dp * self.degrees[group].width // self.expert_lanes(group)

    def expert_ranks(self, group: int) -> int:
        """Those of them with the same experts."""
        return max(1, self.expert_grid(group) // self.ep)

    @property
    def has_copies(self) -> bool:
        """Whether several GPUs have the same tensors, which ZeRO may split: experts, or all else.

        Taken for granted where every stage has degrees of its own.
        """
        copies = (max(self.ranks(j), self.expert_ranks(j)) for j in self.groups_used)
        return self.per_stage or max(copies) > 1

    @property
    def shards(self) -> tuple[int, ZeroStage, bool, int]:
        """All that says what replicas split, and when they exchange it."""
        return self.dp, self.zero, self.sync_each_batch, self.optimizer_instances

    @property
    def splits(self) -> Splits:
        """What replicas split; gradients that are kept until the last micro-batch are whole."""
        of_gradients = self.zero >= GRADIENTS_SPLIT and self.sync_each_batch
        return Splits(self.zero >= STATES_SPLIT, of_gradients, self.zero >= PARAMETERS_SPLIT)

    @property
    def in_lockstep(self) -> bool:
        """Whether replicas wait for each other before each layer, to reduce or gather it."""
        return self.splits.gradients or self.splits.parameters

    def own(self, split: bool, parameters: int, group: int, experts: int = 0) -> int:
        """Of the parameters of a layer on one GPU those whose like it holds, if replicas split it.

        experts: parameters besides, of experts that ep GPUs share, split among those with the same.
        """
        if not split:
            return parameters + experts
        ranks = self.shard_replicas * self.degrees[group].copies
        return ceil_div(parameters, ranks) + ceil_div(experts, self.expert_ranks(group))

    def stages_of(self, device: int) -> range:
        """Virtual stages of a device, one per chunk."""
        return range(device, self.num_stages, self.pp)


Place = tuple[int, Degrees]  #: node group, degrees of a stage on its nodes


@dataclass(frozen=True)
class ByPlace:
    """An instance, a config of it in which every stage has its own degrees, and its places [C]."""

    instance: Instance
    config: Configuration
    places: tuple[Place, ...]
    filled: tuple[int, ...] | None = None  #: GPUs of a node of every group that stages take; all

    @property
    def node_gpus(self) -> tuple[int, ...]:
        """[J] GPUs of a node of every group that stages fill."""
        return self.filled or tuple(g.gpus_per_node for g in self.instance.cluster.groups)


def simulable(instance: Instance, config: Configuration) -> bool:
    """Whether steps of the config are short enough to be simulated, however replicas share it."""
    total = instance.workload.global_batch // config.micro_batch
    even = instance.search.micro_batches == "even"
    largest_share = total // config.dp if even else total - config.dp + 1
    return can_be_simulated(config.pp * config.vpp, total, largest_share)


class Group(Record):
    """The GPUs of one node that run one stage of one replica: a slot."""

    node: Index  #: index into Cluster.node_names
    gpus: tuple[Index, ...]  #: indices inside the node


class Recomputed(Record):
    """What a stage recomputes in every backward pass: a way, and how many of its first blocks."""

    way: Recompute
    blocks: Index


class Stage(Record):
    """Layers [start, end) of the chain on one group."""

    layers: tuple[Index, Index]
    group: Group
    degrees: Degrees  #: of the group
    recomputed: Recomputed


class Replica(Record):
    """One pipeline: a copy of all layers, its micro-batches per step, its virtual stages."""

    micro_batches: Batch
    stages: tuple[Stage, ...]


class Plan(Record):
    """Configuration, node order (indices into Cluster.node_names) and replicas."""

    config: Configuration
    node_order: tuple[Index, ...]
    replicas: tuple[Replica, ...]


#: Of a device, its node group or place, micro-batches of the replica, and layers per chunk.
Choose = Callable[[int, int, int, tuple[tuple[int, int], ...]], Sequence[Recomputed]]


def uniform_degrees(instance: Instance, tp: int, cp: int = 1) -> tuple[Degrees, ...]:
    """Tensor groups of one size everywhere; one object, as many configurations have them."""
    return _uniform(tp, cp, len(instance.cluster.groups))


@cache
def _uniform(tp: int, cp: int, groups: int) -> tuple[Degrees, ...]:
    return (Degrees(tp=tp, cp=cp),) * groups


def num_gpus(instance: Instance, config: Configuration) -> int:
    """GPUs that run a stage: all slots of the nodes used."""
    if config.per_stage:
        groups = instance.cluster.groups
        return sum(n * g.gpus_per_node for g, n in zip(groups, config.nodes_used, strict=True))
    members = zip(instance.cluster.groups, config.degrees, config.nodes_used, strict=True)
    return sum(n * (g.gpus_per_node // slot.width) * slot.width for g, slot, n in members)


def slots_of_order(
    instance: Instance, degrees: Sequence[Degrees], order: Sequence[int]
) -> list[Group]:
    """Groups in rank order for node group indices in node order; equal nodes by number."""
    cluster = instance.cluster
    used = [0] * len(cluster.groups)
    slots = []
    for j in order:
        node = cluster.first_node[j] + used[j]
        used[j] += 1
        width = degrees[j].width
        for first in range(0, cluster.groups[j].gpus_per_node - width + 1, width):
            slots.append(Group(node=node, gpus=tuple(range(first, first + width))))
    return slots


def uniform_plan(
    instance: Instance,
    config: Configuration,
    order: Sequence[int],
    boundaries: Sequence[int],
    micro_batches: Sequence[int],
    recomputed: Choose,
) -> Plan:
    """The Megatron-LM plan in which all replicas share one split, see `plan_on`.

    `order`: node group index per node in node order.
    """
    groups = instance.cluster.node_groups
    slots = [(groups[g.node], g) for g in slots_of_order(instance, config.degrees, order)]
    devices = [slots[i : i + config.dp] for i in range(0, len(slots), config.dp)]
    return plan_on(config, devices, config.degrees, boundaries, micro_batches, recomputed)


def plan_on(
    config: Configuration,
    devices: Sequence[Sequence[tuple[int, Group]]],
    degrees: Sequence[Degrees],
    boundaries: Sequence[int],
    micro_batches: Sequence[int],
    recomputed: Choose,
) -> Plan:
    """The plan in which all replicas share one split.

    `devices`: [p][dp] node group or place, of which each has its `degrees`, and GPUs.
    `boundaries`: pp vpp + 1 layer indices from 0 to the number of layers. `micro_batches`: one
    number per replica. `recomputed`: what a device recomputes on a node group, or at a place, with
    so many micro-batches and these chunks of layers.
    """
    choose, layers = cache(recomputed), tuple(pairwise(boundaries))
    replicas = []
    for r, share in enumerate(micro_batches):
        stages = []
        for s, span in enumerate(layers):
            chunk, device = divmod(s, config.pp)
            column, group = devices[device][r]
            way = choose(device, column, share, layers[device :: config.pp])[chunk]
            stages.append(Stage(layers=span, group=group, degrees=degrees[column], recomputed=way))
        replicas.append(Replica(micro_batches=share, stages=tuple(stages)))
    nodes = dict.fromkeys(group.node for replicas_of in devices for _, group in replicas_of)
    return Plan(config=config, node_order=tuple(nodes), replicas=tuple(replicas))
