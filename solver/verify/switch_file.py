"""All checks of one switch file: places, slices, who has what before and after, times, bound.

Nothing of the planner is used: the parts that every GPU holds are worked out rank by rank, each
layer by itself, and what arrives is laid beside what was held until the parts of the plan to which
it leads are full.
"""

from collections import defaultdict
from itertools import pairwise
from math import ceil

from formulations.units import seconds
from solver.result import relative_gap
from solver.switch_document import ClassDocument, SendingDocument, SwitchDocument
from solver.verify.cascade import Effort
from solver.verify.findings import Findings, Verification
from solver.verify.sealed import verification
from solver.verify.switch_links import Need, Network, hops_of
from solver.verify.switch_places import check_plan
from solver.verify.switch_replay import Replay
from solver.verify.switch_rule import rule_hops


def verify_switch(document: SwitchDocument, _: Effort | None = None) -> Verification:
    """Checks that everything arrives once from where it is, and counts times and bound again.

    Uses no code of the planner. Never raises for a document that could be read.
    """
    return verification(document, _check_content)


def _check_content(document: SwitchDocument, findings: Findings) -> None:
    for name, plan in (("before", document.before), ("after", document.after)):
        check_plan(document.workload, document.cluster, plan, name, findings)
    network = Network(document.cluster)
    for n, own in enumerate(document.classes):
        _check_sendings(own, network, f"classes[{n}]", findings)
    if findings.num_problems:
        return
    replay = Replay(document, findings)
    replay.check()
    if not findings.num_problems:
        findings.note(f"every part arrives once: {len(document.classes)} classes of slices")
        _check_figures(document, network, replay.needs(network), findings)


def _check_figures(
    document: SwitchDocument, network: Network, needs: list[Need], findings: Findings
) -> None:
    """Volumes, time and bound."""
    sendings = [one for own in document.classes for one in own.sendings]
    _check_devices(document, network, sendings, findings)
    start_ns = network.start_ns(needs)
    hops = (hop for one in sendings for hop in hops_of(one))
    time_ns = ceil(network.busiest_ns(hops)) + start_ns
    findings.close("time_s", document.time_s, seconds(time_ns))
    least_ns = ceil(network.least_ns(needs, document.prices)) if needs else 0
    findings.close("lower_bound_s", document.lower_bound_s, seconds(least_ns + start_ns))
    findings.close("gap", document.gap, relative_gap(time_ns, least_ns + start_ns) or 0.0)
    slices = [[(one.layers, one.size_bytes) for one in own.slices] for own in document.classes]
    rule_ns = ceil(network.busiest_ns(rule_hops(slices, needs, network))) + start_ns
    findings.close("published_s", document.published_s, seconds(rule_ns))
    findings.note("time of the busiest port or link, what no plan goes below, the published rule")


def _check_devices(
    document: SwitchDocument,
    network: Network,
    sendings: list[SendingDocument],
    findings: Findings,
) -> None:
    """Bytes of every GPU: all, and those that are not between nodes."""
    volumes: dict[str, list[int]] = defaultdict(lambda: [0] * 4)
    for one in sendings:
        for source, gpu, size in hops_of(one):
            between = network.node_of[source] != network.node_of[gpu]
            volumes[source][between] += size
            volumes[gpu][2 + between] += size
    found = {
        one.gpu: [
            one.sent_inside_bytes,
            one.sent_between_bytes,
            one.received_inside_bytes,
            one.received_between_bytes,
        ]
        for one in document.devices
    }
    findings.equal("devices: GPUs", len(document.devices), len(volumes))
    for gpu, expected in volumes.items():
        findings.equal(f"devices: {gpu}", found.get(gpu), expected)


def class_bytes(own: ClassDocument) -> int:
    """Bytes of one copy of all slices."""
    return sum(one.size_bytes * (one.layers[1] - one.layers[0]) for one in own.slices)


def _check_sendings(own: ClassDocument, network: Network, field: str, findings: Findings) -> None:
    """Every GPU that gets something of a class gets each byte of it once."""
    received: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for i, slice_ in enumerate(own.slices):
        layers = *slice_.layers, slice_.layers[1]
        shares = layers, slice_.experts, slice_.cut, slice_.split
        some = all(begin < end <= most for begin, end, most in shares)
        findings.require(some, f"{field}.slices[{i}]", shares, "some layers, and a part of each")
    for n, one in enumerate(own.sendings):
        where = f"{field}.sendings[{n}]"
        gpus = {*one.receivers, one.source, one.via or one.source}
        unknown = sorted(gpus - network.node_of.keys())
        if not findings.require(not unknown, where, unknown, "GPUs of the cluster, NODE:NUMBER"):
            continue
        nodes = {network.node_of[gpu] for gpu in one.receivers}
        distinct = len(set(one.receivers)) == len(one.receivers)
        distinct &= one.via is None or len(nodes) == 1
        allowed = "GPUs once each, of one node where one forwards"
        findings.require(distinct, f"{where}.receivers", one.receivers, allowed)
        apart = one.source not in one.receivers
        findings.require(apart, f"{where}.source", one.source, "a GPU that is no receiver")
        known = one.via is None or one.via in one.receivers
        findings.require(known, f"{where}.via", one.via, "one of the receivers")
        for gpu in one.receivers:
            received[gpu].append((one.begin, one.end))
    for gpu, ranges in received.items():
        edges = [(0, 0), *sorted(ranges), (class_bytes(own),) * 2]
        whole = all(one[1] == two[0] for one, two in pairwise(edges))
        whole &= all(begin < end for begin, end in ranges)
        findings.require(whole, f"{field}: bytes to {gpu}", ranges, "every byte of the class once")
