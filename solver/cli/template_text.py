"""Templates in words and tables."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from formulations.template import Template
from solver.fleets.template_document import TemplatesDocument
from solver.report.layout import labelled, table
from solver.report.quantities import counted, percent, time_text
from solver.templates.generate import TemplateEntry

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Numbers of nodes, or runs of them, that are listed.
MOST_WAYS = 24


def stages_text(template: Template) -> str:
    """Layers per stage and GPUs, node by node: "5x1 4x1 | 9x2": 5 and 4 on one GPU each, 9 on 2.

    Equal neighbours on one node are counted: "2*(4x1)".
    """
    nodes = []
    for _, on_node in groupby(template.stages, key=lambda stage: stage.group.node):
        words = [f"{stage.layers[1] - stage.layers[0]}x{stage.degrees.tp}" for stage in on_node]
        runs = [(word, len(list(run))) for word, run in groupby(words)]
        nodes.append(" ".join(word if n == 1 else f"{n}*({word})" for word, n in runs))
    return " | ".join(nodes)


def _nodes_text(entry: TemplateEntry, names: Sequence[str]) -> str:
    """The size, and which nodes where there are several groups."""
    if entry.template is None or len(names) == 1:
        return str(entry.nodes)
    counts = Counter(names[j] for j in entry.template.node_groups)
    return f"{entry.nodes}: " + ", ".join(f"{n} {name}" for name, n in counts.items())


def recomputed_text(template: Template) -> str:
    """Blocks that are recomputed, by way: "full 12, selective 4"; "none" without any."""
    blocks = Counter[str]()
    for stage in template.stages:
        blocks[stage.recomputed.way] += stage.recomputed.blocks
    return ", ".join(f"{way} {number}" for way, number in blocks.items() if number) or "none"


def _row(entry: TemplateEntry, document: TemplatesDocument) -> list[str]:
    steps = [row.step_time_s or 0.0 for row in document.templates]
    nodes = _nodes_text(entry, document.node_groups)
    if entry.template is None or entry.step_time_s is None:
        return [nodes, f"none ({entry.status.value})", "", str(entry.micro_batches), "", ""]
    return [
        nodes,
        stages_text(entry.template),
        recomputed_text(entry.template),
        str(entry.micro_batches),
        time_text(entry.step_time_s, max(steps)),
        "0" if not entry.gap else percent(entry.gap),
    ]


def _fewest(document: TemplatesDocument) -> list[tuple[str, str]]:
    """The fewest sizes, where any cover."""
    if not document.fewest_sizes:
        return []
    proved = "" if document.fewest_proved else " (not proved to be fewest)"
    sizes = ", ".join(map(str, document.fewest_sizes))
    verb = "covers" if len(document.fewest_sizes) == 1 else "cover"
    return [("fewest", f"{sizes} {verb} the same numbers of nodes{proved}")]


def _merging(document: TemplatesDocument) -> list[tuple[str, str]]:
    """What one failure takes apart, with the sizes and with the fewest."""
    if document.rebuilt_nodes is None or document.rebuilt is None:
        return []
    low, high = document.rebuilt_nodes
    text = (
        f"of {low} to {high} nodes a failure takes at most "
        f"{counted(document.rebuilt, 'pipeline')} apart"
    )
    if document.fewest_sizes != document.sizes:
        text += f"; with the fewest sizes at most {document.rebuilt_by_fewest}"
    return [("merging", text)]


def templates_text(document: TemplatesDocument) -> "list[RenderableType]":
    """The report: n0, the sizes and their proof, one row per template."""
    f = document.faults
    head = labelled(
        [
            ("instance", f"{document.instance}, {document.available} nodes"),
            ("faults", f"{f}: at least {f + 1} pipelines"),
            ("least", _least_text(document)),
            ("sizes", _sizes_text(document)),
            *_fewest(document),
            *_merging(document),
            ("micro-batch", counted(document.micro_batch, "sequence")),
            ("split", document.split.value),
        ]
    )
    rows = table(
        ["nodes", "stages: layers x GPUs, node | node", "recompute"],
        ["micro-batches", "step", "gap"],
        [_row(entry, document) for entry in document.templates],
    )
    ways = [f"{_listed(document.pipelines)}."] if document.pipelines else []
    return [head, "", *document.coverage, *ways, "", rows]


def _least_text(document: TemplatesDocument) -> str:
    n0 = document.least_nodes
    text = f"n0 = {n0}: the fewest nodes that hold the model, whichever they are"
    fewer = [entry.nodes for entry in document.templates if entry.nodes < n0]
    return text + (f"; some choices of {_range_text(sorted(set(fewer)))} do too" if fewer else "")


def _sizes_text(document: TemplatesDocument) -> str:
    sizes = document.sizes
    text = f"{_range_text(sizes)}: for every number of nodes, and to merge after failures"
    larger = sorted({entry.nodes for entry in document.templates if entry.nodes > sizes[-1]})
    return text + (f"; {_range_text(larger)}: for fleets of fewer pipelines" if larger else "")


def _range_text(sizes: Sequence[int]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def _listed(lines: Sequence[str]) -> str:
    """The lines as one sentence, without the middle where they are many."""
    return "; ".join(lines if len(lines) <= MOST_WAYS else [*lines[:8], "...", *lines[-2:]])
