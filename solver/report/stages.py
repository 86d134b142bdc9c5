"""Stages and their places, as tables."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from rich.table import Table

from solver.document import MemoryDocument, PlanDocument, StageDocument
from solver.report.layout import table
from solver.report.quantities import node_ranges, ranges, size_text, time_text


def placed(stages: Iterable[StageDocument]) -> str:
    """Where groups run: "a10-0..1: 0-3" for GPUs 0 to 3 of each of two nodes."""
    by_node: dict[str, set[int]] = defaultdict(set)
    for stage in stages:
        by_node[stage.node].update(stage.gpus)
    nodes: dict[str, list[str]] = defaultdict(list)
    for node, gpus in by_node.items():
        nodes[ranges(gpus)].append(node)
    return "; ".join(f"{node_ranges(names)}: {gpus}" for gpus, names in nodes.items())


def layers_text(layers: tuple[int, int]) -> str:
    """A half-open range as people count: first-last."""
    return ranges(range(*layers))


def _alike(document: PlanDocument) -> Iterator[tuple[int, list[int], list[StageDocument]]]:
    """Stage number, replicas with equal figures on that stage, and that stage of each."""
    for k in range(len(document.replicas[0].stages)):
        groups: dict[tuple[int, StageDocument], list[int]] = defaultdict(list)
        for r, replica in enumerate(document.replicas):
            shown = replica.stages[k].model_copy(update={"node": "", "gpus": ()})
            groups[replica.micro_batches, shown].append(r)
        for replicas in groups.values():
            yield k, replicas, [document.replicas[r].stages[k] for r in replicas]


def stage_table(document: PlanDocument) -> Table:
    """Stages with layers, place, time per micro-batch and memory per GPU.

    The micro-batches of each row are told where replicas differ in them.
    """
    stages = [stage for replica in document.replicas for stage in replica.stages]
    longest = max(max(stage.forward_s, stage.backward_s) for stage in stages)
    largest = max(stage.memory_limit_bytes for stage in stages)
    uneven = len({replica.micro_batches for replica in document.replicas}) > 1
    rows = [
        (
            str(k),
            layers_text(own[0].layers),
            ranges(replicas),
            placed(own),
            own[0].gpu_type,
            *([str(document.replicas[replicas[0]].micro_batches)] * uneven),
            time_text(own[0].forward_s, longest),
            time_text(own[0].backward_s, longest),
            size_text(own[0].memory_bytes, largest),
            size_text(own[0].memory_limit_bytes - own[0].memory_bytes, largest),
        )
        for k, replicas, own in _alike(document)
    ]
    texts = ("stage", "layers", "replicas", "node: GPUs", "GPU type")
    numbers = (*(["batches"] * uneven), "forward", "backward", "memory", "free")
    return table(texts, numbers, rows)


def traffic_table(document: PlanDocument) -> Table:
    """Transfers per micro-batch, syncs and optimizer per step, by stage."""
    stages = [stage for replica in document.replicas for stage in replica.stages]
    longest = max(max(stage.send_forward_s, stage.send_backward_s) for stage in stages)
    sync = max(max(s.gradient_sync_s, s.embedding_sync_s, s.optimizer_s) for s in stages)
    rows = [
        (
            str(k),
            ranges(replicas),
            time_text(own[0].send_forward_s, longest),
            time_text(own[0].send_backward_s, longest),
            time_text(own[0].gradient_sync_s, sync),
            time_text(own[0].embedding_sync_s, sync),
            time_text(own[0].optimizer_s, sync),
        )
        for k, replicas, own in _alike(document)
    ]
    transfers = ("send forward", "send backward")
    updates = ("gradient sync", "embedding sync", "optimizer")
    return table(("stage", "replicas"), (*transfers, *updates), rows)


def memory_table(document: PlanDocument) -> Table:
    """What the memory of a GPU holds, by stage."""
    parts = tuple(MemoryDocument.model_fields)
    largest = max(s.memory_limit_bytes for replica in document.replicas for s in replica.stages)
    rows = [
        (
            str(k),
            ranges(replicas),
            *(size_text(getattr(own[0].memory, part), largest) for part in parts),
        )
        for k, replicas, own in _alike(document)
    ]
    return table(("stage", "replicas"), [part.removesuffix("_bytes") for part in parts], rows)


def placement_table(document: PlanDocument) -> Table:
    """Every node of the cluster, those of the plan first in rank order, and what its GPUs run."""
    runs: dict[str, list[tuple[tuple[int, ...], int, int]]] = defaultdict(list)
    for r, replica in enumerate(document.replicas):
        for k, stage in enumerate(replica.stages):
            runs[stage.node].append((stage.gpus, k, r))
    cluster = document.instance.cluster
    types = {
        name: cluster.groups[j].gpu.name
        for name, j in zip(cluster.node_names, cluster.node_groups, strict=True)
    }
    rows = []
    for name in dict.fromkeys((*document.node_order, *cluster.node_names)):
        first = (name, types[name])
        for gpus, k, r in sorted(runs[name]):
            rows.append((*first, ranges(gpus), str(k), str(r)))
            first = ("", "")
        if not runs[name]:
            rows.append((*first, "idle", "", ""))
    return table(("node", "GPU type", "GPUs"), ("stage", "replica"), rows)


def tightest(document: PlanDocument) -> str:
    """The GPU with the least free memory, in words."""
    free, k, stage = min(
        (
            (stage.memory_limit_bytes - stage.memory_bytes, k, stage)
            for replica in document.replicas
            for k, stage in enumerate(replica.stages)
        ),
        key=lambda item: item[:2],
    )
    limit = stage.memory_limit_bytes
    return (
        f"tightest on stage {k}, {stage.node} ({stage.gpu_type}): "
        f"{size_text(stage.memory_bytes, limit)} used of {size_text(limit)}, "
        f"{size_text(free, limit)} free"
    )
