"""What moves between fleets, and how long it takes."""

from fractions import Fraction

from formulations.fleet import Pipeline, holdings
from formulations.instance import Cluster, Link, NodeGroup
from formulations.instance.machines import ZoneLink, ZonePair
from formulations.template import Template, stage_on
from formulations.transition import Copy, Links, layer_state_bytes, missing
from tests.small_instances import gpu, layer, nodes_of, workload


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


def group(name: str, gigabytes_per_s: float, zone: str | None = None) -> NodeGroup:
    """Two nodes of four GPUs with a link of so many GB/s and 10 us."""
    return nodes_of(
        gpu(name, 100, 10),
        gpus_per_node=4,
        nodes=2,
        intra_node=Link(bandwidth_bytes_per_s=1e11, latency_s=1e-6),
        inter_node=Link(bandwidth_bytes_per_s=gigabytes_per_s * 1e9, latency_s=1e-5),
        zone=zone,
    )


def test_missing_are_the_layers_not_held_yet() -> None:
    """From THREE to TWO: node 0 gains layer 2, node 1 goes from layer 2 to 3 and 4; 9 is new."""
    held = holdings([Pipeline(THREE, (0, 1, 2), 1)])
    assert list(missing(held, [Pipeline(TWO, (0, 1), 1)])) == [(0, 2), (1, 3), (1, 4)]
    assert len(list(missing(held, [Pipeline(TWO, (9, 2), 1)]))) == 3


def test_state_of_a_layer() -> None:
    """Parameters and optimizer state, 2 + 12 bytes each; gradients are not kept."""
    chain = [layer("embedding", 1, 10, 4), layer("block", 1, 100, 4)]
    assert layer_state_bytes(workload(chain, 4, 8, tied=False)) == (14 * 17, 14 * 107)


def test_the_busiest_link_decides() -> None:
    """Links of 1 GB/s: node 0 sends 3 kB in 3 us, to 1 and 2; each start takes 10 us."""
    links = Links(Cluster(groups=(group("a", 1), group("b", 1))))
    copies = [Copy(0, 0, 1), Copy(1, 0, 2)]
    assert links.loads_ns(copies, [1000, 2000]) == {
        ("out", 0, 0): 3000,
        ("in", 1, 0): 1000,
        ("in", 2, 0): 2000,
    }
    assert links.transfer_ns(copies, [1000, 2000]) == 13_000
    assert links.transfer_ns([], [1000]) == 0


def test_a_slow_link_takes_longer() -> None:
    """Node 2 receives 1 kB at 0.5 GB/s; from a checkpoint no node sends anything."""
    links = Links(Cluster(groups=(group("a", 1), group("b", 0.5))))
    assert links.transfer_ns([Copy(0, 0, 2)], [1000]) == 12_000
    assert links.loads_ns([Copy(0, None, 1)], [1000]) == {("in", 1, 0): Fraction(1000)}


def test_flows_between_zones_share_their_link() -> None:
    """Two copies of 1 kB from zone x to y at 0.1 GB/s take 20 us, one back takes 10."""
    groups = (group("a", 1, "x"), group("b", 1, "y"))
    between = ZoneLink(bandwidth_bytes_per_s=1e8, latency_s=0)
    links = Links(Cluster(groups=groups, zone_link=between))
    copies = [Copy(0, 0, 2), Copy(0, 1, 3), Copy(0, 2, 0)]
    loads = links.loads_ns(copies, [1000])
    assert loads["zone", 0, 1] == 20_000
    assert loads["zone", 1, 0] == 10_000
    assert links.transfer_ns(copies, [1000]) == 30_000


def test_every_pair_of_zones_has_its_link() -> None:
    """1 kB from x to z at 0.05 GB/s takes 20 us, to y at 0.1 GB/s 10; the longest start is 7 us."""
    groups = (group("a", 1, "x"), group("b", 1, "y"), group("c", 1, "z"))
    slow = ZonePair(zones=("z", "x"), link=ZoneLink(bandwidth_bytes_per_s=5e7, latency_s=7e-6))
    between = ZoneLink(bandwidth_bytes_per_s=1e8, latency_s=0)
    links = Links(Cluster(groups=groups, zone_link=between, zone_links=(slow,)))
    loads = links.loads_ns([Copy(0, 0, 2), Copy(0, 0, 4)], [1000])
    assert loads["zone", 0, 1] == 10_000
    assert loads["zone", 0, 2] == 20_000
    assert links.latency_ns == 10_000 + 7_000
