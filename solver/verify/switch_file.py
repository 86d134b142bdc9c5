"""All checks of one switch file: places, slices, who has what before and after, times, bound.

Nothing of the planner is used: the parts that every GPU holds are worked out rank by rank, and what
is sent is laid beside what the plan to which it leads needs besides.
"""

from collections import defaultdict
from itertools import pairwise
from math import ceil

from formulations.units import seconds
from solver.result import relative_gap
from solver.switch_document import ClassDocument, SwitchDocument
from solver.verify.cascade import Effort
from solver.verify.findings import Findings, Verification
from solver.verify.held_parts import Kind
from solver.verify.sealed import verification
from solver.verify.switch_bounds import Moved, SwitchBounds
from solver.verify.switch_links import Loads, Network, hops_of
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
    bounds = SwitchBounds(document.cluster, document.workload)
    num_layers = len(document.workload.layers)
    for n, own in enumerate(document.classes):
        _check_slices(own, num_layers, f"classes[{n}]", findings)
        _check_sendings(own, bounds.network, f"classes[{n}]", findings)
    if findings.num_problems:
        return
    before, after = document.before, document.after
    kinds: tuple[Kind, ...] = (
        ("parameters", "gradients") if document.moves == "both" else (document.moves,)
    )
    Replay(document, bounds.network, findings).check(
        bounds.holdings(before), bounds.holdings(after), kinds
    )
    if not findings.num_problems:
        findings.note(f"every part arrives once: {len(document.classes)} classes of slices")
        _check_figures(document, bounds.network, bounds.moved(before, after, kinds), findings)


def _check_figures(
    document: SwitchDocument, network: Network, moved: Moved, findings: Findings
) -> None:
    """Volumes, time and bound."""
    loads = network.loads(
        hop for own in document.classes for way in own.sendings for hop in hops_of(way)
    )
    _check_devices(document, loads, findings)
    needs, start_ns = moved.needs, network.start_ns(moved.needs)
    time_ns = ceil(network.busiest_ns(loads)) + start_ns
    findings.close("time_s", document.time_s, seconds(time_ns))
    least_ns = ceil(network.least_ns(needs, document.prices)) if needs else 0
    findings.close("lower_bound_s", document.lower_bound_s, seconds(least_ns + start_ns))
    findings.close("gap", document.gap, relative_gap(time_ns, least_ns + start_ns) or 0.0)
    rule = network.loads(rule_hops(moved.slices, needs, network))
    rule_ns = ceil(network.busiest_ns(rule)) + start_ns
    findings.close("published_s", document.published_s, seconds(rule_ns))
    findings.note("time of the busiest port or link, what no plan goes below, the published rule")


def _check_devices(document: SwitchDocument, loads: Loads, findings: Findings) -> None:
    """Bytes of every GPU: all, and those that are not between nodes."""
    found = {
        one.gpu: [
            one.sent_inside_bytes,
            one.sent_between_bytes,
            one.received_inside_bytes,
            one.received_between_bytes,
        ]
        for one in document.devices
    }
    findings.equal("devices: GPUs", len(document.devices), len(loads.ports))
    for gpu, expected in loads.ports.items():
        findings.equal(f"devices: {gpu}", found.get(gpu), expected)


def _check_slices(own: ClassDocument, num_layers: int, field: str, findings: Findings) -> None:
    for i, one in enumerate(own.slices):
        shares = (*one.layers, num_layers), one.experts, one.cut, one.split
        some = all(begin < end <= most for begin, end, most in shares)
        findings.require(some, f"{field}.slices[{i}]", shares, "some layers, and a part of each")


def _check_sendings(own: ClassDocument, network: Network, field: str, findings: Findings) -> None:
    """Every GPU that gets something of a class gets each byte of it once."""
    received: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for n, one in enumerate(own.sendings):
        where, gpus = f"{field}.sendings[{n}]", set(one.receivers)
        named = *one.receivers, one.source, one.via or one.source
        unknown = [gpu for gpu in named if gpu not in network.node_of]
        if not findings.require(not unknown, where, unknown, "GPUs of the cluster, NODE:NUMBER"):
            continue
        distinct = len(gpus) == len(one.receivers)
        distinct &= one.via is None or len({network.node_of[gpu] for gpu in gpus}) == 1
        allowed = "GPUs once each, of one node where one forwards"
        findings.require(distinct, f"{where}.receivers", one.receivers, allowed)
        apart = one.source not in gpus
        findings.require(apart, f"{where}.source", one.source, "a GPU that is no receiver")
        known = one.via is None or one.via in gpus
        findings.require(known, f"{where}.via", one.via, "one of the receivers")
        for gpu in one.receivers:
            received[gpu].append((one.begin, one.end))
    size = sum(one.size_bytes * (one.layers[1] - one.layers[0]) for one in own.slices)
    alike = {tuple(ranges): gpu for gpu, ranges in received.items()}
    for ranges, gpu in alike.items():
        edges = [(0, 0), *sorted(ranges), (size, size)]
        whole = all(one[1] == two[0] for one, two in pairwise(edges))
        whole &= all(begin < end for begin, end in ranges)
        findings.require(whole, f"{field}: bytes to {gpu}", ranges, "every byte of the class once")
