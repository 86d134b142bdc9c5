"""Stages, their memory and places, as tables; what crosses between zones, over which links."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from formulations.instance import Cluster
from solver.document import MemoryDocument, PlanDocument, StageDocument
from solver.report.layout import Grid, table_of
from solver.report.naming import layers_text
from solver.report.quantities import node_ranges, ranges, size_text, size_unit, time_unit


class AlikeStages(NamedTuple):
    """A chunk of a stage in the replicas that have equal figures on it."""

    stage: int  #: one of the pp
    chunk: int
    replicas: list[int]
    stages: list[StageDocument]  #: of each of these replicas
    micro_batches: int

    @property
    def figures(self) -> StageDocument:
        """Those of any of them; only places differ."""
        return self.stages[0]


def all_stages(document: PlanDocument) -> list[StageDocument]:
    """Virtual stages of all replicas."""
    return [stage for replica in document.replicas for stage in replica.stages]


def placed(cluster: Cluster, stages: Iterable[StageDocument]) -> str:
    """Where groups run: "a10-0..1: 0-3" for GPUs 0 to 3 of each of two nodes, joined or not."""
    sizes = {group.name: group.gpus_per_machine for group in cluster.groups}
    by_node: dict[str, set[int]] = defaultdict(set)
    for stage in stages:
        name, _, first = stage.node.rpartition("-")
        for gpu in stage.gpus:
            machine, number = divmod(gpu, sizes[name])
            by_node[f"{name}-{int(first) + machine}"].add(number)
    nodes: dict[str, list[str]] = defaultdict(list)
    for node, gpus in by_node.items():
        nodes[ranges(gpus)].append(node)
    return "; ".join(f"{node_ranges(names)}: {gpus}" for gpus, names in nodes.items())


def alike(document: PlanDocument) -> Iterator[AlikeStages]:
    """Stage by stage, chunk by chunk, replicas with equal figures together."""
    pp = document.planned.pp
    for s in sorted(range(len(document.replicas[0].stages)), key=lambda s: s % pp):
        groups: dict[tuple[int, StageDocument], list[int]] = defaultdict(list)
        for r, replica in enumerate(document.replicas):
            shown = replica.stages[s].but(node="", gpus=())
            groups[replica.micro_batches, shown].append(r)
        for (micro_batches, _), replicas in groups.items():
            stages = [document.replicas[r].stages[s] for r in replicas]
            yield AlikeStages(s % pp, s // pp, replicas, stages, micro_batches)


def stage_table(document: PlanDocument) -> Grid:
    """Stages with layers, place, time per micro-batch and memory per GPU.

    A GPU's place and memory stand with the first of its chunks, where it has several. The
    micro-batches of each row are told where replicas differ in them, weight gradients where the
    schedule puts them off, and blocks recomputed where some are.
    """
    workload, stages = document.instance.workload, all_stages(document)
    cluster = document.instance.cluster
    time = time_unit(max(max(stage.forward_s, stage.backward_s) for stage in stages))
    size = size_unit(max(stage.memory_limit_bytes for stage in stages))
    chunks = document.planned.vpp > 1
    uneven = len({replica.micro_batches for replica in document.replicas}) > 1
    split = any(stage.weight_gradient_s for stage in stages)
    recomputed = any(stage.recomputed.blocks for stage in stages)

    def recomputed_text(stage: StageDocument) -> str:
        blocks = sum(layer.is_block for layer in workload.layers[slice(*stage.layers)])
        way = "" if stage.recomputed.way == "full" else f", {stage.recomputed.way}"
        return f"{stage.recomputed.blocks} of {blocks}{way}" if stage.recomputed.blocks else "none"

    def free(stage: StageDocument) -> str:
        return size.number(stage.memory_limit_bytes - stage.memory_bytes)

    return table_of(
        alike(document),
        {
            "stage": lambda row: str(row.stage),
            "chunk": chunks and (lambda row: str(row.chunk)),
            "layers": lambda row: layers_text(workload, range(*row.figures.layers)),
            "replicas": lambda row: ranges(row.replicas),
            "node: GPUs": lambda row: "" if row.chunk else placed(cluster, row.stages),
            "GPU type": lambda row: "" if row.chunk else row.figures.gpu_type,
        },
        {
            "batches": uneven and (lambda row: str(row.micro_batches)),
            f"forward {time.name}": lambda row: time.number(row.figures.forward_s),
            f"backward {time.name}": lambda row: time.number(row.figures.backward_s),
            f"weights {time.name}": split
            and (lambda row: time.number(row.figures.weight_gradient_s)),
            "recomputed": recomputed and (lambda row: recomputed_text(row.figures)),
            f"used {size.name}": lambda row: (
                "" if row.chunk else size.number(row.figures.memory_bytes)
            ),
            f"free {size.name}": lambda row: "" if row.chunk else free(row.figures),
        },
    )


def traffic_table(document: PlanDocument) -> Grid:
    """Transfers per micro-batch, by stage and chunk; syncs and optimizer per step, by stage."""
    stages, chunks = all_stages(document), document.planned.vpp > 1
    send = time_unit(max(max(stage.send_forward_s, stage.send_backward_s) for stage in stages))
    update = time_unit(
        max(max(s.gradient_sync_s, s.embedding_sync_s, s.optimizer_s) for s in stages)
    )

    def once(row: AlikeStages, time_s: float) -> str:
        return "" if row.chunk else update.number(time_s)

    return table_of(
        alike(document),
        {
            "stage": lambda row: str(row.stage),
            "chunk": chunks and (lambda row: str(row.chunk)),
            "replicas": lambda row: ranges(row.replicas),
        },
        {
            f"send forward {send.name}": lambda row: send.number(row.figures.send_forward_s),
            f"send backward {send.name}": lambda row: send.number(row.figures.send_backward_s),
            f"gradient sync {update.name}": lambda row: once(row, row.figures.gradient_sync_s),
            f"embedding sync {update.name}": lambda row: once(row, row.figures.embedding_sync_s),
            f"optimizer {update.name}": lambda row: once(row, row.figures.optimizer_s),
        },
    )


def memory_table(document: PlanDocument, more: Mapping[str, str] = MappingProxyType({})) -> Grid:
    """What the memory of a GPU holds, by stage; more: headings, each of a field of the stage."""
    size = size_unit(max(stage.memory_limit_bytes for stage in all_stages(document)))
    parts = list(MemoryDocument.model_fields)
    rows = [
        [str(row.stage), ranges(row.replicas)]
        + [size.number(getattr(row.figures.memory, part)) for part in parts]
        + [size.number(getattr(row.figures, field)) for field in more.values()]
        for row in alike(document)
        if not row.chunk
    ]
    names = [part.removesuffix("_bytes") for part in parts]
    return Grid(("stage", "replicas"), [f"{name} {size.name}" for name in (*names, *more)], rows)


def placement_table(document: PlanDocument) -> Grid:
    """Every node of the cluster, those of the plan first in rank order, and what its GPUs run."""
    runs: dict[str, list[tuple[tuple[int, ...], int, int]]] = defaultdict(list)
    for r, replica in enumerate(document.replicas):
        for k, stage in enumerate(replica.stages[: document.planned.pp]):
            runs[stage.node].append((stage.gpus, k, r))
    cluster = document.instance.cluster
    groups = dict(zip(cluster.node_names, cluster.node_groups, strict=True))
    rows = []
    for name in dict.fromkeys((*document.node_order, *cluster.node_names)):
        node = (name, cluster.groups[groups[name]].gpu.name)
        for gpus, k, r in sorted(runs[name]):
            rows.append((*node, ranges(gpus), str(k), str(r)))
            node = ("", "")
        if not runs[name]:
            rows.append((*node, "idle", "", ""))
    return Grid(("node", "GPU type", "GPUs"), ("stage", "replica"), rows)


def tightest(document: PlanDocument) -> str:
    """The GPU with the least free memory, in words, and the margin that is not counted as free."""
    stages = [(k, stage) for replica in document.replicas for k, stage in enumerate(replica.stages)]
    k, stage = min(
        stages, key=lambda row: (row[1].memory_limit_bytes - row[1].memory_bytes, row[0])
    )
    limit, margin = stage.memory_limit_bytes, document.memory_margin
    kept = "; no margin"
    if margin and margin.share:
        kept = f"; margin {100 * margin.share:.2g} % ({'; '.join(margin.evidence)})"
    return (
        f"tightest on stage {k}, {stage.node} ({stage.gpu_type}): "
        f"{size_text(stage.memory_bytes, limit)} used of {size_text(limit)}, "
        f"{size_text(limit - stage.memory_bytes, limit)} free{kept}"
    )
