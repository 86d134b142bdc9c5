"""The file of a switch: who sends which slices of tensors to whom between two plans.

One JSON object. Slices that the same GPUs hold and the same GPUs need are one class, laid end to
end in the order in which they are listed, each layer by layer; sendings name bytes of that run.
GPUs are named NODE:NUMBER. `verify` derives every figure again, except `hetplan_version` and
`runtime_s`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from formulations.instance import Cluster, Workload
from formulations.instance.record import Bytes, Name, Record, Seconds
from formulations.lengths.problem import Moves
from formulations.plan import Plan
from formulations.switching.shards import Kind, Slice
from formulations.switching.switch import Sending, Switch, port_bound, published_plan
from formulations.units import seconds
from solver.files import Envelope
from solver.result import relative_gap

#: Kinds of tensors that move.
KINDS: Mapping[Moves, tuple[Kind, ...]] = {
    "parameters": ("parameters",),
    "gradients": ("gradients",),
    "both": ("parameters", "gradients"),
}
#: Sent inside the node and between nodes, received inside and between, bytes.
Volumes = tuple[int, int, int, int]


def gpu_names(cluster: Cluster) -> list[str]:
    """NODE:NUMBER of all GPUs, in the order of the cluster."""
    return [
        f"{name}:{gpu}"
        for name, j in zip(cluster.node_names, cluster.node_groups, strict=True)
        for gpu in range(cluster.groups[j].gpus_per_node)
    ]


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

    slices: tuple[Slice, ...] = Field(min_length=1)
    sendings: tuple[SendingDocument, ...] = Field(min_length=1)


class DeviceDocument(Record):
    """Bytes that a GPU sends and receives inside its node and between nodes."""

    gpu: Name
    sent_inside_bytes: Bytes
    sent_between_bytes: Bytes
    received_inside_bytes: Bytes
    received_between_bytes: Bytes

    @property
    def volumes(self) -> Volumes:
        """All of them, in this order."""
        sent = self.sent_inside_bytes, self.sent_between_bytes
        return *sent, self.received_inside_bytes, self.received_between_bytes


class ChannelDocument(Record):
    """A port or link, on which the bound rests alone or with others.

    at: the GPU that sends or receives, the node, or the zone from which the link leads, `to`.
    """

    line: Literal["send", "receive", "out", "in", "zone"]
    at: Name
    to: Name | None = None


class SwitchDocument(Envelope):
    """Everything that `verify` and `show` need.

    published_s: what the plan of the published rule takes (HotSPa, SOSP 2024).
    """

    written_by = "a switch file written by switch --out"
    renewed_by = "run switch again"

    kind: Literal["switch"] = "switch"
    schema_version: Literal[4] = 4
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


def switch_figures(cluster: Cluster, switch: Switch, sendings: Sequence[Sending]) -> dict[str, Any]:
    """The fields of a file that follow from what is sent: volumes, times and bound."""
    names, bound = gpu_names(cluster), port_bound(switch)
    time_s, bound_s = seconds(switch.time_ns(sendings)), seconds(bound.time_ns)
    fields = [name for name in DeviceDocument.model_fields if name != "gpu"]
    volumes = sorted(switch.volumes(sendings).items())
    zones = tuple(dict.fromkeys(group.zone or "" for group in cluster.groups))
    places = {"send": tuple(names), "receive": tuple(names), "zone": zones}
    return {
        "time_s": time_s,
        "lower_bound_s": bound_s,
        "gap": relative_gap(time_s, bound_s) or 0.0,
        "published_s": seconds(switch.time_ns(published_plan(switch))),
        "devices": tuple(
            DeviceDocument(gpu=names[gpu], **dict(zip(fields, sizes, strict=True)))
            for gpu, sizes in volumes
        ),
        "bound_by": tuple(
            ChannelDocument(
                line=line.what,
                at=places.get(line.what, cluster.node_names)[line.first],
                to=zones[line.second] if line.what == "zone" else None,
            )
            for line in bound.channels
        ),
    }
