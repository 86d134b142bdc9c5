"""The parts of the page that need no script: figures, machines, stages, memory, time."""

from collections.abc import Iterable, Sequence
from html import escape

from formulations.costs.plan_costs import PlanCosts
from solver.document import MemoryDocument, PlanDocument
from solver.report.critical import by_type, improvements
from solver.report.layers import layers_text
from solver.report.layout import Lines
from solver.report.quantities import percent, size_text, time_text
from solver.report.rows import replicas_text
from solver.report.stages import alike, num_chunks, placed
from solver.simulate import Step

PALETTE = 8  #: colours for GPU types and for parts in the style sheet, used again beyond that
_MEMORY_NAMES = {
    "weights_bytes": "weights",
    "gradients_bytes": "gradients",
    "optimizer_bytes": "optimizer state",
    "activations_bytes": "activations",
    "buffers_bytes": "buffers",
    "reserve_bytes": "framework reserve",
}


def section(title: str, body: str, note: str = "") -> str:
    """A titled part of the page; `note`: a sentence below the title."""
    below = f"<p class=note>{escape(note)}</p>" if note else ""
    return f"<section><h2>{escape(title)}</h2>{below}{body}</section>"


def lines_table(lines: Lines) -> str:
    """Labelled lines."""
    rows = "".join(
        f"<tr><th scope=row>{escape(label)}</th><td>{escape(text)}</td></tr>"
        for label, text in lines
    )
    return f"<table class=lines>{rows}</table>"


