"""The page of a plan: its figures, its machines, one step to zoom into, and its proof."""

import json
from collections.abc import Iterable
from html import escape
from importlib import resources
from itertools import accumulate
from typing import TYPE_CHECKING

from formulations.instance.targets import TARGETS
from solver.document import MemoryDocument, PlanDocument, StageDocument
from solver.report.chart import COLOURS, inline, picture
from solver.report.critical import SPEED_UP_PERCENT, by_type, improvements
from solver.report.layout import Grid, Labelled, Markup, table_of
from solver.report.naming import layers_text
from solver.report.quantities import percent, significant, size_text, time_text
from solver.report.stages import AlikeStages, alike, all_stages, num_stages, placed
from solver.report.step import replicas_text, timeline_data
from solver.report.text import figures, heading_lines, outcome
from solver.simulate import Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PALETTE = 8  #: colours for GPU types and for parts in the style sheet, used again beyond that
_MEMORY_NAMES = {
    "weights_bytes": "weights",
    "gradients_bytes": "gradients",
    "optimizer_bytes": "optimizer state",
    "activations_bytes": "activations",
    "buffers_bytes": "buffers",
    "reserve_bytes": "framework reserve",
}
_NAMESPACE = ' xmlns="http://www.w3.org/2000/svg"'
_TIMELINE = (
    '<div class=tools><button id=in title="zoom in">+</button>'
    '<button id=out title="zoom out">&minus;</button><button id=all>whole step</button>'
    "<span id=hint>drag to move; two fingers, or Ctrl and the wheel, to zoom</span></div>"
    '<canvas id=step role=img aria-label="one training step"></canvas>'
    "<p id=what>&nbsp;</p><ul class=legend id=kinds></ul>"
)


def html_page(document: PlanDocument, step: Step) -> str:
    """One HTML file that needs nothing else, for a document with a plan and its simulated step."""
    title = ": ".join(dict.fromkeys((document.instance.name, document.instance.workload.name)))
    data = json.dumps(timeline_data(document, step), separators=(",", ":")).replace("<", "\\u003c")
    proof = Labelled(outcome(document)).html() + search_chart(document)
    # The figures that matter most, each with its name
    status = f"{document.status} for {TARGETS[document.target].name}"
    headline = [("step time", time_text(document.step_time_s or 0.0)), ("status", status)]
    if document.lower_bound_s is not None and document.gap is not None:
        headline.append(("no plan is below", time_text(document.lower_bound_s)))
        headline.append(("gap", percent(document.gap)))
    rate = f"{significant(document.throughput_sequences_per_s or 0.0)} sequences/s"
    headline += [("throughput", rate), ("MFU", percent(document.mfu or 0.0))]
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in headline
    )
    parts = [
        section("Plan", Labelled(heading_lines(document))),
        section("Stages", stages(document), "Layers of the model, stage by stage."),
        section("Machines", machines(document), "The number on a GPU is the stage it runs."),
        section("Memory", memory(document), "Peak on each GPU; the mark is the limit."),
        section("One step", _TIMELINE),
        section("Where the time goes", time_spent(document, step)),
        section("Proof", proof),
        section("Figures and assumptions", Labelled(figures(document))),
    ]
    script = (
        f'\n<script type="application/json" id=data>{data}</script>'
        f"<script>{_asset('page.js')}</script>"
    )
    return sections_page(title, parts, f"<dl class=headline>{cells}</dl>", script)


def sections_page(title: str, parts: Iterable[str], headline: str = "", script: str = "") -> str:
    """A page of sections below its title, in our style; pictures need no namespace in HTML."""
    head = f"<header><h1>{escape(title)}</h1>{headline}</header><main>"
    body = "\n".join([head, *parts, "</main>"]).replace(_NAMESPACE, "")
    return (
        '<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content="'
        f'width=device-width,initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_asset('page.css')}</style></head><body>\n{body}{script}</body></html>\n"
    )


def _asset(name: str) -> str:
    return resources.files("solver.report.html").joinpath(name).read_text(encoding="utf-8")


