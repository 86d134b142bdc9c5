"""The file of a step of mixed lengths: which strategy runs which sequences, in which order.

One JSON object. It holds the problem that was decided: the
length atoms of a step, what every strategy takes for rows, and what switches take; and what that
was made of: the instance, a plan file for every strategy that was not measured, and switch files
for the switches of the step. `verify` derives every figure again but `hetplan_version`,
`runtime_s`, `termination` and `requested_gap`, which describe the run.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from formulations.instance import Instance
from formulations.instance.record import Index, Line, Seconds
from formulations.lengths.problem import Mixed, Order
from formulations.lengths.tour import (
    Group,
    GroupFigures,
    Hop,
    Single,
    Tour,
    best_single,
    group_figures,
    hops,
    step_ns,
)
from formulations.units import seconds
from solver.document import PlanDocument
from solver.files import Envelope
from solver.result import Status, Termination
from solver.switch_document import SwitchDocument


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
    single: Single | None
    groups: tuple[GroupFigures, ...] = Field(min_length=1)
    switches: tuple[Hop, ...]
    problem: Mixed
    above: tuple[Annotated[float, Field(ge=0, le=1e6)], ...]
    instance: Instance | None
    plans: tuple[PlanDocument, ...]
    switch_plans: tuple[SwitchDocument, ...]

    @property
    def tour(self) -> Tour:
        """The groups of the step, without their figures."""
        return Tour(self.anchor, tuple(Group(group.strategy, group.atoms) for group in self.groups))


def step_figures(mixed: Mixed, tour: Tour) -> dict[str, Any] | None:
    """The fields of a file that follow from problem and tour; None for a step that cannot be."""
    total_ns = step_ns(mixed, tour)
    if total_ns is None:
        return None
    return {
        "groups": tuple(group_figures(mixed, tour)),
        "switches": tuple(hops(mixed.switching, tour)),
        "step_time_s": seconds(total_ns),
        "single": best_single(mixed),
    }