def text_table(headings: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 2) -> str:
    """A table whose first columns are text, the others numbers."""
    head = "".join(f"<th>{escape(one)}</th>" for one in headings[:texts])
    head += "".join(f"<th class=number>{escape(one)}</th>" for one in headings[texts:])
    body = "".join(
        "<tr>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[:texts])
        + "".join(f"<td class=number>{escape(cell)}</td>" for cell in row[texts:])
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def legend(names: Iterable[tuple[str, str]]) -> str:
    """Style class and name of everything that has a colour."""
    keys = "".join(f"<li><i class={one}></i>{escape(name)}</li>" for one, name in names)
    return f"<ul class=legend>{keys}</ul>"


def type_classes(document: PlanDocument) -> dict[str, str]:
    """Style class of every GPU type of the cluster."""
    types = dict.fromkeys(group.gpu.name for group in document.instance.cluster.groups)
    return {name: f"t{i % PALETTE}" for i, name in enumerate(types)}


def machines(document: PlanDocument) -> str:
    """Every node with its GPUs, each with the stage that it runs; those of no plan are empty."""
    classes, runs = type_classes(document), dict[tuple[str, int], tuple[int, int]]()
    for r, replica in enumerate(document.replicas):
        for k, stage in enumerate(replica.stages[: len(replica.stages) // num_chunks(document)]):
            runs |= {(stage.node, gpu): (k, r) for gpu in stage.gpus}
    cluster = document.instance.cluster
    group_of = dict(zip(cluster.node_names, cluster.node_groups, strict=True))
    cards = []
    for name in dict.fromkeys((*document.node_order, *cluster.node_names)):
        group = cluster.groups[group_of[name]]
        cells = [
            _gpu(gpu, classes[group.gpu.name], runs.get((name, gpu)))
            for gpu in range(group.gpus_per_node)
        ]
        place = f" in {group.zone}" if group.zone else ""
        title = f"<b>{escape(name)}</b> {escape(group.gpu.name + place)}"
        cards.append(f"<div class=node><p>{title}</p><div class=gpus>{''.join(cells)}</div></div>")
    return f"<div class=nodes>{''.join(cards)}</div>{legend((c, n) for n, c in classes.items())}"


def _gpu(gpu: int, style: str, run: tuple[int, int] | None) -> str:
    if run is None:
        return f'<i class=idle title="GPU {gpu}: idle"></i>'
    return f'<i class={style} title="GPU {gpu}: stage {run[0]}, replica {run[1]}">{run[0]}</i>'


def stages(document: PlanDocument) -> str:
    """The chain of layers, cut into stages, as wide as they have layers."""
    classes, size = type_classes(document), len(document.instance.workload.layers)
    bars = []
    num_devices = len(document.replicas[0].stages) // num_chunks(document)
    for s, stage in enumerate(document.replicas[0].stages):
        types = dict.fromkeys(one.stages[s].gpu_type for one in document.replicas)
        width = 100 * (stage.layers[1] - stage.layers[0]) / size
        layers = layers_text(document.instance.workload, range(*stage.layers))
        text = f"stage {s % num_devices}: layers {layers} on {', '.join(types)}"
        inner = "".join(f"<i class={classes[name]}></i>" for name in types)
        bars.append(
            f'<div class=stage style="width:{width:.3f}%" title="{escape(text)}">'
            f"<div class=types>{inner}</div><span>{s % num_devices}</span></div>"
        )
    return f"<div class=chain>{''.join(bars)}</div>"


def memory(document: PlanDocument) -> str:
    """What the memory of a GPU of every stage holds, against its limit."""
    parts = list(_MEMORY_NAMES)
    assert parts == list(MemoryDocument.model_fields)
    largest = max(s.memory_limit_bytes for one in document.replicas for s in one.stages)
    rows = []
    for k, chunk, replicas, own in alike(document):
        if chunk:
            continue
        stage, held = own[0], own[0].memory.model_dump()
        bars = "".join(_share(f"m{i}", held[part] / largest) for i, part in enumerate(parts))
        limit = 100 * stage.memory_limit_bytes / largest
        texts = (f"{_MEMORY_NAMES[part]} {size_text(held[part])}" for part in parts)
        free = stage.memory_limit_bytes - stage.memory_bytes
        about = [stage.gpu_type, f"layers {_layers(document, k)}"]
        about += [replicas_text(replicas)] if len(document.replicas) > 1 else []
        rows.append(
            f"<tr><th scope=row>{k}</th><td>{escape(placed(own))} <small>"
            f"{escape('; '.join(about))}</small></td>"
            f'<td class=bar title="{escape(", ".join(texts))}"><div>{bars}'
            f'<b style="left:{limit:.2f}%"></b></div></td>'
            f"<td class=number>{size_text(stage.memory_bytes, largest)}</td>"
            f"<td class=number>{size_text(free, largest)}</td></tr>"
        )
    head = (
        "<tr><th>stage</th><th>GPUs</th><th>memory of each</th>"
        "<th class=number>used</th><th class=number>free</th></tr>"
    )
    names = legend((f"m{i}", _MEMORY_NAMES[part]) for i, part in enumerate(parts))
    return f"<table class=memory>{head}{''.join(rows)}</table>{names}"


def _layers(document: PlanDocument, stage: int) -> str:
    """Those of a stage, chunk by chunk."""
    every = len(document.replicas[0].stages) // num_chunks(document)
    runs = (range(*one.layers) for one in document.replicas[0].stages[stage::every])
    return " and ".join(layers_text(document.instance.workload, run) for run in runs)


def _share(style: str, share: float) -> str:
    return f'<i class={style} style="width:{100 * share:.3f}%"></i>'


def time_spent(document: PlanDocument, costs: PlanCosts, step: Step) -> str:
    """Where the time of the critical path goes, and what would shorten it."""
    total = step.step_time_ns
    rows, bars = "", ""
    for i, (text, time_ns) in enumerate(
        by_type(step.critical_path, document, costs.blocking_sends)
    ):
        style = f"m{i % PALETTE}"
        bars += _share(style, time_ns / total)
        rows += (
            f"<tr><td><i class='key {style}'></i>{escape(text)}</td>"
            f"<td class=number>{time_text(time_ns / 1e9, total / 1e9)}</td>"
            f"<td class=number>{percent(time_ns / total)}</td></tr>"
        )
    gains = improvements(document, costs, step)
    faster = "".join(
        f"<tr><td>10 % less time for {escape(name)}</td><td class=number>"
        f"{percent(saved)} of the step</td></tr>"
        for name, saved in gains
    )
    return (
        f"<div class=whole>{bars}</div><div class=pair><table>{rows}</table>"
        "<table><tr><th>what would shorten it</th><th class=number>saves</th></tr>"
        f"{faster}</table></div>"
    )
