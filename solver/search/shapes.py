"""The plan space: every numbers-of-nodes vector and every shape, in one fixed order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from math import gcd
from typing import Any, Literal

from formulations.instance import Instance, NodeGroup
from formulations.instance.instance import (
    RECOMPUTE_WAYS,
    ScheduleName,
    ZeroStage,
    plain_schedules,
)
from formulations.instance.target import most_stages
from formulations.instance.workload import Recompute
from formulations.launch import zero_choices
from formulations.plan import GRADIENTS_SPLIT, Degrees, Shape, uniform_degrees
from formulations.schedules import SCHEDULES
from formulations.slot_degrees import alike_degrees, powers_of_two, slot_degrees
from solver.interrupt import TimeUp
from solver.result import rent_usd_per_hour

Stop = Callable[[], bool]

#: Largest micro-batch tried when the instance names none.
MAX_MICRO_BATCH = 64

#: Choices of nodes between two questions whether to stop.
ASKED_EVERY = 512

#: Relative float noise in sums of prices.
PRICE_NOISE = 1e-12


def node_vectors(instance: Instance, stop: Stop = lambda: False) -> Iterator[tuple[int, ...]]:
    """Nodes used per group: all of them, or any non-empty choice within the price limit.

    TimeUp when `stop` says so, which is asked from time to time: choices may have no shape.
    """
    for number, vector in enumerate(product(*_counts(instance)), start=1):
        if number % ASKED_EVERY == 0 and stop():
            raise TimeUp
        if any(vector) and _affordable(instance, vector):
            yield vector


def _counts(instance: Instance) -> list[range]:
    """Numbers of nodes that may be used, per group."""
    idle = instance.search.idle_nodes
    return [range(0 if idle else g.nodes, g.nodes + 1) for g in instance.cluster.groups]


def _affordable(instance: Instance, vector: tuple[int, ...]) -> bool:
    limit = instance.limits.max_price_usd_per_hour
    return limit is None or rent_usd_per_hour(instance, vector) <= limit * (1 + PRICE_NOISE)


def may_use(instance: Instance, vector: tuple[int, ...]) -> bool:
    """Whether `node_vectors` has these numbers of nodes."""
    counts = zip(vector, _counts(instance), strict=True)
    within = any(vector) and all(count in numbers for count, numbers in counts)
    return within and _affordable(instance, vector)


def group_degrees(instance: Instance, vector: tuple[int, ...]) -> Iterator[tuple[Degrees, ...]]:
    """Degrees by node group, of groups that are not used those of the first that is.

    Own ones by group: slots that fill its nodes. Groups of equal machines are not told apart.
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
            if all(_size(named[i]) <= _size(named[j]) for i, j in alike):
                yield tuple(named.get(j, chosen[0]) for j in range(len(vector)))


def _interchangeable(groups: Sequence[NodeGroup], vector: tuple[int, ...]) -> list[tuple[int, int]]:
    """Pairs of groups of equal machines, as many of each used."""
    machines = [group.model_copy(update={"name": "", "nodes": 1}) for group in groups]
    used = [j for j, count in enumerate(vector) if count]
    return [
        (i, j)
        for i, j in combinations(used, 2)
        if vector[i] == vector[j] and machines[i] == machines[j]
    ]


def _size(degrees: Degrees) -> tuple[int, int]:
    return degrees.tp, degrees.parts


