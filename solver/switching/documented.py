"""From two plan files to the sealed switch file between them."""

from collections.abc import Sequence
from time import monotonic

from formulations.lengths.problem import Moves
from formulations.plan import Plan
from formulations.switching.seats import layout_of
from formulations.switching.switch import Sending, Switch, switch_of
from formulations.units import seconds
from solver.document import PlanDocument
from solver.files import sealed
from solver.result import relative_gap
from solver.switch_document import (
    KINDS,
    ChannelDocument,
    ClassDocument,
    DeviceDocument,
    SendingDocument,
    SliceDocument,
    SwitchDocument,
    gpu_names,
)
from solver.switching.quickest import SwitchPlan, plan_switch


def switch_document(
    before: PlanDocument, after: PlanDocument, moves: Moves, time_limit_s: float | None = None
) -> SwitchDocument:
    """The switch between two files with plans, for the same model and the same machines."""
    begin = monotonic()
    workload, cluster = before.instance.workload, before.instance.cluster
    ends = [_plan(one) for one in (before, after)]
    held, wanted = (layout_of(cluster, one) for one in ends)
    switch = switch_of(cluster, workload, held, wanted, KINDS[moves])
    found = plan_switch(switch, time_limit_s)
    names = gpu_names(cluster)
    volumes = sorted(switch.volumes(found.sendings).items())
    time_s, bound_s = seconds(found.time_ns), seconds(found.bound.time_ns)
    return sealed(
        SwitchDocument(
            moves=moves,
            time_s=time_s,
            lower_bound_s=bound_s,
            gap=relative_gap(time_s, bound_s) or 0.0,
            published_s=seconds(found.published_ns),
            runtime_s=monotonic() - begin,
            devices=tuple(DeviceDocument.of(names[gpu], sizes) for gpu, sizes in volumes),
            bound_by=tuple(ChannelDocument.of(cluster, line) for line in found.bound.channels),
            classes=_classes(switch, found, names),
            before=ends[0],
            after=ends[1],
            workload=workload,
            cluster=cluster,
        )
    )


def _plan(document: PlanDocument) -> Plan:
    """The plan of a file that has one."""
    assert document.shape is not None  # callers refuse files without a plan
    number = {name: n for n, name in enumerate(document.instance.cluster.node_names)}
    return Plan(
        shape=document.shape,
        node_order=tuple(number[name] for name in document.node_order),
        replicas=tuple(replica.replica(number) for replica in document.replicas),
    )


def _sending(sending: Sending, names: Sequence[str]) -> SendingDocument:
    """Who sends what to whom, by name."""
    return SendingDocument(
        begin=sending.begin,
        end=sending.end,
        source=names[sending.source],
        via=None if sending.via is None else names[sending.via],
        receivers=tuple(names[gpu] for gpu in sending.receivers),
    )


def _classes(switch: Switch, found: SwitchPlan, names: Sequence[str]) -> tuple[ClassDocument, ...]:
    merged: dict[Sending, list[int]] = {}  # what an owner sends to GPUs of many nodes is one
    for one in found.sendings:
        key = one if one.via is not None else one._replace(receivers=())
        merged.setdefault(key, []).extend(one.receivers)
    sendings: list[list[SendingDocument]] = [[] for _ in switch.classes]
    for key, receivers in merged.items():
        sendings[key.number].append(_sending(key._replace(receivers=tuple(receivers)), names))
    return tuple(
        ClassDocument(slices=tuple(map(SliceDocument.of, own.slices)), sendings=tuple(ways))
        for own, ways in zip(switch.classes, sendings, strict=True)
    )
