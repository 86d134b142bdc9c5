"""A switch: in words and tables for Rich, and as a page."""

from rich.console import RenderableType

from formulations.plan import Plan
from formulations.switching.shards import Slice
from solver.report.html.page import section, sections_page
from solver.report.layout import Lines, labelled, table
from solver.report.naming import tensor_text
from solver.report.quantities import counted, percent, size_text, size_unit, time_text
from solver.report.switch_picture import COLUMNS, device_rows, few_rows, switch_picture
from solver.switch_document import SwitchDocument

_SENDINGS = ("class", "slices", "from", "by way of", "to", "bytes")
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


def switch_text(document: SwitchDocument) -> list[RenderableType]:
    """Volumes by GPU, then figures."""
    parts: list[RenderableType] = []
    if rows := few_rows(document):
        unit = size_unit(max(max(volumes) for _, volumes in rows))
        cells = [
            [name, *(unit.text(size) if size else "0" for size in volumes)]
            for name, volumes in rows
        ]
        parts += [table(["node: GPUs, each"], list(COLUMNS), cells), ""]
    return [*parts, labelled(_lines(document))]


def switch_page(document: SwitchDocument) -> str:
    """One HTML file that needs nothing else: figures, volumes, who sends what to whom."""
    parts = [section("Switch", labelled(_lines(document)).html())]
    if rows := device_rows(document):
        unit = size_unit(max(max(volumes) for _, volumes in rows))
        cells = [[name, *map(unit.number, volumes)] for name, volumes in rows]
        devices = table(["node: GPUs, each"], COLUMNS, cells).html()
        parts += [
            section("Time and volumes", switch_picture(document)),
            section("GPUs", devices, f"In {unit.name}."),
            section(
                "Sendings", table(_SENDINGS[:5], _SENDINGS[5:], _sending_rows(document)).html()
            ),
        ]
    return sections_page(f"{document.workload.name}: switch", parts)


def _sending_rows(document: SwitchDocument) -> list[list[str]]:
    """Class, its slices, from, by way of, to, bytes of every sending."""
    rows = []
    for n, moved in enumerate(document.classes):
        what = "; ".join(map(_slice_text, moved.slices))
        for way in moved.sendings:
            receivers = ", ".join(gpu for gpu in way.receivers if gpu != way.via)
            span = f"{way.begin:,} to {way.end:,}"
            rows.append([f"{n}", what, way.source, way.via or "", receivers, span])
    return rows


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
    sendings = sum(len(moved.sendings) for moved in document.classes)
    time_s, rule_s = document.time_s, document.published_s
    classes = f"{len(document.classes):,} class{'es' if len(document.classes) > 1 else ''}"
    bound = f"no plan takes less than {time_text(document.lower_bound_s, time_s)}"
    return [
        *lines,
        ("volume", f"{size_text(inside)} inside nodes, {size_text(between)} between nodes"),
        ("slices", f"{num_slices:,} in {classes}, {counted(sendings, 'sending')}"),
        ("time", time_text(time_s)),
        ("bound", f"{bound}, gap {percent(document.gap)}; set by {_limits(document)}"),
        ("rule", f"{time_text(rule_s, time_s)} by the published rule, {rule_s / time_s:.2f} times"),
        ("search", time_text(document.runtime_s)),
    ]


def _limits(document: SwitchDocument) -> str:
    """The ports and links that the bound counts on."""
    kinds: dict[str, list[str]] = {}
    for channel in document.bound_by:
        name = channel.at if channel.to is None else f"{channel.at} to {channel.to}"
        kinds.setdefault(_LINES[channel.line], []).append(name)
    texts = []
    for what, names in kinds.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        texts.append(f"{what} ({', '.join(names[:3])}{more})")
    return ", ".join(texts)


def _degrees(plan: Plan) -> str:
    shape = plan.shape
    used = shape.degrees_used or [stage.degrees for r in plan.replicas for stage in r.stages]
    shared = (("context", shape.cp), ("experts", shape.ep))
    more = "".join(f" x {name} {degree}" for name, degree in shared if degree > 1)
    degrees = f"tensor {tensor_text(used)} x data {shape.dp} x pipeline {shape.pp}{more}"
    return f"{degrees}, ZeRO {shape.zero}"
