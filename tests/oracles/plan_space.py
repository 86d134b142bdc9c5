"""Every configuration of a small instance, by brute force from the text of docs/instances.md.

For targets and workloads that allow all that the instance leaves open. Plain loops over all numbers
that could be meant, each with the sentence that rules some of them out; nothing is left out because
another configuration has the same plans: `covers` says which have.
"""

from collections.abc import Collection, Iterator
from functools import cache
from itertools import permutations, product
from math import gcd
from typing import Literal, NamedTuple

from formulations.instance import Instance
from formulations.instance.workload import Recompute

ExpertSplit = Literal[1, "tp"]
Schedule = tuple[str, int, int]  #: its name, chunks per GPU, micro-batches in a group; 1, 0: none


class Slot(NamedTuple):
    """GPUs of a node that run one stage of one replica."""

    tp: int
    parts: int
    cp: int

    @property
    def width(self) -> int:
        return self.tp * self.parts * self.cp


class Config(NamedTuple):
    """What is chosen before layers and places. slots: by node group that is used, in order."""

    nodes: tuple[int, ...]
    slots: tuple[Slot, ...]
    dp: int
    pp: int
    micro_batch: int
    ep: int
    etp: ExpertSplit
    schedule: Schedule
    zero: int
    optimizer_instances: int
    sync_each_batch: bool
    recompute: tuple[Recompute, ...]


def configurations(instance: Instance) -> set[Config]:
    return {
        Config(nodes, slots, dp, pp, b, *experts, schedule, zero, instances, sync, recompute)
        for nodes in _nodes(instance)
        for slots in _slots(instance, nodes)
        for dp, pp, b in _pipelines(instance, nodes, slots)
        for experts in _experts(instance, nodes, slots, dp)
        for schedule in _schedules(instance, dp, pp, b)
        for zero in _zero(instance, pp)
        for instances in _instances(instance, nodes, slots, dp, zero, experts)
        for sync in _syncs(instance, zero, dp * b)
        for recompute in _recompute(instance, zero)
    }


def _nodes(instance: Instance) -> Iterator[tuple[int, ...]]:
    """`idle_nodes`: may a plan leave nodes unused? `max_price_per_hour`: of all nodes used."""
    groups, limit = instance.cluster.groups, instance.limits.max_price_usd_per_hour
    for nodes in product(*(range(group.nodes + 1) for group in groups)):
        idle = any(n < group.nodes for n, group in zip(nodes, groups, strict=True))
        rent = sum(n * g.price_usd_per_hour for n, g in zip(nodes, groups, strict=True))
        within = limit is None or rent <= limit
        if sum(nodes) and within and (instance.search.idle_nodes or not idle):
            yield nodes


def _powers(limit: int) -> list[int]:
    return [n for n in range(1, limit + 1) if n & (n - 1) == 0]


def _slots(instance: Instance, nodes: tuple[int, ...]) -> Iterator[tuple[Slot, ...]]:
    """Degrees by group: alike unless `degrees` says otherwise; `context_parallel` always alike."""
    sizes = [g.gpus_per_node for g, n in zip(instance.cluster.groups, nodes, strict=True) if n]
    alike = instance.search.degrees == "uniform"
    for slots in product(*([*_slots_of(instance, nodes, size)] for size in sizes)):
        if len({slot.cp for slot in slots}) > 1:
            continue
        if not alike or (len(set(slots)) == 1 and slots[0].parts == 1):
            yield slots


def _slots_of(instance: Instance, nodes: tuple[int, ...], gpus: int) -> Iterator[Slot]:
    """They fill a node; tensor groups share the key and value heads, and every sequence evenly."""
    search, work = instance.search, instance.workload
    used = [group for group, n in zip(instance.cluster.groups, nodes, strict=True) if n]
    open_flash = instance.fused is not None and all(group.gpu.has_flash for group in used)
    degrees = search.tensor_parallel or _powers(gpus)
    for tp, parts, cp in product(range(1, gpus + 1), repeat=3):
        fills = tp in degrees and not gpus % (tp * parts * cp) and not work.kv_heads % tp
        shares = (work.flash_attention or open_flash) and not work.sequence_length % (2 * cp * tp)
        shares &= search.context_method != "all_to_all" or not work.kv_heads % (tp * cp)
        if fills and cp in search.context_parallel and (cp == 1 or shares):
            yield Slot(tp, parts, cp)


def _stage_counts(instance: Instance) -> range:
    """`embedding_only_stages`: may a stage hold no block? A layer it has."""
    layers = instance.workload.layers
    fillers = [x for x in layers if x.is_block or instance.search.embedding_only_stages]
    return range(1, len(fillers) + 1)


