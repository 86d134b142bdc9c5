"""Promises of formulations.instance.cluster: groups, networks, zones."""

import pytest
from pydantic import ValidationError

from formulations.errors import InstanceError
from formulations.instance import Cluster
from formulations.instance.catalogue import gpu_catalogue, link_catalogue
from formulations.instance.cluster import NodeGroupFile, zone_faults
from formulations.instance.machines import ZoneLink
from formulations.units import GIB
from tests.instance_texts import MINIMAL, parsed

GROUP = parsed(MINIMAL).cluster.groups[0]
FAST, SLOW = (ZoneLink(bandwidth_bytes_per_s=rate, latency_s=0) for rate in (2e9, 1e9))


def test_quantities_become_base_units() -> None:
    """Written units become B, B/s, s and USD/h; the catalogue's memory stays as it is."""
    fields = """nodes: 2, memory: 22.2 GiB, price: 8.5 USD/h,
       intra_node: {bandwidth: 128 Gbit/s, latency: 5 us}, inter_node: {bandwidth: 2 GB/s}"""
    before = gpu_catalogue()["A100-40"].memory_bytes
    instance = parsed(MINIMAL.replace("nodes: 2, inter_node: Ethernet 40G", fields))
    group = instance.cluster.groups[0]
    assert (group.gpu.memory_bytes, group.price_usd_per_hour) == (int(22.2 * 2**30), 8.5)
    assert gpu_catalogue()["A100-40"].memory_bytes == before
    # 128 Gbit/s = 16 GB/s
    assert group.intra_node.bandwidth_bytes_per_s == 16e9
    assert group.intra_node.latency_s == pytest.approx(5e-6)
    assert group.inter_node.bandwidth_bytes_per_s == 2e9


def test_inline_gpu_of_a_single_node() -> None:
    """An unlisted GPU is described in place, with a link of the catalogue; no network is needed."""
    figures = (
        "{name: K80, peak: {bf16: 4 TFLOP/s}, memory: 11 GiB, memory_bandwidth: 240 GB/s,"
        " link: PCIe 3 x16, efficiency_half_flops: 1e8}"
    )
    text = MINIMAL.replace("nodes: 2, inter_node: Ethernet 40G", "nodes: 1")
    gpu = parsed(text.replace("A100-40", figures)).cluster.groups[0].gpu
    assert (gpu.name, gpu.peak_flops, gpu.efficiency_half_flops) == ("K80", {"bf16": 4e12}, 1e8)
    assert (gpu.memory_bytes, gpu.memory_bandwidth_bytes_per_s) == (11 * GIB, 240e9)
    assert gpu.link == link_catalogue()["PCIe 3 x16"]


def test_numbers_of_nodes() -> None:
    """A million GPUs are the most, of a range its upper end counts."""
    assert parsed(MINIMAL.replace("nodes: 2", "nodes: 250000")).cluster.num_gpus == 10**6
    with pytest.raises(InstanceError, match="more than 1000000 GPUs up to this group"):
        parsed(MINIMAL.replace("nodes: 2", "nodes: 250001"))
    fields = {"name": "a", "gpu": "A10", "gpus_per_node": 4, "nodes": {"min": 1, "max": 3}}
    group = NodeGroupFile.model_validate(fields)
    assert group.most_nodes == 3


def test_nodes_are_numbered_group_by_group() -> None:
    """Two groups of 2 and 3 nodes of 4 GPUs; each zone once, in order of first mention."""
    groups = (GROUP.but(zone="east"), GROUP.but(name="b", nodes=3, zone="west"))
    cluster = Cluster(groups=groups, zone_link=SLOW)
    assert cluster.num_gpus == 20
    assert cluster.node_names == ("a-0", "a-1", "b-0", "b-1", "b-2")
    assert (cluster.node_groups, cluster.first_node) == ((0, 0, 1, 1, 1), (0, 2))
    assert (cluster.zones, cluster.zone_of_group) == (("east", "west"), (0, 1))
    assert cluster.links_among((0, 1)) == (SLOW,)
    assert cluster.with_groups(groups[:1]).zone_link is None


def test_pairs_of_zones_have_their_own_link_or_the_common_one() -> None:
    """Of a pair that is named its own, in either order."""
    groups = tuple(GROUP.but(name=zone, zone=zone) for zone in ("a", "b", "c"))
    pair = {"zones": ("b", "a"), "link": FAST}
    cluster = Cluster(groups=groups, zone_link=SLOW, zone_links=(pair,))  # type: ignore[arg-type]
    assert (cluster.link_between("a", "b"), cluster.link_between("c", "a")) == (FAST, SLOW)
    assert len(cluster.with_groups(groups[:2]).zone_links) == 1
    assert cluster.with_groups(groups[1:]).zone_links == ()


def test_efficiency_of_the_largest_number_that_is_not_above() -> None:
    """Entries are sorted, and below the first one the network is fully efficient."""
    cluster = parsed(MINIMAL + "  network_efficiency: {8: 0.8, 4: 0.9}\n").cluster
    assert cluster.network_efficiency == ((1, 1.0), (4, 0.9), (8, 0.8))
    shares = [cluster.efficiency(nodes) for nodes in (1, 3, 4, 7, 8, 99)]
    assert shares == [1, 1, 0.9, 0.9, 0.8, 0.8]
    with pytest.raises(ValidationError, match="without an entry for 1 node"):
        Cluster(groups=(GROUP,), network_efficiency=((4, 0.9),))


@pytest.mark.parametrize(
    ("zones", "default", "pairs", "paths"),
    [
        ((None, None), False, (), []),
        (("a", None), True, (), [("groups", 1, "zone")]),
        (("a", "a"), True, (), [("zone_link",)]),
        (("a", "a"), False, (("a", "b"),), [("zone_links",)]),
        (("a", "b"), False, (), [("zone_link",)]),
        (("a", "b"), True, (), []),
        (("a", "b"), False, (("b", "a"),), []),
        (("a", "b", "c"), False, (("a", "b"), ("b", "c")), [("zone_link",)]),
        (("a", "b"), True, (("a", "a"),), [("zone_links", 0, "zones")]),
        (("a", "b"), True, (("a", "b"), ("a", "x")), [("zone_links", 1, "zones", 1)]),
        (("a", "b"), True, (("a", "b"), ("b", "a")), [("zone_links", 1, "zones")]),
    ],
)
def test_faults_of_zones(
    zones: tuple[str | None, ...],
    default: bool,
    pairs: tuple[tuple[str, str], ...],
    paths: list[tuple[object, ...]],
) -> None:
    """All groups name a zone or none does, and each pair of zones has one link."""
    assert [fault.path for fault in zone_faults(zones, default, pairs)] == paths
