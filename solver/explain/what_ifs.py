"""Changes of an instance that a user could pay for, undo, or ask another team for."""

from collections.abc import Iterator
from dataclasses import dataclass

from formulations.instance import Instance
from formulations.instance.cluster import Link, NodeGroup
from formulations.instance.target import RULES, TARGET_NAMES
from formulations.launch import widened


@dataclass(frozen=True)
class WhatIf:
    """A change in words, and the instance with it.

    wider: every plan stays possible and becomes no slower.
    """

    change: str
    instance: Instance
    wider: bool = False


def what_ifs(instance: Instance) -> Iterator[WhatIf]:
    """Machines first, then links and memory, then the batch, the target and single strategies."""
    yield from _machines(instance)
    yield from _links(instance)
    yield from _memory(instance)
    if instance.workload.global_batch % 2 == 0:
        half = instance.workload.global_batch // 2
        workload = instance.workload.model_copy(update={"global_batch": half})
        change = f"half the batch, {half} sequences, for each of them"
        yield WhatIf(change, instance.model_copy(update={"workload": workload}))
    yield from _strategies(instance)


def _with_group(instance: Instance, j: int, **fields: object) -> Instance:
    groups = list(instance.cluster.groups)
    groups[j] = groups[j].model_copy(update=fields)
    return _with_groups(instance, groups)


def _with_groups(instance: Instance, groups: list[NodeGroup]) -> Instance:
    cluster = instance.cluster.model_copy(update={"groups": tuple(groups)})
    return instance.model_copy(update={"cluster": cluster})


def _machines(instance: Instance) -> Iterator[WhatIf]:
    groups = instance.cluster.groups
    for j, group in enumerate(groups):
        kind = f"{group.gpus_per_node} {group.gpu.name}"
        more = _with_group(instance, j, nodes=group.nodes + 1)
        yield WhatIf(f"one more node of {kind} ({group.name})", more, instance.search.idle_nodes)
    for j, group in enumerate(groups):
        others = [*groups[:j], *groups[j + 1 :]]
        if others and len({one.zone for one in others}) == len({one.zone for one in groups}):
            yield WhatIf(f"without {group.name}", _with_groups(instance, others))


def _faster(link: Link) -> Link:
    return link.model_copy(update={"bandwidth_bytes_per_s": 2 * link.bandwidth_bytes_per_s})


def _links(instance: Instance) -> Iterator[WhatIf]:
    groups = instance.cluster.groups
    if sum(group.nodes for group in groups) > 1:
        wider = [one.model_copy(update={"inter_node": _faster(one.inter_node)}) for one in groups]
        yield WhatIf("twice the bandwidth between nodes", _with_groups(instance, wider), True)
    if any(group.gpus_per_node > 1 for group in groups):
        wider = [one.model_copy(update={"intra_node": _faster(one.intra_node)}) for one in groups]
        yield WhatIf("twice the bandwidth inside nodes", _with_groups(instance, wider), True)


def _memory(instance: Instance) -> Iterator[WhatIf]:
    groups = []
    for group in instance.cluster.groups:
        gpu = group.gpu.model_copy(update={"memory_bytes": 2 * group.gpu.memory_bytes})
        groups.append(group.model_copy(update={"gpu": gpu}))
    yield WhatIf("twice the memory on every GPU", _with_groups(instance, groups), True)


def _strategies(instance: Instance) -> Iterator[WhatIf]:
    """The target's other choice, and each strategy that is allowed beside a simpler one, off."""
    search = instance.search
    for target in RULES:
        for added in widened(instance, target):
            own = search.model_copy(update={"target": target, **added})
            uneven = ", micro-batches uneven" if "micro_batches" in added else ""
            change = f"all that {TARGET_NAMES[target]} can launch{uneven}"
            wider = target == "any" and not (uneven and "schedule" in added)
            yield WhatIf(change, instance.model_copy(update={"search": own}), wider)

    def changed(change: str, **fields: object) -> WhatIf:
        own = search.model_copy(update=fields)
        return WhatIf(change, instance.model_copy(update={"search": own}))

    if "1f1b" in search.schedule and len(search.schedule) > 1:
        yield changed("1F1B alone", schedule=("1f1b",))
    if "none" in search.recompute and len(search.recompute) > 1:
        yield changed("no recomputation", recompute=("none",))
    if search.recompute_per == "stage" and len(search.recompute) > 1:
        yield changed("the same recomputation in all stages", recompute_per="plan")
    if 0 in search.zero and len(search.zero) > 1:
        yield changed("no ZeRO", zero=(0,))
    if search.sequence_parallel:
        yield changed("no sequence parallelism", sequence_parallel=False)
    if search.micro_batches == "uneven":
        yield changed("equally many micro-batches in all replicas", micro_batches="even")
