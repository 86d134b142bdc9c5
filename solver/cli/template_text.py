"""Templates in words and tables."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from formulations.template import Template
from solver.fleets.template_document import TemplatesDocument
from solver.report.layout import labelled, table_of
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


def recomputed_text(template: Template) -> str:
    """Blocks that are recomputed, by way: "full 12, selective 4"; "none" without any."""
    blocks = Counter[str]()
    for stage in template.stages:
        blocks[stage.recomputed.way] += stage.recomputed.blocks
    return ", ".join(f"{way} {number}" for way, number in blocks.items() if number) or "none"


def templates_text(document: TemplatesDocument) -> "list[RenderableType]":
    """The report: n0, the sizes and their proof, one row per template."""
    n0, sizes, fewest = document.least_nodes, document.sizes, document.fewest_sizes
    least = f"n0 = {n0}: the fewest nodes that hold the model, whichever they are"
    if fewer := {entry.nodes for entry in document.templates if entry.nodes < n0}:
        least += f"; some choices of {_range_text(sorted(fewer))} do too"
    covered = f"{_range_text(sizes)}: for every number of nodes, and to merge after failures"
    if larger := {entry.nodes for entry in document.templates if entry.nodes > sizes[-1]}:
        covered += f"; {_range_text(sorted(larger))}: for fleets of fewer pipelines"
    faults = document.faults
    lines = [
        ("instance", f"{document.instance}, {document.available} nodes"),
        ("faults", f"{faults}: at least {faults + 1} pipelines"),
        ("least", least),
        ("sizes", covered),
    ]
    # The fewest sizes, where any cover
    if fewest:
        proved = "" if document.fewest_proved else " (not proved to be fewest)"
        verb = "covers" if len(fewest) == 1 else "cover"
        text = f"{', '.join(map(str, fewest))} {verb} the same numbers of nodes{proved}"
        lines.append(("fewest", text))
    # What one failure takes apart, with the sizes and with the fewest
    if document.rebuilt_nodes is not None and document.rebuilt is not None:
        low, high = document.rebuilt_nodes
        pipelines = counted(document.rebuilt, "pipeline")
        text = f"of {low} to {high} nodes a failure takes at most {pipelines} apart"
        if fewest != sizes:
            text += f"; with the fewest sizes at most {document.rebuilt_by_fewest}"
        lines.append(("merging", text))
    lines.append(("micro-batch", counted(document.micro_batch, "sequence")))
    lines.append(("split", document.split.value))
    # How many pipelines of which sizes: one sentence, without the middle where they are many
    ways = document.pipelines
    listed = ways if len(ways) <= MOST_WAYS else (*ways[:8], "...", *ways[-2:])
    pipelines_text = [f"{'; '.join(listed)}."] if ways else []
    return [labelled(lines), "", *document.coverage, *pipelines_text, "", _table(document)]


def _table(document: TemplatesDocument) -> "RenderableType":
    longest_s = max((entry.step_time_s or 0.0 for entry in document.templates), default=0.0)

    def nodes(entry: TemplateEntry) -> str:
        """The size, and which nodes where there are several groups."""
        names = document.node_groups
        if entry.template is None or len(names) == 1:
            return str(entry.nodes)
        counts = Counter(names[j] for j in entry.template.node_groups)
        return f"{entry.nodes}: " + ", ".join(f"{n} {name}" for name, n in counts.items())

    def stages(entry: TemplateEntry) -> str:
        return stages_text(entry.template) if entry.template else f"none ({entry.status.value})"

    def gap(entry: TemplateEntry) -> str:
        return percent(entry.gap) if entry.gap else "0"

    return table_of(
        document.templates,
        {
            "nodes": nodes,
            "stages: layers x GPUs, node | node": stages,
            "recompute": lambda entry: recomputed_text(entry.template) if entry.template else "",
        },
        {
            "micro-batches": lambda entry: str(entry.micro_batches),
            "step": lambda entry: (
                time_text(entry.step_time_s or 0.0, longest_s) if entry.template else ""
            ),
            "gap": lambda entry: gap(entry) if entry.template else "",
        },
    )


def _range_text(sizes: Sequence[int]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
