"""What the published rule sends, worked out again (HotSPa, SOSP 2024, section 5)."""

from collections.abc import Iterator, Sequence

from tests.oracles.switch_links import Hop, Need, Network

LayerSlices = tuple[tuple[int, int], int]  #: one of each of layers [start, end), bytes of one


def rule_hops(
    classes: Sequence[Sequence[LayerSlices]], needs: Sequence[Need], network: Network
) -> Iterator[Hop]:
    """Every GPU is sent its own copy by the owner that has sent least, the first of those alike.

    That is one on its node, by what they have sent inside nodes, or where there is none any, by
    what they have sent between nodes. What one GPU alone may send is counted before all else, then
    slice by slice, layer by layer, GPU by GPU. Owners and receivers are in the order of the
    cluster.
    """
    inside, between = (dict.fromkeys(network.node_of, 0) for _ in range(2))
    free = []
    for place, need in enumerate(needs):
        near = [gpu for gpu in need.owners if network.node_of[gpu] == need.node]
        senders, sent = near or need.owners, inside if near else between
        if len(senders) == 1:
            sent[senders[0]] += need.size_bytes * len(need.receivers)
            yield senders[0], need.receivers, need.size_bytes
            continue
        for i, (layers, size) in enumerate(classes[need.number]):
            keys = ((layer, need.number, i, place) for layer in range(*layers))
            free += [(key, size, need.receivers, senders, sent) for key in keys]
    for _, size, gpus, senders, sent in sorted(free, key=lambda one: one[0]):
        for gpu in gpus:
            source = min(senders, key=sent.__getitem__)
            sent[source] += size
            yield source, (gpu,), size
