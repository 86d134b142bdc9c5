"""The files of a step of mixed lengths, and of a switch between two plans; each one JSON object.

A step: which strategy runs which sequences, in which order. It holds the problem that was decided:
the length atoms of a step, what every strategy takes for rows, and what switches take; and what
that was made of: the instance, a plan file for every strategy that was not measured, and switch
files for the switches of the step.

A switch: who sends which slices of tensors to whom. Slices that the same GPUs hold and the same
GPUs need are one class, laid end to end in the order in which they are listed, each layer by layer;
sendings name bytes of that run. GPUs, nodes and zones have their numbers in the cluster.

`verify` derives every figure again but `hetplan_version`, `runtime_s`, `termination` and
`requested_gap`, which describe the run.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from formulations.instance import Cluster, Instance, Workload
from formulations.instance.record import Index, Line, Seconds
from formulations.lengths import tour as tours
from formulations.lengths.problem import Mixed, Moves, Order
from formulations.plan import Plan
from formulations.switching.shards import Kind, SliceClass
from formulations.switching.switch import Line as Channel
from formulations.switching.switch import Sending, Switch, Volumes, port_bound, published_plan
from formulations.units import seconds
from solver.document import PlanDocument
from solver.files import Envelope
from solver.result import Status, Termination, relative_gap

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
    bound_by: tuple[Channel, ...]
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


class LengthsDocument(Envelope):
    """Everything that `verify` and `show` need; groups and switches in the order of the step.

    single: the best strategy that runs everything. above: of every strategy, by which share of a
    row's time that of `problem` is above it at most. instance: None where the problem was not made
    of one. plans: of every strategy, with rows as long as it takes; none where they were measured.
    switch_plans: of every switch, parameters before gradients.
    """

    written_by = "a file of mixed lengths written by lengths --out"
    renewed_by = "run lengths again"

    kind: Literal["lengths"] = "lengths"
    schema_version: Literal[7] = 7
    workload: Line
    order: Order
    status: Status
    termination: Termination
    requested_gap: float = Field(ge=0, lt=1)
    runtime_s: Seconds
    anchor: Index
    step_time_s: Seconds
    lower_bound_s: Seconds
    gap: float
    single: tours.Single | None
    groups: tuple[tours.GroupFigures, ...] = Field(min_length=1)
    switches: tuple[tours.Hop, ...]
    problem: Mixed
    above: tuple[Annotated[float, Field(ge=0, le=1e6)], ...]
    instance: Instance | None
    plans: tuple[PlanDocument, ...]
    switch_plans: tuple[SwitchDocument, ...]

    @property
    def tour(self) -> tours.Tour:
        """The groups of the step, without their figures."""
        return tours.Tour(
            self.anchor, tuple(tours.Group(group.strategy, group.atoms) for group in self.groups)
        )


def step_figures(mixed: Mixed, tour: tours.Tour) -> dict[str, Any] | None:
    """The fields of a file that follow from problem and tour; None for a step that cannot be."""
    total_ns = tours.step_ns(mixed, tour)
    if total_ns is None:
        return None
    return {
        "groups": tuple(tours.group_figures(mixed, tour)),
        "switches": tuple(tours.hops(mixed.switching, tour)),
        "step_time_s": seconds(total_ns),
        "single": tours.best_single(mixed),
    }
