"""From the outcome of a choice to the content of the file of mixed lengths."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from formulations.instance import Instance
from formulations.lengths.problem import Mixed
from formulations.lengths.shares import micro_batches
from formulations.lengths.tour import Group, Hop, groups_ns, hops
from formulations.units import seconds
from solver.document import HETPLAN_VERSION, PlanDocument, sealed
from solver.lengths.choose import Chosen
from solver.lengths_document import (
    LENGTHS_SCHEMA_VERSION,
    GroupDocument,
    HopDocument,
    LengthsDocument,
    ProblemDocument,
    SingleDocument,
)
from solver.switch_document import SwitchDocument
from solver.switching.documented import KINDS, switch_document


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
    mixed, tour, single = chosen.mixed, chosen.tour, chosen.single
    times = zip(tour.groups, groups_ns(mixed, tour), strict=True)
    switches = hops(mixed.switching, tour)
    document = LengthsDocument(
        kind="lengths",
        schema_version=LENGTHS_SCHEMA_VERSION,
        hetplan_version=HETPLAN_VERSION,
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
        single=single and SingleDocument(strategy=single[0], step_time_s=seconds(single[1])),
        groups=tuple(_group(mixed, group, ns) for group, ns in times if ns is not None),
        switches=tuple(
            HopDocument(leaves=hop.leaves, enters=hop.enters, moves=hop.moves, time_s=seconds(ns))
            for hop in switches
            for ns in [hop.time_ns]
            if ns is not None
        ),
        problem=ProblemDocument.of(mixed),
        above=tuple(above),
        instance=instance,
        plans=tuple(plans),
        switch_plans=tuple(_switch_plans(switches, plans)) if plans else (),
        digest="",
    )
    return sealed(document)


def _switch_plans(
    switches: Sequence[Hop], plans: Sequence[PlanDocument]
) -> Iterator[SwitchDocument]:
    """As the times of switches were worked out: parameters and gradients one after the other."""
    for hop in switches:
        for kind in KINDS[hop.moves]:
            yield switch_document(plans[hop.leaves], plans[hop.enters], kind)


def _group(mixed: Mixed, group: Group, time_ns: int) -> GroupDocument:
    atoms = [mixed.atoms[k] for k in group.atoms]
    return GroupDocument(
        strategy=group.strategy,
        atoms=group.atoms,
        buckets=tuple(_buckets(mixed, group)),
        sequences=sum(atom.count for atom in atoms),
        tokens=sum(atom.count * atom.tokens for atom in atoms),
        micro_batches=micro_batches(mixed, group, time_ns),
        time_s=seconds(time_ns),
    )


def _buckets(mixed: Mixed, group: Group) -> list[tuple[int, int]]:
    """Thresholds of neighbouring atoms: above, up to."""
    found = []
    for _, run in groupby(enumerate(group.atoms), key=lambda pair: pair[1] - pair[0]):
        own = [k for _, k in run]
        above = mixed.atoms[own[0] - 1].tokens if own[0] else 0
        found.append((above, mixed.atoms[own[-1]].tokens))
    return found
