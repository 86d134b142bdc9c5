"""Ways in which the GPUs of a node may share a stage."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from formulations.instance import Instance
from formulations.instance.target import Sharing, shares
from formulations.plan import Degrees, Shape

Place = tuple[int, Degrees]  #: node group, degrees of a stage on its nodes
Owner = tuple[int, int]  #: slot, node group


@dataclass(frozen=True)
class ByPlace:
    """An instance, a shape of it in which every stage has its own degrees, and its places [C]."""

    instance: Instance
    shape: Shape
    places: tuple[Place, ...]


def powers_of_two(limit: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to `limit`."""
    return tuple(1 << i for i in range(limit.bit_length()))


def tensor_degrees(instance: Instance, gpus: Iterable[int]) -> list[int]:
    """Candidates for tp that divide the heads and these numbers of GPUs of a node."""
    counts = (instance.workload.kv_heads, *gpus)
    candidates = instance.search.tensor_parallel or powers_of_two(
        max(g.gpus_per_node for g in instance.cluster.groups)
    )
    return [tp for tp in candidates if all(count % tp == 0 for count in counts)]


def alike_degrees(instance: Instance, nodes: list[int], cp: int) -> list[Degrees]:
    """Undivided slots that fill nodes of so many GPUs."""
    known = (Degrees(tp=tp, cp=cp) for tp in tensor_degrees(instance, nodes))
    return [own for own in known if shares_sequences(instance, own, nodes)]


def slot_degrees(instance: Instance, gpus: int, cp: int) -> list[Degrees]:
    """Ways to share a stage among GPUs of a node, in equal parts."""
    known = (
        Degrees(tp=tp, parts=parts, cp=cp)
        for tp in tensor_degrees(instance, [gpus])
        for parts in range(1, gpus // tp + 1)
        if gpus // tp % parts == 0
    )
    return [own for own in known if shares_sequences(instance, own, [gpus])]


def shares_sequences(instance: Instance, own: Degrees, nodes: list[int]) -> bool:
    """Whether the tensor groups of slots that fill these nodes can share every sequence.

    Every GPU has two pieces of it, which each tensor group can split; heads are exchanged whole.
    """
    if own.cp == 1:
        return True
    workload = instance.workload
    pieces = workload.sequence_length % (2 * own.cp * own.tp) == 0
    whole = workload.kv_heads % (own.tp * own.cp) == 0
    heads = whole or instance.search.context_method != "all_to_all"
    return pieces and heads and all(gpus % own.width == 0 for gpus in nodes)


def stage_places(instance: Instance, shape: Shape) -> tuple[Place, ...]:
    """Where stages with degrees of their own may run: slots that divide nodes and micro-batches."""
    return tuple(
        (j, own)
        for j, (group, count) in enumerate(
            zip(instance.cluster.groups, shape.nodes_used, strict=True)
        )
        if count
        for own in slot_degrees(instance, group.gpus_per_node, 1)
        if shape.micro_batch % own.parts == 0
    )


def may_follow(instance: Instance, zero: int, first: Degrees, own: Degrees, last: bool) -> bool:
    """Whether the target can run a stage with degrees of its own in a pipeline that begins so.

    last: it is the last one.
    """
    flagscale = instance.search.target == "flagscale"
    return not flagscale or mesh_fault(instance, zero, first, own, last) is None


def mesh_fault(
    instance: Instance, zero: int, first: Degrees, degrees: Degrees, last: bool
) -> str | None:
    """Why FlagScale cannot run such a stage.

    Its meshes are runs of ranks, and may end inside a node. It sums the gradients of tied
    embeddings, and splits states with ZeRO 1, between the first and the last.
    """
    workload, split = instance.workload, instance.search.sequence_parallel
    if degrees.tp != first.tp and not split:
        return "whose unlike tensor groups need sequence_parallel: true"
    if last and degrees.tp != first.tp and workload.tied_embeddings:
        return "whose tied embeddings lie on tensor groups of one size"
    few, many = sorted((first.parts, degrees.parts))
    if last and zero and many % few:
        return "where with ZeRO 1 parts of first or last stage divide the other's"
    fault = shares("flagscale", workload, Sharing(degrees.tp, 1, 1, zero > 0, split))
    return fault and fault[1]


def limits_orders(instance: Instance, shape: Shape) -> bool:
    """Whether the target may run a shape on some orders of its nodes alone, see `runs_order`."""
    return instance.search.target == "flagscale" and len(set(shape.degrees_used)) > 1


def runs_order(instance: Instance, shape: Shape, order: Sequence[int]) -> bool:
    """Whether the target can run a shape on nodes of these groups, in this order.

    FlagScale's meshes have the same degrees on all replicas of a stage.
    """
    if not limits_orders(instance, shape):
        return True
    groups, slots = instance.cluster.groups, list[Degrees]()
    for j in order:
        slots += [shape.degrees[j]] * (groups[j].gpus_per_node // shape.degrees[j].width)
    stages = [slots[k * shape.dp :][: shape.dp] for k in range(shape.pp)]
    return all(
        len(set(stage)) == 1
        and may_follow(instance, shape.zero, slots[0], stage[0], k + 1 == shape.pp)
        for k, stage in enumerate(stages)
    )


def apart(instance: Instance, shape: Shape) -> Iterator[tuple[Owner, Owner]]:
    """Pairs of slots with node groups that do not own them in the same order, see `runs_order`."""
    used = [j for j, count in enumerate(shape.nodes_used) if count]
    last = shape.slots - shape.dp
    for i, j in product(used if limits_orders(instance, shape) else (), repeat=2):
        a, b = shape.degrees[i], shape.degrees[j]
        if not may_follow(instance, shape.zero, a, b, last=True):
            yield (0, i), (last, j)
        for s in range(shape.slots - 1):
            if a != b and (s + 1) % shape.dp:
                yield (s, i), (s + 1, j)