def _sizes(instance: Instance) -> list[int]:
    total = instance.workload.global_batch
    sizes = instance.search.micro_batch or _powers(64)
    return [b for b in range(1, total + 1) if total % b == 0 and b in sizes]


def _pipelines(
    instance: Instance, nodes: tuple[int, ...], slots: tuple[Slot, ...]
) -> Iterator[tuple[int, int, int]]:
    """Replicas and stages that take all slots, each replica with a micro-batch at least."""
    search = instance.search
    used = [(n, g) for n, g in zip(nodes, instance.cluster.groups, strict=True) if n]
    pairs = zip(used, slots, strict=True)
    number = sum(n * (group.gpus_per_node // slot.width) for (n, group), slot in pairs)
    for pp, b in product(_stage_counts(instance), _sizes(instance)):
        dp, total = number // pp, instance.workload.global_batch // b
        fills = dp * pp == number and not any(b % slot.parts for slot in slots)
        even = search.micro_batches == "uneven" or total % max(dp, 1) == 0
        if fills and total >= dp and even and _listed(instance, dp, pp):
            yield dp, pp, b


def _listed(instance: Instance, dp: int, pp: int) -> bool:
    replicas, stages = instance.search.data_parallel, instance.search.pipeline_parallel
    return (not replicas or dp in replicas) and (not stages or pp in stages)


def _experts(
    instance: Instance, nodes: tuple[int, ...], slots: tuple[Slot, ...], dp: int
) -> Iterator[tuple[int, ExpertSplit]]:
    """GPUs that share the experts, and that split each."""
    search, work = instance.search, instance.workload
    used = [group for group, n in zip(instance.cluster.groups, nodes, strict=True) if n]
    wide = any(slot.tp > 1 for slot in slots)
    apart = len({group.zone for group in used}) > 1
    split = search.sequence_parallel and search.split_tokens % slots[0].tp == 0
    for ep, etp in product(search.expert_parallel, search.expert_tensor_parallel):
        special, lanes = ep > 1 or (etp == 1 and wide), slots[0].tp if etp == "tp" else 1
        alike = len(set(slots)) == 1 and work.experts > 0 and work.experts % ep == 0
        if special and not (alike and (split or not wide)):
            continue
        in_node = not any(group.gpus_per_node // lanes % ep for group in used)
        if dp * slots[0].width // lanes % ep == 0 and (in_node or not apart):
            yield ep, etp if wide else "tp"  # an expert on a tensor group of one GPU is whole


def _schedules(instance: Instance, dp: int, pp: int, b: int) -> Iterator[Schedule]:
    """`interleaved`: several chunks per GPU; groups of as many micro-batches as stages, or more."""
    share = instance.workload.global_batch // b // dp
    for schedule in instance.search.schedule:
        if schedule != "interleaved":
            yield schedule, 1, 0
            continue
        groups = {pp if size == "pp" else size for size in instance.search.microbatch_group}
        for chunks, group in product(instance.search.virtual_pipeline, groups):
            last = share % group
            whole = pp <= group <= share and (last == 0 or last >= pp)
            if pp > 1 and whole and pp * chunks in _stage_counts(instance):
                yield schedule, chunks, group


def _zero(instance: Instance, pp: int) -> Iterator[int]:
    """2 and 3 exchange gradients with every micro-batch: one stage, even micro-batches."""
    for zero in instance.search.zero:
        if zero < 2 or (pp == 1 and instance.search.micro_batches == "even"):
            yield zero


def _instances(
    instance: Instance,
    nodes: tuple[int, ...],
    slots: tuple[Slot, ...],
    dp: int,
    zero: int,
    experts: tuple[int, ExpertSplit],
) -> Iterator[int]:
    """Shard groups of replicas side by side that fill nodes, or of which whole ones fill a node."""
    used = [group for group, n in zip(instance.cluster.groups, nodes, strict=True) if n]
    alike = len(set(slots)) == len({(g.zone, g.gpus_per_node) for g in used}) == 1
    per_node, (ep, etp) = used[0].gpus_per_node // slots[0].width, experts
    whole = ep == 1 and (etp == "tp" or slots[0].tp == 1)
    for number in instance.search.optimizer_instances:
        size = dp // number
        fills = size > 1 and dp == size * number and 0 in (size % per_node, per_node % size)
        if number == 1 or (zero and alike and whole and fills):
            yield number


def _syncs(instance: Instance, zero: int, sequences: int) -> Iterator[bool]:
    """ZeRO 3 alone may keep gradients, of several micro-batches of a replica until the last."""
    keeps = zero == 3 and sequences < instance.workload.global_batch
    yield from instance.search.sync_each_batch if keeps else (True,)


def _recompute(instance: Instance, zero: int) -> Iterator[tuple[Recompute, ...]]:
    """What a stage takes the least of that fits; each way alone where all stages are alike."""
    order: tuple[Recompute, ...] = ("none", "selective", "per_op", "full")
    ways = tuple(way for way in order if way in instance.search.recompute)
    if instance.search.recompute_per == "stage" and zero < 2:
        yield ways
    else:
        yield from ((way,) for way in ways)


def covers(
    instance: Instance, listed: Collection[Config], space: set[Config], config: Config
) -> bool:
    """Whether a list has a configuration with all plans of this one, or better ones.

    Where it is not listed itself: that with least ZeRO, where every parameter is on one GPU; with
    the degrees of groups of equal machines exchanged; or, in the space, with more replicas of as
    many times smaller micro-batches in place of parts that all slots have.
    """
    return any(twin in listed for twin in _renamed(instance, config)) or any(
        covers(instance, listed, space, twin) for twin in _by_replicas(config) if twin in space
    )


def _renamed(instance: Instance, config: Config) -> Iterator[Config]:
    copies = config.dp * max(slot.parts * slot.cp for slot in config.slots)
    shared = max(copies, config.dp * config.slots[0].width // config.ep if config.etp == 1 else 1)
    if shared == 1:
        lowest = min(_zero(instance, config.pp))
        alike = instance.search.recompute_per == "plan" or lowest > 1
        ways = config.recompute if alike else next(_recompute(instance, lowest))
        config = config._replace(zero=lowest, sync_each_batch=True, recompute=ways)
    groups = instance.cluster.groups
    nodes = [(group, n) for group, n in zip(groups, config.nodes, strict=True) if n]
    used = [
        (group.model_copy(update={"name": "", "nodes": n}), slot)
        for (group, n), slot in zip(nodes, config.slots, strict=True)
    ]
    machines = [machine for machine, _ in used]
    for order in permutations(used):
        if [machine for machine, _ in order] == machines:
            yield config._replace(slots=tuple(slot for _, slot in order))


def _by_replicas(config: Config) -> Iterator[Config]:
    common = gcd(*(slot.parts for slot in config.slots))
    for n in range(2, common + 1):
        if common % n == 0:
            slots = tuple(slot._replace(parts=slot.parts // n) for slot in config.slots)
            dp, b = config.dp * n, config.micro_batch // n
            yield config._replace(slots=slots, dp=dp, micro_batch=b)


#: One in which every stage has degrees of its own: nodes, dp, pp, micro-batch.
StageConfig = tuple[tuple[int, ...], int, int, int]


def stage_configurations(instance: Instance) -> set[StageConfig]:
    """Those of several stages that can be laid out: equal shares, no shared experts or sequences.

    With one stage they are among those by group.
    """
    if instance.search.degrees != "per_stage":
        return set()
    num_gpus = sum(group.nodes * group.gpus_per_node for group in instance.cluster.groups)
    return {
        (nodes, dp, pp, b)
        for nodes in _nodes(instance)
        for dp, pp, b in product(range(1, num_gpus + 1), _stage_counts(instance), _sizes(instance))
        if pp > 1
        and list(_zero(instance, pp))
        and instance.workload.global_batch // b % dp == 0
        and _listed(instance, dp, pp)
        and _can_stand(instance, nodes, dp, pp, b)
    }


def _can_stand(instance: Instance, nodes: tuple[int, ...], dp: int, pp: int, b: int) -> bool:
    """Whether the replicas of each stage lie side by side in a node, or fill nodes of a group."""
    sizes = [group.gpus_per_node for group in instance.cluster.groups]
    widths = [
        {s.width for s in _slots_of(instance, nodes, size) if s.cp == 1 and b % s.parts == 0}
        for size in sizes
    ]

    @cache
    def rest(unused: tuple[int, ...], group: int, free: int, stages: int) -> bool:
        """Whether so many stages fill what is free on a node of a group, and the unused nodes."""
        if not stages:
            return not free and not any(unused)
        if free:
            inside = (dp * width for width in widths[group] if dp * width <= free)
            return any(rest(unused, group, free - gpus, stages - 1) for gpus in inside)
        for j, count in enumerate(unused):
            for gpus in (dp * width for width in widths[j]):
                taken = max(1, gpus // sizes[j])
                if taken > count or (gpus > sizes[j] and gpus % sizes[j]):
                    continue
                after = (*unused[:j], count - taken, *unused[j + 1 :])
                if rest(after, j, taken * sizes[j] - gpus, stages - 1):
                    return True
        return False

    return rest(nodes, 0, 0, pp)
