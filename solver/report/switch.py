"""A switch: in words and tables for Rich, and as a page."""

from collections.abc import Sequence
from dataclasses import astuple

from rich.console import RenderableType

from formulations.instance import Cluster
from formulations.plan import Plan
from formulations.switching.shards import Slice
from solver.report.html.page import section, sections_page
from solver.report.layout import Grid, Labelled, Lines, table_of
from solver.report.naming import shards_text, tensor_text
from solver.report.quantities import (
    counted,
    percent,
    ranges,
    size_text,
    size_unit,
    time_text,
)
from solver.switch_document import SwitchDocument

_MOVES = {
    "parameters": "parameters",
    "gradients": "accumulated gradients as their reduction leaves them",
    "both": "parameters, and accumulated gradients as their reduction leaves them",
}
_LINES = {
    "send": "what GPUs can send",
    "receive": "what GPUs can receive",
    "out": "links out of nodes",
    "in": "links into nodes",
    "zone": "links between zones",
}

#: Rows of a table; what busy GPUs send and receive stands before the rest.
MOST_ROWS = 40
#: Volumes of a GPU, bytes, in the order of the columns.
Sizes = tuple[int, ...]
COLUMNS = ("sent inside", "sent between", "received inside", "received between")


def gpu_names(cluster: Cluster) -> list[str]:
    """NODE:NUMBER of all GPUs, in the order of the cluster."""
    pairs = zip(cluster.node_names, cluster.node_groups, strict=True)
    return [f"{node}:{n}" for node, j in pairs for n in range(cluster.groups[j].gpus_per_node)]


def device_rows(document: SwitchDocument) -> list[tuple[str, Sizes]]:
    """GPUs and their volumes; GPUs of a node with equal volumes share a row."""
    names, alike = gpu_names(document.cluster), dict[tuple[str, Sizes], list[int]]()
    for device in document.devices:
        node, _, gpu = names[device.gpu].rpartition(":")
        alike.setdefault((node, astuple(device)[1:]), []).append(int(gpu))
    return [(f"{node}: {ranges(gpus)}", sizes) for (node, sizes), gpus in alike.items()]


def _volumes(rows: Sequence[tuple[str, Sizes]]) -> Grid:
    """In one unit, with its name in every cell but of nothing."""
    unit = size_unit(max(max(volumes) for _, volumes in rows))
    cells = [
        [name, *(unit.text(size) if size else "0" for size in volumes)] for name, volumes in rows
    ]
    return Grid(["node: GPUs, each"], COLUMNS, cells)


def switch_text(document: SwitchDocument) -> list[RenderableType]:
    """Volumes by GPU, then figures."""
    rows = device_rows(document)
    table: list[RenderableType] = [_volumes(rows[:MOST_ROWS])] if rows else []
    more = max(0, len(rows) - MOST_ROWS)
    table += [f"and {counted(more, 'more row')}", ""] if more else [""] * bool(rows)
    return [*table, Labelled(_lines(document))]


def switch_page(document: SwitchDocument) -> str:
    """One HTML file that needs nothing else: figures, volumes, who sends what to whom."""
    parts = [section("Switch", Labelled(_lines(document)))]
    if rows := device_rows(document):
        parts += [
            section("GPUs", _volumes(rows)),
            section("Sendings", _sendings(document)),
        ]
    return sections_page(f"{document.workload.name}: switch", parts)


def _sendings(document: SwitchDocument) -> Grid:
    names, slices = gpu_names(document.cluster), [moved.slices for moved in document.classes]
    return table_of(
        document.sendings,
        {
            "class": lambda way: f"{way.number}",
            "slices": lambda way: "; ".join(map(_slice_text, slices[way.number])),
            "from": lambda way: names[way.source],
            "by way of": lambda way: "" if way.via is None else names[way.via],
            "to": lambda way: ", ".join(names[gpu] for gpu in way.receivers if gpu != way.via),
        },
        {"bytes": lambda way: f"{way.begin:,} to {way.end:,}"},
    )


def _slice_text(piece: Slice) -> str:
    """Kind, tensors, layers and part, such as "parameters: matrices of layers 1-15, cut 2/8"."""
    first, last = piece.layers[0], piece.layers[1] - 1
    layers = f"layers {first}-{last}" if last > first else f"layer {first}"
    shares = (("experts", piece.experts), ("cut", piece.cut), ("split", piece.split))
    parts = [
        f"{name} {begin}-{end} of {units}"
        for name, (begin, end, units) in shares
        if end - begin < units
    ]
    return ", ".join([f"{piece.kind}: {piece.what} of {layers}", *parts])


def _lines(document: SwitchDocument) -> Lines:
    """What moves, how long it takes, what no plan beats, and what the published rule takes."""
    lines = [
        ("workload", f"{document.workload.name}: {_MOVES[document.moves]}"),
        ("from", _degrees(document.before)),
        ("to", _degrees(document.after)),
    ]
    if not document.classes:
        return [*lines, ("volume", "nothing moves: every GPU holds what it needs")]
    inside = sum(device.received_inside_bytes for device in document.devices)
    between = sum(device.received_between_bytes for device in document.devices)
    slices = [piece.layers for moved in document.classes for piece in moved.slices]
    num_slices = sum(end - start for start, end in slices)
    time_s, rule_s = document.time_s, document.published_s
    classes = counted(len(document.classes), "class")
    # The ports and links that the bound counts on
    zones, gpus = [zone or "" for zone in document.cluster.zones], gpu_names(document.cluster)
    places = {"send": gpus, "receive": gpus, "zone": zones}
    kinds: dict[str, list[str]] = {}
    for line in document.bound_by:
        name = places.get(line.what, document.cluster.node_names)[line.first]
        name += f" to {zones[line.second]}" if line.what == "zone" else ""
        kinds.setdefault(_LINES[line.what], []).append(name)
    limits = []
    for what, names in kinds.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        limits.append(f"{what} ({', '.join(names[:3])}{more})")
    bound = f"no plan takes less than {time_text(document.lower_bound_s, time_s)}"
    return [
        *lines,
        ("volume", f"{size_text(inside)} inside nodes, {size_text(between)} between nodes"),
        ("slices", f"{num_slices:,} in {classes}, {counted(len(document.sendings), 'sending')}"),
        ("time", time_text(time_s)),
        ("bound", f"{bound}, gap {percent(document.gap)}; set by {', '.join(limits)}"),
        ("rule", f"{time_text(rule_s, time_s)} by the published rule, {rule_s / time_s:.2f} times"),
        ("search", time_text(document.runtime_s)),
    ]


def _degrees(plan: Plan) -> str:
    config = plan.config
    used = config.degrees_used or [stage.degrees for r in plan.replicas for stage in r.stages]
    shared = (("context", config.cp), ("experts", config.ep))
    more = "".join(f" x {name} {degree}" for name, degree in shared if degree > 1)
    degrees = f"tensor {tensor_text(used)} x data {config.dp} x pipeline {config.pp}{more}"
    return f"{degrees}, {shards_text(config)}"
