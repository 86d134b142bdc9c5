"""The published rule, for comparison (Ge et al., HotSPa, SOSP 2024, section 5).

Slice by slice and GPU by GPU: an owner on the same node that has sent least inside nodes so far;
where there is none, the owner that has sent least between nodes. Every GPU is sent its own copy.
"""

from formulations.switching.switch import Sending, Switch


def published_plan(switch: Switch) -> list[Sending]:
    """Sendings of the rule, layer by layer."""
    if not any(one.is_free for one in switch.demands):
        return [one.direct() for one in switch.demands]
    inside, between = ([0] * switch.network.num_gpus for _ in range(2))
    node_of, found = switch.network.node_of, list[Sending]()
    near = {(one.number, one.node): one.near for one in switch.demands}
    for _, number, begin, size in sorted(_slices(switch)):
        own = switch.classes[number]
        for gpu in own.needers:
            local = near[number, node_of[gpu]]
            sent = inside if local else between
            source = min(local or own.owners, key=lambda owner: sent[owner])
            sent[source] += size
            found.append(Sending(number, begin, begin + size, source, None, (gpu,)))
    return found


def _slices(switch: Switch) -> list[tuple[int, int, int, int]]:
    """Layer, class, first byte in the class and size of every slice."""
    found = []
    for number, own in enumerate(switch.classes):
        begin = 0
        for one in own.slices:
            for layer in range(*one.layers):
                found.append((layer, number, begin, one.size_bytes))
                begin += one.size_bytes
    return found