def expert_degrees(
    instance: Instance, degrees: tuple[Degrees, ...], dp: int, vector: tuple[int, ...]
) -> list[tuple[int, Literal[1] | None]]:
    """Pairs of GPUs that may share the experts of a stage, and that split each: `Shape.etp`.

    On node groups with equal degrees in one zone, in several zones those of a node alone; beside
    tensor groups only where these split the sequence (Megatron-LM, arguments.py).
    """
    groups, search = instance.cluster.groups, instance.search
    used = [j for j, count in enumerate(vector) if count]
    own, zones = degrees[used[0]], {groups[j].zone for j in used}
    wide, alike = any(degrees[j].tp > 1 for j in used), all(degrees[j] == own for j in used)
    free = alike and (search.sequence_parallel or not wide)
    found: list[tuple[int, Literal[1] | None]] = []
    if "tp" in search.expert_tensor_parallel or not wide:
        found = [(ep, None) for ep in search.expert_parallel if ep == 1 or free]
    if 1 in search.expert_tensor_parallel and wide and free and instance.workload.experts:
        found += [(ep, 1) for ep in search.expert_parallel]
    return [
        (ep, etp)
        for ep, etp in found
        if dp * own.width // (etp or own.tp) % ep == 0
        and (
            len(zones) == 1
            or all(groups[j].gpus_per_node // (etp or own.tp) % ep == 0 for j in used)
        )
    ]


def micro_batches(instance: Instance) -> list[int]:
    """Candidates for the micro-batch size that divide the global batch."""
    candidates = instance.search.micro_batch or powers_of_two(MAX_MICRO_BATCH)
    return [b for b in candidates if instance.workload.global_batch % b == 0]


def has_twin(instance: Instance, parts: Sequence[int], dp: int, micro_batch: int) -> bool:
    """Whether the plan space has the same plans of n times more replicas, in place of parts.

    Where n divides the parts of all slots: each of their n shares is a replica of its own, of
    micro-batches of 1 / n of the sequences, on the same GPUs with the same rings.
    """
    common, replicas = gcd(*parts), instance.search.data_parallel
    return any(
        (replicas is None or dp * n in replicas) and micro_batch // n in micro_batches(instance)
        for n in range(2, common + 1)
        if common % n == 0
    )


def longest_pipeline(instance: Instance) -> int:
    """Most stages that the layers fill and the target runs."""
    search, layers = instance.search, instance.workload.layers
    longest = len(layers) if search.embedding_only_stages else sum(x.is_block for x in layers)
    return min(longest, most_stages(search.target, instance.workload) or longest)


def pipeline_degrees(instance: Instance, slots: int) -> list[tuple[int, int]]:
    """Pairs (dp, pp) with dp * pp = slots and enough layers for pp stages."""
    search = instance.search
    return [
        (slots // pp, pp)
        for pp in range(1, min(slots, longest_pipeline(instance)) + 1)
        if slots % pp == 0
        and (search.pipeline_parallel is None or pp in search.pipeline_parallel)
        and (search.data_parallel is None or slots // pp in search.data_parallel)
    ]


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
    instance = instance.on(vector)
    yield from _grouped_shapes(instance, vector)
    if has_stage_shapes(instance):
        yield from _stage_shapes(instance, vector)


def has_stage_shapes(instance: Instance) -> bool:
    """Whether stages may have degrees of their own: in one zone, without ranks that share more."""
    search = instance.search
    shared = 1 not in search.context_parallel or 1 not in search.expert_parallel
    shared |= "tp" not in search.expert_tensor_parallel
    return search.degrees == "per_stage" and not shared and not instance.cluster.has_zones


def _stage_shapes(instance: Instance, vector: tuple[int, ...]) -> Iterator[Shape]:
    """Those in which every stage has degrees of its own: 1F1B and GPipe, equal shares."""
    search, groups = instance.search, instance.cluster.groups
    gpus = sum(n * group.gpus_per_node for n, group in zip(vector, groups, strict=True))
    used = [group.gpus_per_node for n, group in zip(vector, groups, strict=True) if n]
    least = min((own.width for size in used for own in slot_degrees(instance, size, 1)), default=0)
    if not least:
        return
    schedules = [(name, 1) for name in plain_schedules(search)]
    for b, dp in product(micro_batches(instance), range(1, gpus // (2 * least) + 1)):
        if instance.workload.global_batch % (b * dp):
            continue
        if search.data_parallel is not None and dp not in search.data_parallel:
            continue
        for pp in range(2, min(longest_pipeline(instance), gpus // (dp * least)) + 1):
            if search.pipeline_parallel is not None and pp not in search.pipeline_parallel:
                continue
            sizes = {"degrees": (), "dp": dp, "pp": pp, "micro_batch": b, "nodes_used": vector}
            yield from _with_strategies(instance, sizes, schedules)


def _grouped_shapes(instance: Instance, vector: tuple[int, ...]) -> Iterator[Shape]:
    """Those in which node groups have degrees, or all have the same."""
    search = instance.search
    for degrees in group_degrees(instance, vector):
        members = zip(instance.cluster.groups, degrees, vector, strict=True)
        slots = sum(n * (group.gpus_per_node // own.width) for group, own, n in members)
        parts = [own.parts for own, n in zip(degrees, vector, strict=True) if n]
        for (dp, pp), b in product(pipeline_degrees(instance, slots), micro_batches(instance)):
            total = instance.workload.global_batch // b
            uneven = search.micro_batches == "even" and total % dp
            if total < dp or uneven or any(b % own for own in parts):
                continue
            if has_twin(instance, parts, dp, b):
                continue
            sizes = {"degrees": degrees, "dp": dp, "pp": pp, "micro_batch": b, "nodes_used": vector}
            schedules = [*schedules_of(instance, pp, total // dp)]
            for ep, etp in expert_degrees(instance, degrees, dp, vector):
                yield from _with_strategies(instance, {**sizes, "ep": ep, "etp": etp}, schedules)


def _with_strategies(
    instance: Instance, fields: Mapping[str, Any], schedules: Sequence[tuple[ScheduleName, int]]
) -> Iterator[Shape]:
    """All shapes with these fields, and these schedules and chunks per device."""
    plain = Shape(**fields, schedule="1f1b", recompute=("none",), zero=0)
    for (schedule, vpp), zero in product(schedules, zero_choices(instance, plain)):
        for ways in recompute_ways(instance, zero):
            yield Shape(**fields, schedule=schedule, vpp=vpp, zero=zero, recompute=ways)


def shapes(instance: Instance, stop: Stop = lambda: False) -> Iterator[Shape]:
    """The whole plan space. TimeUp when `stop` says so."""
    for vector in node_vectors(instance, stop):
        yield from shapes_of(instance, vector)
