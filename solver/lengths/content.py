"""From the outcome of a choice to the content of the file of mixed lengths."""

from collections.abc import Iterator, Sequence

from formulations.instance import Instance
from formulations.lengths.tour import Hop, groups_ns, hops
from formulations.units import seconds
from solver.document import PlanDocument
from solver.files import sealed
from solver.lengths.choose import Chosen
from solver.lengths_document import (
    LENGTHS_SCHEMA_VERSION,
    GroupDocument,
    HopDocument,
    LengthsDocument,
    ProblemDocument,
    SingleDocument,
)
from solver.switch_document import KINDS, SwitchDocument
from solver.switching.documented import switch_document


def build_lengths(
    chosen: Chosen,
    workload: str,
    instance: Instance | None = None,
    plans: Sequence[PlanDocument] = (),
    above: Sequence[float] = (),
) -> LengthsDocument:
    """The sealed file; instance: None where the problem was not made of one.

    plans: of all strategies, unless they were measured. above: see `LengthsDocument`.
    """
    mixed, tour = chosen.mixed, chosen.tour
    times = zip(tour.groups, groups_ns(mixed, tour), strict=True)
    switches = hops(mixed.switching, tour)
    document = LengthsDocument(
        kind="lengths",
        schema_version=LENGTHS_SCHEMA_VERSION,
        workload=workload,
        order=chosen.order,
        status=chosen.status,
        termination=chosen.termination,
        requested_gap=chosen.requested_gap,
        runtime_s=chosen.runtime_s,
        anchor=tour.anchor,
        step_time_s=seconds(chosen.step_ns),
        lower_bound_s=seconds(chosen.bound_ns),
        gap=chosen.gap,
        single=SingleDocument.of(mixed),
        groups=tuple(GroupDocument.of(mixed, group, ns) for group, ns in times if ns is not None),
        switches=tuple(map(HopDocument.of, switches)),
        problem=ProblemDocument.of(mixed),
        above=tuple(above),
        instance=instance,
        plans=tuple(plans),
        switch_plans=tuple(_switch_plans(switches, plans)) if plans else (),
    )
    return sealed(document)


def _switch_plans(
    switches: Sequence[Hop], plans: Sequence[PlanDocument]
) -> Iterator[SwitchDocument]:
    """As the times of switches were worked out: parameters and gradients one after the other."""
    for hop in switches:
        for kind in KINDS[hop.moves]:
            yield switch_document(plans[hop.leaves], plans[hop.enters], kind)
