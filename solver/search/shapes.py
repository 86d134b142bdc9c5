"""The plan space: every numbers-of-nodes vector and every shape, in one fixed order."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from math import gcd

from formulations.instance import Instance, NodeGroup
from formulations.instance.instance import RECOMPUTE_WAYS, ScheduleName, ZeroStage
from formulations.instance.target import least_zero, most_stages
from formulations.instance.target import zero_stages as launched_stages
from formulations.instance.workload import Recompute
from formulations.launch import runs_shape
from formulations.plan import GRADIENTS_SPLIT, Degrees, Shape, uniform_degrees
from formulations.schedules import SCHEDULES
from solver.result import rent_usd_per_hour

#: Largest micro-batch tried when the instance names none.
MAX_MICRO_BATCH = 64

#: Relative float noise in sums of prices.
PRICE_NOISE = 1e-12


def powers_of_two(limit: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to `limit`."""
    return tuple(1 << i for i in range(limit.bit_length()))


def node_vectors(instance: Instance) -> Iterator[tuple[int, ...]]:
    """Nodes used per group: all of them, or any non-empty choice within the price limit."""
    groups = instance.cluster.groups
    limit = instance.limits.max_price_usd_per_hour
    for vector in product(*(range(g.nodes + 1) for g in groups)):
        if not any(vector) or not _possible(instance, vector):
            continue
        rent = rent_usd_per_hour(instance, vector)
        if limit is None or rent <= limit * (1 + PRICE_NOISE):
            yield vector


def _possible(instance: Instance, vector: tuple[int, ...]) -> bool:
    """Whether there are so many nodes, counted once where they come again, and none must idle.

    Nodes of one kind only are never those that come again.
    """
    groups, numbers = instance.cluster.groups, list(vector)
    for j, group in enumerate(groups):
        if group.again and vector[j]:
            numbers[j - 1] += vector[j]
            if not vector[j - 1] or numbers[j - 1] > groups[j - 1].nodes:
                return False
    own = [(n, g.nodes) for n, g in zip(numbers, groups, strict=True) if not g.again]
    return instance.search.idle_nodes or all(n == most for n, most in own)


def tensor_degrees(instance: Instance, gpus: Iterable[int]) -> list[int]:
    """Candidates for tp that divide the heads and these numbers of GPUs of a node."""
    counts = (instance.workload.kv_heads, *gpus)
    candidates = instance.search.tensor_parallel or powers_of_two(
        max(g.gpus_per_node for g in instance.cluster.groups)
    )
    return [tp for tp in candidates if all(count % tp == 0 for count in counts)]


def group_degrees(instance: Instance, vector: tuple[int, ...]) -> Iterator[tuple[Degrees, ...]]:
    """Degrees by node group, of groups that are not used those of the first that is.

    Own ones by group: slots that fill its nodes. Parts of all groups have no common divisor: with
    one, the plans are among those of as many times more replicas, of smaller micro-batches. Two
    kinds of nodes of one group are not told apart by their order, nor are groups of equal machines.
    """
    groups = instance.cluster.groups
    used = [j for j, count in enumerate(vector) if count]
    alike = _interchangeable(groups, vector)
    for cp in instance.search.context_parallel:
        if instance.search.degrees == "uniform":
            for own in alike_degrees(instance, [groups[j].gpus_per_node for j in used], cp):
                yield uniform_degrees(instance, own.tp, cp)
            continue
        choices = [slot_degrees(instance, groups[j].gpus_per_node, cp) for j in used]
        for chosen in product(*choices):
            named = dict(zip(used, chosen, strict=True))
            twins = (j for j in used if groups[j].again)
            ordered = all(_size(named[j - 1]) < _size(named[j]) for j in twins)
            ordered &= all(_size(named[i]) <= _size(named[j]) for i, j in alike)
            if ordered and gcd(*(one.parts for one in chosen)) == 1:
                yield tuple(named.get(j, chosen[0]) for j in range(len(vector)))


def _interchangeable(groups: Sequence[NodeGroup], vector: tuple[int, ...]) -> list[tuple[int, int]]:
    """Pairs of groups of equal machines, as many of each used; none where nodes come again."""
    if any(group.again for group in groups):
        return []
    machines = [group.model_copy(update={"name": "", "nodes": 1}) for group in groups]
    used = [j for j, count in enumerate(vector) if count]
    return [
        (i, j)
        for i, j in combinations(used, 2)
        if vector[i] == vector[j] and machines[i] == machines[j]
    ]


def _size(degrees: Degrees) -> tuple[int, int]:
    return degrees.tp, degrees.parts


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