# Parts that need no script: figures, machines, stages, memory, time


def section(title: str, body: str | Grid | Labelled, note: str = "") -> str:
    """A titled part of the page; `note`: a sentence below the title."""
    below = f"<p class=note>{escape(note)}</p>" if note else ""
    shown = body if isinstance(body, str) else body.html()
    return f"<section><h2>{escape(title)}</h2>{below}{shown}</section>"


def legend(names: Iterable[tuple[str, str]]) -> str:
    """Style class and name of everything that has a colour."""
    keys = "".join(f"<li><i class={style}></i>{escape(name)}</li>" for style, name in names)
    return f"<ul class=legend>{keys}</ul>"


def type_classes(document: PlanDocument) -> dict[str, str]:
    """Style class of every GPU type of the cluster."""
    types = dict.fromkeys(group.gpu.name for group in document.instance.cluster.groups)
    return {name: f"t{i % PALETTE}" for i, name in enumerate(types)}


def machines(document: PlanDocument) -> str:
    """Every node with its GPUs, each with the stage that it runs; those of no plan are empty."""
    classes, runs = type_classes(document), dict[tuple[str, int], tuple[int, int]]()
    for r, replica in enumerate(document.replicas):
        for k, stage in enumerate(replica.stages[: num_stages(document)]):
            runs |= {(stage.node, gpu): (k, r) for gpu in stage.gpus}
    cluster = document.instance.cluster
    groups = dict(zip(cluster.node_names, cluster.node_groups, strict=True))
    cards = []
    for name in dict.fromkeys((*document.node_order, *cluster.node_names)):
        group = cluster.groups[groups[name]]
        cells = ""
        for gpu in range(group.gpus_per_node):
            style, text, number = "idle", "idle", ""
            if (name, gpu) in runs:
                k, r = runs[name, gpu]
                style, text, number = classes[group.gpu.name], f"stage {k}, replica {r}", str(k)
            cells += f'<i class={style} title="GPU {gpu}: {text}">{number}</i>'
        place = f" in {group.zone}" if group.zone else ""
        title = f"<b>{escape(name)}</b> {escape(group.gpu.name + place)}"
        cards.append(f"<div class=node><p>{title}</p><div class=gpus>{cells}</div></div>")
    return f"<div class=nodes>{''.join(cards)}</div>{legend((c, n) for n, c in classes.items())}"


def stages(document: PlanDocument) -> str:
    """The chain of layers, cut into stages, as wide as they have layers."""
    classes, workload = type_classes(document), document.instance.workload
    bars = []
    for s, stage in enumerate(document.replicas[0].stages):
        k = s % num_stages(document)
        types = dict.fromkeys(replica.stages[s].gpu_type for replica in document.replicas)
        width = 100 * (stage.layers[1] - stage.layers[0]) / len(workload.layers)
        layers = layers_text(workload, range(*stage.layers))
        text = f"stage {k}: layers {layers} on {', '.join(types)}"
        inner = "".join(f"<i class={classes[name]}></i>" for name in types)
        bars.append(
            f'<div class=stage style="width:{width:.3f}%" title="{escape(text)}">'
            f"<div class=types>{inner}</div><span>{k}</span></div>"
        )
    return f"<div class=chain>{''.join(bars)}</div>"


