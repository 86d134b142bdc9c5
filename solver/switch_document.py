"""The file of a switch: who sends which slices of tensors to whom between two plans.

One JSON object. Slices that the same GPUs hold and the same
GPUs need are one class, laid end to end in the order in which they are listed, each layer by layer;
sendings name bytes of that run. GPUs are named NODE:NUMBER. `verify` derives every figure again,
except `hetplan_version` and `runtime_s`.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from formulations.instance import Cluster, Workload
from formulations.instance.input_limits import Bytes, Count, Index, Name, Seconds
from formulations.instance.record import Record
from formulations.lengths.problem import Moves
from formulations.plan import Plan
from formulations.switching.network import Line
from formulations.switching.seats import Kind
from formulations.switching.slices import Slice
from solver.files import Envelope

Share = tuple[Index, Index, Count]  #: from, to, of so many equal parts


#: Kinds of tensors that move.
KINDS: Mapping[Moves, tuple[Kind, ...]] = {
    "parameters": ("parameters",),
    "gradients": ("gradients",),
    "both": ("parameters", "gradients"),
}


def gpu_names(cluster: Cluster) -> list[str]:
    """NODE:NUMBER of all GPUs, in the order of the cluster."""
    return [
        f"{name}:{gpu}"
        for name, j in zip(cluster.node_names, cluster.node_groups, strict=True)
        for gpu in range(cluster.groups[j].gpus_per_node)
    ]


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

    @classmethod
    def of(cls, piece: Slice) -> "SliceDocument":
        """A slice of a class."""
        experts, cut, split = (
            (*share, units) for share, units in zip(piece.part, piece.grid, strict=True)
        )
        return cls(
            kind=piece.kind,
            what=piece.what,
            layers=piece.layers,
            experts=experts,
            cut=cut,
            split=split,
            size_bytes=piece.size_bytes,
        )


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

    @classmethod
    def of(cls, gpu: str, volumes: Sequence[int]) -> "DeviceDocument":
        """A GPU by name, and its volumes in the order of the fields."""
        sent_inside, sent_between, received_inside, received_between = volumes
        return cls(
            gpu=gpu,
            sent_inside_bytes=sent_inside,
            sent_between_bytes=sent_between,
            received_inside_bytes=received_inside,
            received_between_bytes=received_between,
        )


class ChannelDocument(Record):
    """A port or link, on which the bound rests alone or with others.

    at: the GPU that sends or receives, the node, or the zone from which the link leads, `to`.
    """

    line: Literal["send", "receive", "out", "in", "zone"]
    at: Name
    to: Name | None = None

    @classmethod
    def of(cls, cluster: Cluster, line: Line) -> "ChannelDocument":
        """A port or link of a cluster."""
        zones = list(dict.fromkeys(group.zone or "" for group in cluster.groups))
        gpus = gpu_names(cluster)
        places = {"send": gpus, "receive": gpus, "zone": zones}
        at = places.get(line.what, list(cluster.node_names))[line.first]
        return cls(line=line.what, at=at, to=zones[line.second] if line.what == "zone" else None)


class SwitchDocument(Envelope):
    """Everything that `verify` and `show` need.

    published_s: what the plan of the published rule takes (HotSPa, SOSP 2024).
    """

    written_by = "a switch file written by switch --out"
    renewed_by = "run switch again"

    kind: Literal["switch"] = "switch"
    schema_version: Literal[3] = 3
    moves: Moves
    time_s: Seconds
    lower_bound_s: Seconds
    gap: float
    published_s: Seconds
    runtime_s: Seconds
    devices: tuple[DeviceDocument, ...]
    bound_by: tuple[ChannelDocument, ...]
    classes: tuple[ClassDocument, ...]
    before: Plan
    after: Plan
    workload: Workload
    cluster: Cluster
