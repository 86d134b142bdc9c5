"""Stages, their memory and places, as tables; what crosses between zones, over which links."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from formulations.costs.transfers import neighbours
from formulations.instance import Cluster
from formulations.instance.instance import MEMORY_MODEL_ERROR
from formulations.instance.sources import NOT_STATED
from solver.document import MemoryDocument, PlanDocument, StageDocument
from solver.report.layout import Grid, Lines, table
from solver.report.naming import layers_text
from solver.report.quantities import (
    Unit,
    node_ranges,
    percent,
    ranges,
    significant,
    size_text,
    size_unit,
    time_text,
    time_unit,
)


def placed(stages: Iterable[StageDocument]) -> str:
    """Where groups run: "a10-0..1: 0-3" for GPUs 0 to 3 of each of two nodes."""
    by_node: dict[str, set[int]] = defaultdict(set)
    for stage in stages:
        by_node[stage.node].update(stage.gpus)
    nodes: dict[str, list[str]] = defaultdict(list)
    for node, gpus in by_node.items():
        nodes[ranges(gpus)].append(node)
    return "; ".join(f"{node_ranges(names)}: {gpus}" for gpus, names in nodes.items())


def num_chunks(document: PlanDocument) -> int:
    """Chunks of layers that every GPU of the plan runs."""
    return 1 if document.shape is None else document.shape.vpp


def alike(document: PlanDocument) -> Iterator[tuple[int, int, list[int], list[StageDocument]]]:
    """Stage, chunk, replicas with equal figures on these, and that virtual stage of each."""
    num_stages = len(document.replicas[0].stages) // num_chunks(document)
    for s in sorted(range(len(document.replicas[0].stages)), key=lambda s: s % num_stages):
        groups: dict[tuple[int, StageDocument], list[int]] = defaultdict(list)
        for r, replica in enumerate(document.replicas):
            shown = replica.stages[s].but(node="", gpus=())
            groups[replica.micro_batches, shown].append(r)
        for replicas in groups.values():
            chunk, stage = divmod(s, num_stages)
            yield stage, chunk, replicas, [document.replicas[r].stages[s] for r in replicas]


def stage_table(document: PlanDocument) -> Grid:
    """Stages with layers, place, time per micro-batch and memory per GPU.

    A GPU's place and memory stand with the first of its chunks, where it has several. The
    micro-batches of each row are told where replicas differ in them, weight gradients where the
    schedule puts them off, and blocks recomputed where some are.
    """
    stages = [stage for replica in document.replicas for stage in replica.stages]
    time = time_unit(max(max(stage.forward_s, stage.backward_s) for stage in stages))
    size = size_unit(max(stage.memory_limit_bytes for stage in stages))
    uneven = len({replica.micro_batches for replica in document.replicas}) > 1
    split = any(stage.weight_gradient_s for stage in stages)
    chunks = num_chunks(document) > 1
    again = any(stage.recomputed.blocks for stage in stages)
    rows = [
        (
            str(k),
            *([str(chunk)] * chunks),
            layers_text(document.instance.workload, range(*stages_alike[0].layers)),
            ranges(replicas),
            *(("", "") if chunk else (placed(stages_alike), stages_alike[0].gpu_type)),
            *([str(document.replicas[replicas[0]].micro_batches)] * uneven),
            time.number(stages_alike[0].forward_s),
            time.number(stages_alike[0].backward_s),
            *([time.number(stages_alike[0].weight_gradient_s)] * split),
            *([_recomputed(document, stages_alike[0])] * again),
            *(("", "") if chunk else _memory(stages_alike[0], size)),
        )
        for k, chunk, replicas, stages_alike in alike(document)
    ]
    texts = ("stage", *(["chunk"] * chunks), "layers", "replicas", "node: GPUs", "GPU type")
    times = _headed(("forward", "backward", *(["weights"] * split)), time)
    recomputed = ["recomputed"] * again
    memory = _headed(("used", "free"), size)
    numbers = (*(["batches"] * uneven), *times, *recomputed, *memory)
    return table(texts, numbers, rows)


def _headed(names: Iterable[str], unit: Unit) -> list[str]:
    """Headings of columns in one unit."""
    return [f"{name} {unit.name}" for name in names]


def _recomputed(document: PlanDocument, stage: StageDocument) -> str:
    """How many of a stage's blocks are recomputed in every backward pass."""
    blocks = sum(
        layer.is_block for layer in document.instance.workload.layers[slice(*stage.layers)]
    )
    way = "" if stage.recomputed.way == "full" else f", {stage.recomputed.way}"
    return f"{stage.recomputed.blocks} of {blocks}{way}" if stage.recomputed.blocks else "none"


def _memory(stage: StageDocument, size: Unit) -> tuple[str, str]:
    """What a GPU needs and what is left."""
    free_bytes = stage.memory_limit_bytes - stage.memory_bytes
    return size.number(stage.memory_bytes), size.number(free_bytes)


