"""The file of a switch: who sends which slices of tensors to whom between two plans.

One JSON object. Slices that the same GPUs hold and the same GPUs need are one class, laid end to
end in the order in which they are listed, each layer by layer; sendings name bytes of that run.
GPUs, nodes and zones have their numbers in the cluster. `verify` derives every figure again, except
`hetplan_version` and `runtime_s`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from formulations.instance import Cluster, Workload
from formulations.instance.record import Seconds
from formulations.lengths.problem import Moves
from formulations.plan import Plan
from formulations.switching.shards import Kind, SliceClass
from formulations.switching.switch import Line, Sending, Switch, Volumes, port_bound, published_plan
from formulations.units import seconds
from solver.files import Envelope
from solver.result import relative_gap

#: Kinds of tensors that move.
KINDS: Mapping[Moves, tuple[Kind, ...]] = {
    "parameters": ("parameters",),
    "gradients": ("gradients",),
    "both": ("parameters", "gradients"),
}


class SwitchDocument(Envelope):
    """Everything that `verify` and `show` need.

    published_s: what the plan of the published rule takes (HotSPa, SOSP 2024).
    """

    written_by = "a switch file written by switch --out"
    renewed_by = "run switch again"

    kind: Literal["switch"] = "switch"
    schema_version: Literal[6] = 6
    moves: Moves
    time_s: Seconds
    lower_bound_s: Seconds
    gap: float
    published_s: Seconds
    runtime_s: Seconds
    devices: tuple[Volumes, ...]
    bound_by: tuple[Line, ...]
    classes: tuple[SliceClass, ...]
    sendings: tuple[Sending, ...]
    before: Plan
    after: Plan
    workload: Workload
    cluster: Cluster


def switch_figures(switch: Switch, sendings: Sequence[Sending]) -> dict[str, Any]:
    """The fields of a file that follow from what is sent: volumes, times and bound."""
    bound = port_bound(switch)
    time_s, bound_s = seconds(switch.time_ns(sendings)), seconds(bound.time_ns)
    return {
        "time_s": time_s,
        "lower_bound_s": bound_s,
        "gap": relative_gap(time_s, bound_s) or 0.0,
        "published_s": seconds(switch.time_ns(published_plan(switch))),
        "devices": switch.volumes(sendings),
        "bound_by": bound.channels,
    }
