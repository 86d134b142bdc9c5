"""What the published rule sends, worked out again (HotSPa, SOSP 2024, section 5)."""

from collections.abc import Iterable, Iterator, Sequence

from solver.verify.switch_links import Hop, Need, Network

LayerSlices = tuple[tuple[int, int], int]  #: one of each of layers [start, end), bytes of one


def rule_hops(
    classes: Sequence[Sequence[LayerSlices]], needs: Iterable[Need], network: Network
) -> Iterator[Hop]:
    """Every GPU is sent its own copy by the owner that has sent least, the first of those alike.

    That is one on its node, by what they have sent inside nodes, or where there is none any, by
    what they have sent between nodes. What one GPU alone may send is counted before all else, then
    slice by slice, layer by layer, GPU by GPU.
    """
    place = {gpu: n for n, gpu in enumerate(network.node_of)}
    inside, between = (dict.fromkeys(place, 0) for _ in range(2))
    free = []
    for need in needs:
        near = [gpu for gpu in need.owners if network.node_of[gpu] == need.node]
        senders = sorted(near or need.owners, key=place.__getitem__)
        sent = inside if near else between
        if len(senders) == 1:
            sent[senders[0]] += need.size_bytes * len(need.receivers)
            yield from ((senders[0], gpu, need.size_bytes) for gpu in need.receivers)
            continue
        gpus = sorted(need.receivers, key=place.__getitem__)
        for i, (layers, size) in enumerate(classes[need.number]):
            keys = ((layer, need.number, i, place[gpus[0]]) for layer in range(*layers))
            free += [(key, size, gpus, senders, sent) for key in keys]
    for _, size, gpus, senders, sent in sorted(free, key=lambda one: one[0]):
        for gpu in gpus:
            source = min(senders, key=sent.__getitem__)
            sent[source] += size
            yield source, gpu, size
