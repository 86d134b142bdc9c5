"""The file of a switch: who sends which slices of tensors to whom between two plans.

One JSON object, sealed like the plan file of `solve`. Slices that the same GPUs hold and the same
GPUs need are one class, laid end to end in the order in which they are listed, each layer by layer;
sendings name bytes of that run. GPUs are named NODE:NUMBER. `verify` derives every figure again,
except `hetplan_version` and `runtime_s`.
"""

from typing import Annotated, Literal

from pydantic import Field

from formulations.instance import Cluster, Workload
from formulations.instance.extent import Bytes, Count, Index, Line, Name, Seconds
from formulations.instance.record import Record
from formulations.plan import Plan
from solver.sealed_file import SealedFile

Moves = Literal["parameters", "gradients", "both"]
Share = tuple[Index, Index, Count]  #: from, to, of so many equal parts


class SliceDocument(Record):
    """A part of like tensors of layers [start, end).

    matrices: those that tensor parallelism cuts; whole: those that it does not. experts: which of
    them; cut: of the dimension that tensor parallelism cuts, of a vocabulary matrix its rows;
    split: of another dimension, which ZeRO cuts. size_bytes: per layer.
    """

    kind: Literal["parameters", "gradients"]
    what: Literal["matrices", "whole", "experts", "vocabulary"]
    layers: tuple[Index, Index]
    experts: Share
    cut: Share
    split: Share
    size_bytes: Bytes


class SendingDocument(Record):
    """Bytes [begin, end) of a class from a GPU that holds them to others.

    With `via`, which is one of the receivers, it is sent to that one, who forwards it to the others
    of its node; without, to each.
    """

    begin: Bytes
    end: Bytes
    source: Name
    via: Name | None
    receivers: tuple[Name, ...] = Field(min_length=1)


class ClassDocument(Record):
    """Slices with the same owners and the same GPUs that need them, and how these get them."""

    slices: tuple[SliceDocument, ...] = Field(min_length=1)
    sendings: tuple[SendingDocument, ...] = Field(min_length=1)


class DeviceDocument(Record):
    """Bytes that a GPU sends and receives inside its node and between nodes."""

    gpu: Name
    sent_inside_bytes: Bytes
    sent_between_bytes: Bytes
    received_inside_bytes: Bytes
    received_between_bytes: Bytes


class PriceDocument(Record):
    """What a byte's time on a port or link costs in the bound: the proof of `lower_bound_s`.

    at: the GPU that sends or receives, the node, or the zone from which the link leads, `to`.
    """

    line: Literal["send", "receive", "out", "in", "zone"]
    at: Name
    to: Name | None = None
    price: Annotated[int, Field(ge=1, le=10**12)]


class SwitchDocument(Record):
    """Everything that `verify` and `show` need.

    published_s: what the plan of the published rule takes (HotSPa, SOSP 2024).
    """

    kind: Literal["switch"] = "switch"
    schema_version: Literal[2] = 2
    hetplan_version: Name
    moves: Moves
    time_s: Seconds
    lower_bound_s: Seconds
    gap: float
    published_s: Seconds
    runtime_s: Seconds
    devices: tuple[DeviceDocument, ...]
    prices: tuple[PriceDocument, ...]
    classes: tuple[ClassDocument, ...]
    before: Plan
    after: Plan
    workload: Workload
    cluster: Cluster
    digest: Line


SWITCH_FILE = SealedFile(
    SwitchDocument, "a switch file written by switch --out", "run switch again"
)
