"""What moves between fleets, and how long it takes."""

import random

from formulations.fleet import Pipeline, Template, holdings, stage_on
from formulations.instance import Cluster, Link, NodeGroup
from formulations.instance.machines import ZoneLink, ZonePair
from formulations.transition import Copy, Links, layer_state_bytes, missing
from tests.random_configs import zoned
from tests.recorded import as_recorded
from tests.small_instances import gpu, nodes_of, random_instance


def template(*stages: tuple[int, int, int]) -> Template:
    """Stages (first layer, end, node) on one GPU each, nodes of group 0."""
    made, used = [], dict[int, int]()
    for start, end, node in stages:
        first = used.get(node, 0)
        made.append(stage_on(layers=(start, end), node=node, first_gpu=first, gpus=1))
        used[node] = first + 1
    return Template(node_groups=(0,) * len(used), stages=tuple(made))


TWO = template((0, 2, 0), (2, 3, 0), (3, 5, 1))  #: layers 0-2 and 3-4
THREE = template((0, 2, 0), (2, 3, 1), (3, 5, 2))  #: layers 0-1, 2, 3-4


def group(gigabytes_per_s: float, zone: str | None = None) -> NodeGroup:
    """Two nodes of four GPUs with a link of so many GB/s and 10 us."""
    fast, slow = (1e11, 1e-6), (gigabytes_per_s * 1e9, 1e-5)
    inside, outside = (Link(bandwidth_bytes_per_s=b, latency_s=s) for b, s in (fast, slow))
    node = nodes_of(gpu("g", 100, 10), gpus_per_node=4, intra_node=inside, inter_node=outside)
    return node.but(nodes=2, zone=zone)


def test_missing_are_the_layers_not_held_yet() -> None:
    """From THREE to TWO: node 0 gains layer 2, node 1 goes from layer 2 to 3 and 4; 9 is new."""
    held = holdings([Pipeline(THREE, (0, 1, 2), 1)])
    assert list(missing(held, [Pipeline(TWO, (0, 1), 1)])) == [(0, 2), (1, 3), (1, 4)]
    assert len(list(missing(held, [Pipeline(TWO, (9, 2), 1)]))) == 3


def test_times_are_the_recorded_ones() -> None:
    """States of layers, loads of links without zones and with, of copies from a checkpoint too."""
    figures: dict[str, object] = {}
    for seed in range(8):
        instance = zoned(random_instance(seed), seed) if seed % 2 else random_instance(seed)
        late = ({"latency_s": 1e-5 * (j + 1)} for j in range(9))
        pairs = zip(instance.cluster.groups, late, strict=False)
        groups = tuple(group.but(inter_node=latency) for group, latency in pairs)
        instance = instance.but(cluster={"groups": groups})
        nodes, links = len(instance.cluster.node_names), Links(instance.cluster)
        sizes = layer_state_bytes(instance.workload)
        rng = random.Random(seed)
        ends = [(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(6)]
        copies = [Copy(rng.randrange(len(sizes)), a, b) for a, b in ends if a != b]
        copies.append(Copy(0, None, nodes - 1))
        loads = sorted(map(str, links.loads_ns(copies, sizes).items()))
        figures[f"{seed}"] = [list(sizes), loads, links.transfer_ns(copies, sizes)]
    assert links.transfer_ns([], sizes) == 0
    as_recorded("transition", figures)


def test_flows_between_zones_share_their_link() -> None:
    """Two copies of 1 kB from x to y at 0.1 GB/s take 20 us, back one takes 10; x to z has its own.

    1 kB from x to z takes 20 us at 0.05 GB/s; the longest start between zones is 7 us.
    """
    groups = (group(1, "x"), group(1, "y"), group(1, "z"))
    slow = ZonePair(zones=("z", "x"), link=ZoneLink(bandwidth_bytes_per_s=5e7, latency_s=7e-6))
    between = ZoneLink(bandwidth_bytes_per_s=1e8, latency_s=0)
    links = Links(Cluster(groups=groups, zone_link=between, zone_links=(slow,)))
    copies = [Copy(0, 0, 2), Copy(0, 1, 3), Copy(0, 2, 0), Copy(0, 0, 4)]
    loads = links.loads_ns(copies, [1000])
    zones = {pair: loads["zone", *pair] for pair in ((0, 1), (1, 0), (0, 2))}
    assert zones == {(0, 1): 20_000, (1, 0): 10_000, (0, 2): 20_000}
    assert links.transfer_ns(copies, [1000]) == 20_000 + 10_000 + 7_000
