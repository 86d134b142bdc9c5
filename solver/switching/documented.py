"""From two plan files to the sealed switch file between them."""

from time import monotonic

from formulations.instance import Cluster
from formulations.plan import Plan
from formulations.switching.network import Line
from formulations.switching.seats import Kind, layout_of
from formulations.switching.slices import Slice
from formulations.switching.switch import Sending, Switch, switch_of
from formulations.units import seconds
from solver.document import HETPLAN_VERSION, PlanDocument, sealed
from solver.result import relative_gap
from solver.switch_document import (
    ClassDocument,
    DeviceDocument,
    Moves,
    PriceDocument,
    SendingDocument,
    SliceDocument,
    SwitchDocument,
)
from solver.switching.quickest import SwitchPlan, plan_switch

KINDS: dict[Moves, tuple[Kind, ...]] = {
    "parameters": ("parameters",),
    "gradients": ("gradients",),
    "both": ("parameters", "gradients"),
}


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
    names = Names(cluster)
    time_s, bound_s = seconds(found.time_ns), seconds(found.bound.time_ns)
    return sealed(
        SwitchDocument(
            hetplan_version=HETPLAN_VERSION,
            moves=moves,
            time_s=time_s,
            lower_bound_s=bound_s,
            gap=relative_gap(time_s, bound_s) or 0.0,
            published_s=seconds(found.published_ns),
            runtime_s=monotonic() - begin,
            devices=_devices(switch, found, names),
            prices=tuple(
                names.price(switch.network.lines[line], price)
                for line, price in sorted(found.bound.prices.items())
            ),
            classes=_classes(switch, found, names),
            before=ends[0],
            after=ends[1],
            workload=workload,
            cluster=cluster,
            digest="-",
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


class Names:
    """Names of GPUs, nodes and zones by number."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = cluster.node_names
        self.gpus = [
            f"{name}:{gpu}"
            for name, j in zip(self._nodes, cluster.node_groups, strict=True)
            for gpu in range(cluster.groups[j].gpus_per_node)
        ]
        self._zones = list(dict.fromkeys(group.zone or "" for group in cluster.groups))

    def price(self, line: Line, price: int) -> PriceDocument:
        """A port or link with its price."""
        own = {"send": self.gpus, "receive": self.gpus, "zone": self._zones}
        at = own.get(line.what, self._nodes)[line.first]
        to = self._zones[line.second] if line.what == "zone" else None
        return PriceDocument(line=line.what, at=at, to=to, price=price)

    def sending(self, one: Sending) -> SendingDocument:
        """Who sends what to whom."""
        return SendingDocument(
            begin=one.begin,
            end=one.end,
            source=self.gpus[one.source],
            via=None if one.via is None else self.gpus[one.via],
            receivers=tuple(self.gpus[gpu] for gpu in one.receivers),
        )


def _classes(switch: Switch, found: SwitchPlan, names: Names) -> tuple[ClassDocument, ...]:
    merged: dict[Sending, list[int]] = {}  # what an owner sends to GPUs of many nodes is one
    for one in found.sendings:
        key = one if one.via is not None else one._replace(receivers=())
        merged.setdefault(key, []).extend(one.receivers)
    sendings: list[list[SendingDocument]] = [[] for _ in switch.classes]
    for key, receivers in merged.items():
        sendings[key.number].append(names.sending(key._replace(receivers=tuple(receivers))))
    return tuple(
        ClassDocument(slices=tuple(map(_slice, own.slices)), sendings=tuple(ways))
        for own, ways in zip(switch.classes, sendings, strict=True)
    )


def _slice(one: Slice) -> SliceDocument:
    experts, cut, split = ((*share, units) for share, units in zip(one.part, one.grid, strict=True))
    return SliceDocument(
        kind=one.kind,
        what=one.what,
        layers=one.layers,
        experts=experts,
        cut=cut,
        split=split,
        size_bytes=one.size_bytes,
    )


def _devices(switch: Switch, found: SwitchPlan, names: Names) -> tuple[DeviceDocument, ...]:
    """Volumes of all GPUs that send or receive something."""
    node_of = switch.network.node_of
    volumes: dict[int, list[int]] = {}
    for one in found.sendings:
        for source, target in one.hops():
            between = node_of[source] != node_of[target]
            volumes.setdefault(source, [0] * 4)[between] += one.end - one.begin
            volumes.setdefault(target, [0] * 4)[2 + between] += one.end - one.begin
    return tuple(
        DeviceDocument(
            gpu=names.gpus[gpu],
            sent_inside_bytes=own[0],
            sent_between_bytes=own[1],
            received_inside_bytes=own[2],
            received_between_bytes=own[3],
        )
        for gpu, own in sorted(volumes.items())
    )
