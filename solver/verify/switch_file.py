"""All checks of one switch file: places, slices, who has what before and after, times, bound.

Nothing of the planner is used: the parts that every GPU holds are worked out rank by rank, and what
is sent is laid beside what the plan to which it leads needs besides.
"""

from itertools import groupby
from math import ceil
from operator import itemgetter

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
    ranges = []
    for n, one in enumerate(own.sendings):
        where = f"{field}.sendings[{n}]"
        via = one.source if one.via is None else one.via
        unknown = [gpu for gpu in (*one.receivers, one.source, via) if gpu not in network.bits]
        if unknown:
            findings.refuse(where, unknown[:3], "GPUs of the cluster, NODE:NUMBER")
            continue
        receivers = network.mask(one.receivers)
        distinct = receivers.bit_count() == len(one.receivers)
        distinct &= one.via is None or len({network.node_of[gpu] for gpu in one.receivers}) == 1
        allowed = "GPUs once each, of one node where one forwards"
        findings.require(distinct, f"{where}.receivers", one.receivers, allowed)
        apart = not receivers & network.bits[one.source]
        findings.require(apart, f"{where}.source", one.source, "a GPU that is no receiver")
        known = one.via is None or receivers & network.bits[one.via] != 0
        findings.require(known, f"{where}.via", one.via, "one of the receivers")
        ranges.append((one.begin, one.end, receivers))
    size = sum(one.size_bytes * (one.layers[1] - one.layers[0]) for one in own.slices)
    found = [(begin, end) for begin, end, _ in ranges[:3]]
    allowed = "every byte of the class once, to each"
    findings.require(
        bool(ranges) and _is_whole(ranges, size), f"{field}: bytes sent", found, allowed
    )


def _is_whole(ranges: list[tuple[int, int, int]], size: int) -> bool:
    """Whether each GPU of any range gets all bytes once; ranges: from, to, a bit for each GPU."""
    every, now = 0, 0
    for begin, end, gpus in ranges:
        every |= gpus
        if begin >= end:
            return False
    events = [(begin, True, gpus) for begin, _, gpus in ranges]
    events += [(end, False, gpus) for _, end, gpus in ranges]
    events.sort()  # at a place, what ends before what begins
    for place, own in groupby(events, key=itemgetter(0)):
        for _, begins, gpus in own:
            if begins and now & gpus:
                return False
            now ^= gpus
        if now != (0 if place == size else every):
            return False
    return events[0][0] == 0