def memory(document: PlanDocument) -> str:
    """What the memory of a GPU of every stage holds, against its limit."""
    assert list(_MEMORY_NAMES) == list(MemoryDocument.model_fields)
    largest = max(stage.memory_limit_bytes for stage in all_stages(document))
    pp, workload = num_stages(document), document.instance.workload

    def place(row: AlikeStages) -> str:
        # The layers of the stage, chunk by chunk
        chunks = document.replicas[0].stages[row.stage :: pp]
        runs = (layers_text(workload, range(*chunk.layers)) for chunk in chunks)
        about = [row.figures.gpu_type, f"layers {' and '.join(runs)}"]
        about += [replicas_text(row.replicas)] if len(document.replicas) > 1 else []
        where = escape(placed(document.instance.cluster, row.stages))
        return Markup(f"{where} <small>{escape('; '.join(about))}</small>")

    def bars(row: AlikeStages) -> str:
        sizes = row.figures.memory.model_dump().values()
        parts = zip(_MEMORY_NAMES.values(), sizes, strict=True)
        texts = ", ".join(f"{name} {size_text(size_bytes)}" for name, size_bytes in parts)
        shares = "".join(
            _share(f"m{i}", size_bytes / largest) for i, size_bytes in enumerate(sizes)
        )
        limit = f'<b style="left:{100 * row.figures.memory_limit_bytes / largest:.2f}%"></b>'
        return Markup(f'<div class=bar title="{escape(texts)}">{shares}{limit}</div>')

    def free(stage: StageDocument) -> str:
        return size_text(stage.memory_limit_bytes - stage.memory_bytes, largest)

    table = table_of(
        (row for row in alike(document) if not row.chunk),
        {"stage": lambda row: str(row.stage), "GPUs": place, "memory of each": bars},
        {
            "used": lambda row: size_text(row.figures.memory_bytes, largest),
            "free": lambda row: free(row.figures),
        },
    )
    names = legend((f"m{i}", name) for i, name in enumerate(_MEMORY_NAMES.values()))
    return f"<div class=memory>{table.html()}</div>{names}"


def _share(style: str, share: float) -> str:
    return f'<i class={style} style="width:{100 * share:.3f}%"></i>'


def time_spent(document: PlanDocument, step: Step) -> str:
    """Where the time of the critical path goes, and what would shorten it."""
    total_ns = step.step_time_ns
    bars, spent = "", []
    for i, (text, time_ns) in enumerate(by_type(document, step)):
        style, share = f"m{i % PALETTE}", time_ns / total_ns
        bars += _share(style, share)
        named = Markup(f"<i class='key {style}'></i>{escape(text)}")
        spent.append((named, time_text(time_ns / 1e9, total_ns / 1e9), percent(share)))
    faster = [
        (f"{SPEED_UP_PERCENT} % less time for {name}", f"{percent(saved)} of the step")
        for name, saved in improvements(document, step)
    ]
    tables = Grid(["on the critical path"], ["time", "share"], spent).html()
    tables += Grid(["what would shorten it"], ["saves"], faster).html()
    return f"<div class=bar>{bars}</div><div class=pair>{tables}</div>"


def search_chart(document: PlanDocument) -> str:
    """Best plan and bound over time, as shares of the last plan; empty if nothing was noted."""
    step_s = document.step_time_s
    plans = [(note.elapsed_s, note.step_time_s) for note in document.history if note.step_time_s]
    bounds = [(note.elapsed_s, note.bound) for note in document.history if note.bound is not None]
    if not step_s or not plans or not bounds:
        return ""
    shares = [(at_s, time_s / step_s) for at_s, time_s in plans]
    highest = accumulate((share for _, share in bounds), max)
    rising = [(at_s, share) for (at_s, _), share in zip(bounds, highest, strict=True)]
    top = max(1.02, min(max(share for _, share in shares), 2.0))
    low = max(0.0, min(share for _, share in rising) - 0.02)
    end_s = max(document.runtime_s, shares[-1][0], rising[-1][0])

    def draw(axes: "Axes") -> None:
        lines = {"best plan so far": (shares, 4), "proved: no plan is below": (rising, 5)}
        for name, (points, colour) in lines.items():
            times_s, values = zip(*points, (end_s, points[-1][1]), strict=True)
            axes.step(times_s, values, where="post", label=name, color=COLOURS[colour])
        axes.set(xlim=(0.0, end_s or 1.0), ylim=(low, top))
        axes.set_xlabel("search time, s; 100 % is the best plan in the end")
        axes.yaxis.set_major_formatter(lambda share, _: percent(share))
        axes.legend()

    return inline(picture("", draw, size=(7.6, 2.4)), "best plan and bound against search time")
