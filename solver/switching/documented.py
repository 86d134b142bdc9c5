"""From two plan files to the sealed switch file between them, if they are alike.

Alike: of one model on the same machines. Sequence length, batch, and what machines cost are left
aside.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from time import monotonic

from formulations.errors import PlanError
from formulations.instance import Cluster, Workload
from formulations.instance.record import MOST_TEXT
from formulations.lengths.problem import Moves
from formulations.plan import Plan
from formulations.switching.shards import layout_of
from formulations.switching.switch import Sending, Switch, switch_of
from solver.document import PlanDocument
from solver.files import sealed
from solver.switch_document import (
    KINDS,
    ClassDocument,
    SendingDocument,
    SwitchDocument,
    gpu_names,
    switch_figures,
)
from solver.switching.quickest import plan_switch


def switch_document(
    before: PlanDocument, after: PlanDocument, moves: Moves, time_limit_s: float | None = None
) -> SwitchDocument:
    """The switch between two files with plans, for the same model and the same machines."""
    begin = monotonic()
    workload, cluster = before.instance.workload, before.instance.cluster
    ends = [_plan(document) for document in (before, after)]
    first, last = (layout_of(cluster, plan) for plan in ends)
    switch = switch_of(cluster, workload, first, last, KINDS[moves])
    sendings = plan_switch(switch, time_limit_s).sendings
    return sealed(
        SwitchDocument(
            **switch_figures(cluster, switch, sendings),
            moves=moves,
            classes=_classes(switch, sendings, gpu_names(cluster)),
            before=ends[0],
            after=ends[1],
            workload=workload,
            cluster=cluster,
            runtime_s=monotonic() - begin,
        )
    )


def _plan(document: PlanDocument) -> Plan:
    """The plan of a file that has one."""
    assert document.config is not None  # callers refuse files without a plan
    number = {name: n for n, name in enumerate(document.instance.cluster.node_names)}
    return Plan(
        config=document.config,
        node_order=tuple(number[name] for name in document.node_order),
        replicas=tuple(replica.replica(number) for replica in document.replicas),
    )


def _classes(
    switch: Switch, sendings: Sequence[Sending], names: Sequence[str]
) -> tuple[ClassDocument, ...]:
    merged: dict[Sending, list[int]] = {}  # what an owner sends to GPUs of many nodes is one
    for way in sendings:
        key = way if way.via is not None else way._replace(receivers=())
        merged.setdefault(key, []).extend(way.receivers)
    documents: list[list[SendingDocument]] = [[] for _ in switch.classes]
    for way, receivers in merged.items():
        documents[way.number].append(
            SendingDocument(
                begin=way.begin,
                end=way.end,
                source=names[way.source],
                via=None if way.via is None else names[way.via],
                receivers=tuple(names[gpu] for gpu in receivers),
            )
        )
    return tuple(
        ClassDocument(slices=moved.slices, sendings=tuple(ways))
        for moved, ways in zip(switch.classes, documents, strict=True)
    )


def check_alike(before: PlanDocument, after: PlanDocument, names: tuple[str, str]) -> None:
    """Returns if two plans are of one model and one cluster; PlanError with the first difference.

    Sequence length, batch, and what machines cost are left aside.
    """
    pair = [(file.instance.workload, file.instance.cluster) for file in (after, before)]
    for field, text, expected in unlike(*pair):
        allowed = f"{expected}, as in {names[0]}"
        raise PlanError(f"{names[1]}: {field}", text[:MOST_TEXT], allowed[:MOST_TEXT])


def unlike(
    first: tuple[Workload, Cluster], second: tuple[Workload, Cluster]
) -> Iterator[tuple[str, str, str]]:
    """Where models and machines differ in what a switch rests on: field, that of both."""
    texts = _rests_on(*first)
    for field, expected in _rests_on(*second).items():
        if texts.get(field) != expected:
            yield f"instance.{field}", texts.get(field, "none"), expected


def _rests_on(workload: Workload, cluster: Cluster) -> dict[str, str]:
    """The sizes of tensors, machines and links, field by field, in words."""
    texts = {
        f"workload: {field}": str(getattr(workload, field))
        for field in ("name", "parameters", "parameter_bytes", "gradient_bytes")
    }
    texts["workload: layers"] = str(len(workload.layers))
    for n, run in enumerate(workload.layer_runs):
        layer = run.layer
        texts[f"workload: layer_runs[{n}]"] = (
            f"{run.count} of {layer.sharded_parameters} split, {layer.replicated_parameters} whole,"
            f" {layer.expert_parameters} expert parameters, {layer.vocabulary_rows} x"
            f" {layer.vocabulary_columns} of the vocabulary{', tied' * layer.tied_copy}"
        )
    groups = cluster.groups
    texts["cluster: groups"] = ", ".join(
        f"{group.nodes} {group.name} of {group.gpus_per_node} {group.gpu.name}" for group in groups
    )
    links = {
        f"zone_link of {' and '.join(map(str, pair))}": cluster.link_between(*pair)
        for pair in combinations(cluster.zones, 2)
    }
    for j, group in enumerate(groups):
        texts[f"cluster: groups[{j}].zone"] = str(group.zone)
        links |= {
            f"groups[{j}].{name}": getattr(group, name) for name in ("intra_node", "inter_node")
        }
    for name, link in links.items():
        texts[f"cluster: {name}"] = f"{link.bandwidth_bytes_per_s:g} bytes/s, {link.latency_s:g} s"
    return texts
