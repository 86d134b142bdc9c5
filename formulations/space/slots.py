"""Ways in which the GPUs of a node may share a stage, and in which orders a target runs them.

Stages with degrees of their own stand in layouts, see `Config.degrees`. A layout has a number for
every stage: 2 x at place x on the next node, or nodes, of its group, 2 x + 1 at place x behind the
stage before, in the node that this has left GPUs of.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from math import gcd

from formulations.instance import Instance, NodeGroup
from formulations.instance.targets import TARGETS, Demands
from formulations.plan import (
    ByPlace,
    Choose,
    Configuration,
    Degrees,
    Group,
    Place,
    Plan,
    plan_on,
)
from formulations.units import powers_of_two

Owner = tuple[int, int]  #: slot, node group


def slot_degrees(instance: Instance, group: NodeGroup, cp: int) -> list[Degrees]:
    """Ways to share a stage among GPUs of a node of the group, in equal parts."""
    gpus, heads = group.gpus_per_node, instance.workload.kv_heads
    largest = max(any_group.gpus_per_node for any_group in instance.cluster.groups)
    return [
        degrees
        for tp in instance.search.tensor_parallel or powers_of_two(largest)
        if gpus % tp == 0 and heads % tp == 0
        for parts in range(1, gpus // tp + 1)
        if group.may_hold(tp, tp * parts * cp)
        and shares_sequences(instance, degrees := Degrees(tp=tp, parts=parts, cp=cp))
    ]


def shares_sequences(instance: Instance, degrees: Degrees) -> bool:
    """Whether the tensor groups of a slot can share every sequence.

    Every GPU has two pieces of it, which each tensor group can split; heads are exchanged whole.
    """
    if degrees.cp == 1:
        return True
    workload = instance.workload
    pieces = workload.sequence_length % (2 * degrees.cp * degrees.tp) == 0
    whole_heads = workload.kv_heads % (degrees.tp * degrees.cp) == 0
    exchanged = whole_heads or instance.search.context_method != "all_to_all"
    return pieces and exchanged


def stage_places(instance: Instance, config: Configuration) -> tuple[Place, ...]:
    """Where stages with degrees of their own may run: slots that divide nodes and micro-batches."""
    return tuple(
        (j, degrees)
        for j, (group, count) in enumerate(
            zip(instance.cluster.groups, config.nodes_used, strict=True)
        )
        if count
        for degrees in slot_degrees(instance, group, 1)
        if config.micro_batch % degrees.parts == 0
    )


def mesh_fault(
    instance: Instance, zero: int, first: Degrees, degrees: Degrees, last: bool
) -> str | None:
    """Why FlagScale cannot run a stage with these degrees in a pipeline that begins so.

    last: is it the last stage? Gradients of tied embeddings are summed, and states split with
    ZeRO 1, between the first and the last.
    """
    splits = instance.splits_sequence(first.tp) and instance.splits_sequence(degrees.tp)
    if degrees.tp != first.tp and not splits:
        return "whose unlike tensor groups need sequence_parallel: true"
    if last and degrees.tp != first.tp and instance.workload.tied_embeddings:
        return "whose tied embeddings lie on tensor groups of one size"
    few, many = sorted((first.parts, degrees.parts))
    if last and zero and many % few:
        return "where with ZeRO 1 parts of first or last stage divide the other's"
    demands = Demands(degrees.tp, zero=zero, sequence_parallel=splits)
    refusals = TARGETS["flagscale"].refused(instance.workload, demands)
    return next((refusal.reason for refusal in refusals), None)


def may_follow(instance: Instance, zero: int, first: Degrees, degrees: Degrees, last: bool) -> bool:
    """Whether the target can run a stage with degrees of its own in a pipeline that begins so.

    last: it is the last one.
    """
    flagscale = instance.search.target == "flagscale"
    return not flagscale or mesh_fault(instance, zero, first, degrees, last) is None


def limits_orders(instance: Instance, config: Configuration) -> bool:
    """Whether the target may run a config on some orders of its nodes alone, see `runs_order`."""
    return instance.search.target == "flagscale" and len(set(config.degrees_used)) > 1


def runs_order(instance: Instance, config: Configuration, order: Sequence[int]) -> bool:
    """Whether the target can run a configuration on nodes of these groups, in this order.

    FlagScale's meshes have the same degrees on all replicas of a stage.
    """
    if not limits_orders(instance, config):
        return True
    groups, slots = instance.cluster.groups, list[Degrees]()
    for j in order:
        slots += [config.degrees[j]] * (groups[j].gpus_per_node // config.degrees[j].width)
    stages = [slots[k * config.dp :][: config.dp] for k in range(config.pp)]
    return all(
        len(set(stage)) == 1
        and may_follow(instance, config.zero, slots[0], stage[0], k + 1 == config.pp)
        for k, stage in enumerate(stages)
    )


def apart(instance: Instance, config: Configuration) -> Iterator[tuple[Owner, Owner]]:
    """Pairs of slots with node groups that do not own them in the same order, see `runs_order`."""
    used = config.groups_used
    last = config.slots - config.dp
    for i, j in product(used if limits_orders(instance, config) else (), repeat=2):
        a, b = config.degrees[i], config.degrees[j]
        if not may_follow(instance, config.zero, a, b, last=True):
            yield (0, i), (last, j)
        for s in range(config.slots - 1):
            if a != b and (s + 1) % config.dp:
                yield (s, i), (s + 1, j)


def runs_degrees(instance: Instance, config: Configuration, zero: int) -> bool:
    """Whether the target can run the degrees of node groups in some order of the nodes.

    Nodes of equal degrees make whole stages. The first and the last stage have degrees that go
    together: equal ones on nodes in two places, where fewer than all of them make whole stages.
    Of nodes with unlike numbers of slots that is taken for granted.
    """
    if not limits_orders(instance, config):
        return True
    nodes: dict[Degrees, Counter[int]] = {}  # by slots of a node
    groups = zip(instance.cluster.groups, config.degrees, config.nodes_used, strict=True)
    for group, degrees, count in groups:
        if count:
            nodes.setdefault(degrees, Counter())[group.gpus_per_node // degrees.width] += count
    if any(sum(size * n for size, n in sizes.items()) % config.dp for sizes in nodes.values()):
        return False
    parted = {
        degrees
        for degrees, sizes in nodes.items()
        if len(sizes) > 1 or any(n > config.dp // gcd(config.dp, size) for size, n in sizes.items())
    }
    pairs = [*product(nodes, repeat=2)]
    ends = ((a, b) for a, b in pairs if a != b or a in parted)
    inside = all(may_follow(instance, zero, a, b, last=False) for a, b in pairs)
    return inside and any(may_follow(instance, zero, a, b, last=True) for a, b in ends)


Layout = tuple[int, ...]


class _Floor:
    """The nodes that stages have begun, GPUs left of the last one, and degrees of the stages."""

    def __init__(self, places: ByPlace) -> None:
        self.instance, self.config, self.places = places.instance, places.config, places.places
        self.used, self.node, self.rest = [0] * len(places.instance.cluster.groups), 0, 0
        self.begun, self.node_gpus = list[Degrees](), places.node_gpus

    def take(self, code: int) -> list[Group] | None:
        """GPUs of every replica of a stage; None where it cannot stand so, or be launched."""
        place, together = divmod(code, 2)
        j, degrees = self.places[place]
        cluster, config = self.instance.cluster, self.config
        self.begun.append(degrees)
        last = len(self.begun) == config.pp
        if not may_follow(self.instance, config.zero, self.begun[0], degrees, last):
            return None
        size, gpus = self.node_gpus[j], config.dp * degrees.width
        if together:  # behind the stage before, in its node
            if not self.rest or gpus > self.rest or cluster.node_groups[self.node] != j:
                return None
            first, self.rest = size - self.rest, self.rest - gpus
        else:  # on a new node, or on as many as it fills
            count = max(1, gpus // size)
            if self.rest or (gpus > size and gpus % size):
                return None
            self.node = cluster.first_node[j] + self.used[j]
            self.used[j] += count
            if self.used[j] > config.nodes_used[j]:
                return None
            first, self.rest = 0, count * size - gpus
        return [
            Group(
                node=self.node + gpu // size,
                gpus=tuple(range(gpu % size, gpu % size + degrees.width)),
            )
            for gpu in range(first, first + gpus, degrees.width)
        ]

    @property
    def full(self) -> bool:
        """Whether no GPU of the nodes that the configuration uses is left."""
        return not self.rest and tuple(self.used) == self.config.nodes_used


def slots_of(places: ByPlace, layout: Sequence[int]) -> list[list[Group]] | None:
    """[p][dp] GPUs of every stage and replica; None if the layout is none of the configuration."""
    floor, stages = _Floor(places), []
    for code in layout:
        groups = floor.take(code)
        if groups is None:
            return None
        stages.append(groups)
    return stages if floor.full and len(stages) == places.config.pp else None


def layouts(places: ByPlace, begun: Layout = ()) -> Iterator[Layout]:
    """All layouts that begin so."""
    floor = _Floor(places)
    if any(floor.take(code) is None for code in begun):
        return
    if len(begun) == places.config.pp:
        if floor.full:
            yield begun
        return
    for place in range(len(places.places)):
        yield from layouts(places, (*begun, 2 * place + bool(floor.rest)))


def layout_plan(
    places: ByPlace,
    layout: Sequence[int],
    boundaries: Sequence[int],
    micro_batches: Sequence[int],
    recomputed: Choose,
) -> Plan:
    """The plan with this layout, these layers of the stages, and these shares of the replicas."""
    slots = slots_of(places, layout)
    assert slots is not None  # whoever made the layout
    pairs = zip(layout, slots, strict=True)
    devices = [[(code // 2, group) for group in groups] for code, groups in pairs]
    degrees = [degrees for _, degrees in places.places]
    return plan_on(places.config, devices, degrees, boundaries, micro_batches, recomputed)
