"""A switch in words and tables. Returns what Rich can render."""

from collections.abc import Iterable

from rich.console import RenderableType

from formulations.plan import Plan
from solver.report.layout import Grid, Lines, labelled, table
from solver.report.naming import tensor_text
from solver.report.quantities import counted, percent, ranges, size_text, size_unit, time_text
from solver.switch_document import ChannelDocument, DeviceDocument, SliceDocument, SwitchDocument

#: Rows of a table; what busy GPUs send and receive stands before the rest.
MOST_ROWS = 40
#: Volumes of a GPU in the order of the columns.
COLUMNS = ("sent inside", "sent between", "received inside", "received between")

Volumes = tuple[int, int, int, int]


def switch_text(document: SwitchDocument) -> list[RenderableType]:
    """Volumes by GPU, then figures."""
    parts: list[RenderableType] = []
    if document.devices:
        parts += [device_table(document), ""]
    return [*parts, labelled(switch_lines(document))]


def device_table(document: SwitchDocument) -> Grid:
    """GPUs of a node with equal volumes share a row."""
    rows = few_rows(document)
    unit = size_unit(max(max(volumes) for _, volumes in rows))
    cells = [
        [name, *(unit.text(size) if size else "0" for size in volumes)] for name, volumes in rows
    ]
    return table(["node: GPUs, each"], list(COLUMNS), cells)


def few_rows(document: SwitchDocument) -> list[tuple[str, Volumes]]:
    """As `device_rows`, those beyond MOST_ROWS as one with the largest volumes."""
    rows = device_rows(document)
    if len(rows) <= MOST_ROWS:
        return rows
    rest = rows[MOST_ROWS - 1 :]
    sent, away, received, into = (max(row[1][n] for row in rest) for n in range(4))
    more = f"{len(rest)} more rows, at most", (sent, away, received, into)
    return [*rows[: MOST_ROWS - 1], more]


def device_rows(document: SwitchDocument) -> list[tuple[str, Volumes]]:
    """GPUs and their volumes, bytes."""
    alike: dict[tuple[str, Volumes], list[int]] = {}
    for one in document.devices:
        node, _, gpu = one.gpu.rpartition(":")
        alike.setdefault((node, _volumes(one)), []).append(int(gpu))
    return [(f"{node}: {ranges(gpus)}", volumes) for (node, volumes), gpus in alike.items()]


def _volumes(one: DeviceDocument) -> Volumes:
    return (
        one.sent_inside_bytes,
        one.sent_between_bytes,
        one.received_inside_bytes,
        one.received_between_bytes,
    )


def sending_rows(document: SwitchDocument) -> list[list[str]]:
    """Class, its slices, from, by way of, to, bytes of every sending."""
    rows = []
    for n, own in enumerate(document.classes):
        what = "; ".join(map(_slice_text, own.slices))
        for one in own.sendings:
            others = ", ".join(gpu for gpu in one.receivers if gpu != one.via)
            span = f"{one.begin:,} to {one.end:,}"
            rows.append([f"{n}", what, one.source, one.via or "", others, span])
    return rows


def _slice_text(one: SliceDocument) -> str:
    """Kind, tensors, layers and part, such as "parameters: matrices of layers 1-15, cut 2/8"."""
    first, last = one.layers[0], one.layers[1] - 1
    layers = f"layers {first}-{last}" if last > first else f"layer {first}"
    shares = (("experts", one.experts), ("cut", one.cut), ("split", one.split))
    parts = [
        f"{name} {begin}-{end} of {units}"
        for name, (begin, end, units) in shares
        if end - begin < units
    ]
    return ", ".join([f"{one.kind}: {one.what} of {layers}", *parts])


def switch_lines(document: SwitchDocument) -> Lines:
    """What moves, how long it takes, what no plan beats, and what the published rule takes."""
    lines = [
        ("workload", f"{document.workload.name}: {_MOVES[document.moves]}"),
        ("from", _shape(document.before)),
        ("to", _shape(document.after)),
    ]
    if not document.classes:
        return [*lines, ("volume", "nothing moves: every GPU holds what it needs")]
    inside = sum(one.received_inside_bytes for one in document.devices)
    between = sum(one.received_between_bytes for one in document.devices)
    slices = sum(one.layers[1] - one.layers[0] for own in document.classes for one in own.slices)
    sendings = sum(len(own.sendings) for own in document.classes)
    time_s, rule_s = document.time_s, document.published_s
    classes = f"{len(document.classes):,} class{'es' if len(document.classes) > 1 else ''}"
    bound = f"no plan takes less than {time_text(document.lower_bound_s, time_s)}"
    return [
        *lines,
        ("volume", f"{size_text(inside)} inside nodes, {size_text(between)} between nodes"),
        ("slices", f"{slices:,} in {classes}, {counted(sendings, 'sending')}"),
        ("time", time_text(time_s)),
        ("bound", f"{bound}, gap {percent(document.gap)}; set by {_limits(document.bound_by)}"),
        ("rule", f"{time_text(rule_s, time_s)} by the published rule, {rule_s / time_s:.2f} times"),
        ("search", time_text(document.runtime_s)),
    ]


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


def _limits(channels: Iterable[ChannelDocument]) -> str:
    """The ports and links that the bound counts on."""
    found: dict[str, list[str]] = {}
    for channel in channels:
        name = channel.at if channel.to is None else f"{channel.at} to {channel.to}"
        found.setdefault(_LINES[channel.line], []).append(name)
    return ", ".join(f"{what} ({_few(names)})" for what, names in found.items())


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _shape(plan: Plan) -> str:
    shape = plan.shape
    own = shape.degrees_used or [stage.degrees for one in plan.replicas for stage in one.stages]
    shared = (("context", shape.cp), ("experts", shape.ep))
    more = "".join(f" x {name} {degree}" for name, degree in shared if degree > 1)
    degrees = f"tensor {tensor_text(own)} x data {shape.dp} x pipeline {shape.pp}{more}"
    return f"{degrees}, ZeRO {shape.zero}"