def traffic_table(document: PlanDocument) -> Grid:
    """Transfers per micro-batch, by stage and chunk; syncs and optimizer per step, by stage."""
    stages = [stage for replica in document.replicas for stage in replica.stages]
    send = time_unit(max(max(stage.send_forward_s, stage.send_backward_s) for stage in stages))
    chunks = num_chunks(document) > 1
    sync = time_unit(max(max(_updates(stage)) for stage in stages))
    rows = [
        (
            str(k),
            *([str(chunk)] * chunks),
            ranges(replicas),
            send.number(stages_alike[0].send_forward_s),
            send.number(stages_alike[0].send_backward_s),
            *("" if chunk else sync.number(time_s) for time_s in _updates(stages_alike[0])),
        )
        for k, chunk, replicas, stages_alike in alike(document)
    ]
    transfers = _headed(("send forward", "send backward"), send)
    updates = _headed(("gradient sync", "embedding sync", "optimizer"), sync)
    texts = ("stage", *(["chunk"] * chunks), "replicas")
    return table(texts, (*transfers, *updates), rows)


def _updates(stage: StageDocument) -> tuple[float, float, float]:
    """Syncs and optimizer of a GPU."""
    return stage.gradient_sync_s, stage.embedding_sync_s, stage.optimizer_s


def memory_table(document: PlanDocument) -> Grid:
    """What the memory of a GPU holds, by stage."""
    parts = tuple(MemoryDocument.model_fields)
    limits = (s.memory_limit_bytes for replica in document.replicas for s in replica.stages)
    size = size_unit(max(limits))
    rows = [
        (
            str(k),
            ranges(replicas),
            *(size.number(getattr(stages_alike[0].memory, part)) for part in parts),
        )
        for k, chunk, replicas, stages_alike in alike(document)
        if not chunk
    ]
    names = _headed((part.removesuffix("_bytes") for part in parts), size)
    return table(("stage", "replicas"), names, rows)


def placement_table(document: PlanDocument) -> Grid:
    """Every node of the cluster, those of the plan first in rank order, and what its GPUs run."""
    runs: dict[str, list[tuple[tuple[int, ...], int, int]]] = defaultdict(list)
    for r, replica in enumerate(document.replicas):
        for k, stage in enumerate(replica.stages[: len(replica.stages) // num_chunks(document)]):
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
    keep = 1 - document.instance.limits.memory_headroom
    close = stage.memory_bytes > limit / keep * (1 - MEMORY_MODEL_ERROR)
    error = f"; within {percent(MEMORY_MODEL_ERROR)} of the GPU's, the error of the memory model"
    return (
        f"tightest on stage {k}, {stage.node} ({stage.gpu_type}): "
        f"{size_text(stage.memory_bytes, limit)} used of {size_text(limit)}, "
        f"{size_text(free, limit)} free" + error * close
    )


Pair = tuple[int, int]  #: two zones, by number


def zone_lines(document: PlanDocument) -> Lines:
    """One line per pair of zones that anything crosses between; empty without zones."""
    cluster, shape = document.instance.cluster, document.shape
    if not cluster.has_zones or shape is None:
        return []
    crossings: dict[Pair, dict[str, set[int]]] = {}
    for pair, what, stage in _crossings(document):
        crossings.setdefault(pair, {}).setdefault(what, set()).add(stage)
    lines = [_line(cluster, pair, what) for pair, what in sorted(crossings.items())]
    return [("" if i else "zones", line) for i, line in enumerate(lines or ["nothing crosses"])]


def _crossings(document: PlanDocument) -> Iterator[tuple[Pair, str, int]]:
    """Pairs of zones, what crosses there, and of which stage of GPUs."""
    cluster = document.instance.cluster
    zones = dict(zip(cluster.node_names, cluster.node_groups, strict=True))
    pp = len(document.replicas[0].stages) // num_chunks(document)
    for replica in document.replicas:
        where = [cluster.zone_of_group[zones[stage.node]] for stage in replica.stages]
        for s, ends in enumerate(pairwise(where)):
            if ends[0] != ends[1]:
                yield (min(ends), max(ends)), "activations after", s % pp
    for k in range(pp):
        nodes = [replica.stages[k].node for replica in document.replicas]
        for pair in neighbours([cluster.zone_of_group[zones[node]] for node in nodes]):
            yield pair, "gradients of", k


def _line(cluster: Cluster, pair: Pair, crossing: dict[str, set[int]]) -> str:
    names = [cluster.zones[zone] for zone in pair]
    link = cluster.link_between(*names)
    what = ", ".join(
        f"{name} stage{'s' * (len(stages) > 1)} {ranges(sorted(stages))}"
        for name, stages in crossing.items()
    )
    speed = f"{significant(link.bandwidth_bytes_per_s * 8 / 1e9)} Gbit/s"
    source = f"by {link.source}" if link.source == NOT_STATED else f"({link.source})"
    figures = f"{speed}, {time_text(link.latency_s)}, {link.kind} {source}"
    return f"{names[0]} to {names[1]}: {what}; {figures}"