def expert_degrees(
    instance: Instance, degrees: tuple[Degrees, ...], dp: int, vector: tuple[int, ...]
) -> list[int]:
    """GPUs that may share the experts of a stage, on node groups with equal degrees in one zone.

    In several zones those of a node alone; beside tensor groups only where these split the
    sequence (Megatron-LM, arguments.py).
    """
    groups, candidates = instance.cluster.groups, instance.search.expert_parallel
    used = [j for j, count in enumerate(vector) if count]
    own, zones = degrees[used[0]], {groups[j].zone for j in used}
    split = own.tp == 1 or instance.search.sequence_parallel
    if not split or any(degrees[j] != own for j in used):
        return [ep for ep in candidates if ep == 1]
    together = gcd(*(groups[j].gpus_per_node // own.tp for j in used))
    return [
        ep
        for ep in candidates
        if dp * own.copies % ep == 0 and (len(zones) == 1 or together % ep == 0)
    ]


def micro_batches(instance: Instance) -> list[int]:
    """Candidates for the micro-batch size that divide the global batch."""
    candidates = instance.search.micro_batch or powers_of_two(MAX_MICRO_BATCH)
    return [b for b in candidates if instance.workload.global_batch % b == 0]


def pipeline_degrees(instance: Instance, slots: int) -> list[tuple[int, int]]:
    """Pairs (dp, pp) with dp * pp = slots and enough layers for pp stages."""
    search, layers = instance.search, instance.workload.layers
    longest = len(layers) if search.embedding_only_stages else sum(x.is_block for x in layers)
    most = most_stages(search.target, instance.workload) or longest
    return [
        (slots // pp, pp)
        for pp in range(1, min(slots, longest, most) + 1)
        if slots % pp == 0
        and (search.pipeline_parallel is None or pp in search.pipeline_parallel)
        and (search.data_parallel is None or slots // pp in search.data_parallel)
    ]


def zero_stages(instance: Instance, ranks: int, pp: int) -> list[ZeroStage]:
    """ZeRO stages that the target runs: where one GPU has a parameter there is nothing to split.

    2 and 3 exchange gradients with every micro-batch, see `formulations.costs.sharding`: they need
    equally many in every replica, and a pipeline of one stage.
    """
    search = instance.search
    exchanges = pp == 1 and search.micro_batches == "even"
    least = least_zero(search.target, instance.workload.optimizer_state)
    most = max(search.zero) if exchanges else GRADIENTS_SPLIT - 1
    stages = sorted(zero for zero in search.zero if least <= zero <= most)
    if ranks == 1:
        return stages[:1]
    return [zero for zero in stages if zero in launched_stages(search.target, pp)]


def schedules_of(instance: Instance, pp: int, share: int) -> Iterator[tuple[ScheduleName, int]]:
    """Schedules with their chunks per device, for `share` micro-batches per replica.

    Interleaving needs several devices, a block per chunk, and a multiple of pp micro-batches, as
    Megatron-LM asks.
    """
    search, layers = instance.search, instance.workload.layers
    longest = len(layers) if search.embedding_only_stages else sum(x.is_block for x in layers)
    for schedule in search.schedule:
        if not SCHEDULES[schedule].interleaves:
            yield schedule, 1
        elif search.micro_batches == "even" and pp > 1 and share % pp == 0:
            yield from ((schedule, v) for v in search.virtual_pipeline if pp * v <= longest)


def recompute_ways(instance: Instance, zero: ZeroStage) -> Iterator[tuple[Recompute, ...]]:
    """The ways to recompute that the devices of a shape choose among, least time first.

    One way for all where these may not differ; or go through every layer in lockstep, as with ZeRO
    2 and 3.
    """
    search = instance.search
    ways = tuple(way for way in RECOMPUTE_WAYS if way in search.recompute)
    if search.recompute_per == "stage" and zero < GRADIENTS_SPLIT:
        yield ways
    else:
        yield from ((way,) for way in ways)


def shapes_of(instance: Instance, vector: tuple[int, ...]) -> Iterator[Shape]:
    """All shapes that use exactly these nodes."""
    search = instance.search
    for degrees in group_degrees(instance, vector):
        members = zip(instance.cluster.groups, degrees, vector, strict=True)
        slots = sum(n * (group.gpus_per_node // own.width) for group, own, n in members)
        parts = [own.parts for own, n in zip(degrees, vector, strict=True) if n]
        copies = max(parts) * degrees[0].cp
        for (dp, pp), b in product(pipeline_degrees(instance, slots), micro_batches(instance)):
            total = instance.workload.global_batch // b
            uneven = search.micro_batches == "even" and total % dp
            if total < dp or uneven or any(b % own for own in parts):
                continue
            strategies = (
                (ep, one, zero, recompute)
                for ep in expert_degrees(instance, degrees, dp, vector)
                for one in schedules_of(instance, pp, total // dp)
                for zero in zero_stages(instance, dp * copies, pp)
                for recompute in recompute_ways(instance, zero)
            )
            for ep, (schedule, vpp), zero, recompute in strategies:
                shape = Shape(
                    degrees=degrees,
                    dp=dp,
                    pp=pp,
                    micro_batch=b,
                    schedule=schedule,
                    recompute=recompute,
                    zero=zero,
                    nodes_used=vector,
                    vpp=vpp,
                    ep=ep,
                )
                if runs_shape(instance, shape):
                    yield shape


def shapes(instance: Instance) -> Iterator[Shape]:
    """The whole plan space."""
    for vector in node_vectors(instance):
        yield from shapes_of(instance, vector)
