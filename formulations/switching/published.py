"""The published rule, for comparison (Ge et al., HotSPa, SOSP 2024, section 5).

Slice by slice and GPU by GPU: an owner on the same node that has sent least inside nodes so far;
where there is none, the owner that has sent least between nodes. Every GPU is sent its own copy.
Slices that have one owner to come from are counted before all others.
"""

from collections.abc import Iterable

from formulations.switching.switch import Demand, Sending, Switch


def published_plan(switch: Switch) -> list[Sending]:
    """Sendings of the rule, layer by layer."""
    inside, between = ([0] * switch.network.num_gpus for _ in range(2))
    found, free = list[Sending](), dict[int, list[Demand]]()
    for one in switch.demands:
        if len(one.senders) > 1:
            free.setdefault(one.number, []).append(one)
            continue
        found.append(one.direct())
        (inside if one.near else between)[one.senders[0]] += one.size_bytes * len(one.receivers)
    for _, number, begin, size in sorted(_slices(switch, free)):
        for one in free[number]:
            sent = inside if one.near else between
            for gpu in one.receivers:
                source = min(one.senders, key=sent.__getitem__)
                sent[source] += size
                found.append(Sending(number, begin, begin + size, source, None, (gpu,)))
    return found


def _slices(switch: Switch, numbers: Iterable[int]) -> list[tuple[int, int, int, int]]:
    """Layer, class, first byte in the class and size of every slice of some classes."""
    found = []
    for number in numbers:
        begin = 0
        for one in switch.classes[number].slices:
            for layer in range(*one.layers):
                found.append((layer, number, begin, one.size_bytes))
                begin += one.size_bytes
    return found
