"""Promises of formulations.instance.cluster: groups, networks, zones."""

import pytest
from pydantic import ValidationError

from formulations.errors import InstanceError
from formulations.instance import Cluster, ZoneLink
from formulations.instance.load import parse_family
from tests.conftest import text_of
from tests.instance.resolved import DATA, MINIMAL, broken, parsed, shipped
from tests.random_configs import zoned
from tests.recorded import Cases, digest, recorded
from tests.small_instances import random_instance

test_lines = broken("zone", "too_many", "efficien", "duplicate_group", "hid_other")

GROUP = parsed(MINIMAL).cluster.groups[0]
SLOW = ZoneLink(bandwidth_bytes_per_s=1e9, latency_s=0)


#: 128 Gbit/s are 16 GB/s.
UNITS = """nodes: 2, memory: 22.2 GiB, price: 8.5 USD/h,
       intra_node: {bandwidth: 128 Gbit/s, latency: 5 us}, inter_node: {bandwidth: 2 GB/s}"""


@recorded("cluster")
def test_clusters_are_the_recorded_ones() -> Cases:
    written = parsed(MINIMAL.replace("nodes: 2, inter_node: Ethernet 40G", UNITS)).cluster
    assert written.groups[0].intra_node.bandwidth_bytes_per_s == 16e9
    clusters = {name: instance.cluster for name, instance in shipped().items()}
    clusters |= {"units": written}
    clusters |= {f"{seed}": zoned(random_instance(seed), seed).cluster for seed in range(12)}
    for name, cluster in clusters.items():
        numbers = [cluster.num_gpus, digest(cluster.node_names), *cluster.first_node]
        shares = [cluster.efficiency(nodes) for nodes in range(1, 10)]
        links = digest(cluster.links_among(range(len(cluster.groups))))
        zones = [cluster.has_zones, digest(cluster.zones), list(cluster.zone_of_group)]
        smaller = [digest(cluster.with_groups(cluster.groups[k:])) for k in (0, 1)]
        resolved = [digest(cluster), list(cluster.node_groups)[-3:]]
        slower = digest(cluster.with_network_factor(2.0))
        yield name, [numbers, shares, links, zones, smaller, resolved, slower]


def test_numbers_of_nodes() -> None:
    """A million GPUs are the most; the network's efficiency has an entry for one node."""
    assert parsed(MINIMAL.replace("nodes: 2", "nodes: 250000")).cluster.num_gpus == 10**6
    with pytest.raises(InstanceError, match="more than 1000000 GPUs up to this group"):
        parsed(MINIMAL.replace("nodes: 2", "nodes: 250001"))
    family = parse_family(MINIMAL.replace("nodes: 2", "nodes: {min: 2, max: 2}"), "x", DATA)
    assert (family.fewest, family.most) == ((2,), (2,))
    for fields in ({"network_efficiency": ((4, 0.9),)}, {"zone_link": SLOW}):
        with pytest.raises(ValidationError, match=r"without an entry for 1 node|a link between"):
            Cluster(groups=(GROUP,), **fields)


def test_nodes_are_joined_as_an_instance_says() -> None:
    """Groups and the efficiency of the network, which is by nodes."""
    text = text_of("spaces/joined.yaml")
    apart = parsed(text).cluster
    joined = parsed(text.replace("joined_nodes: 1", "joined_nodes: 2")).cluster
    assert (apart.joined(1), apart.joined(2)) == (apart, joined)
    assert joined.network_efficiency == ((1, 1.0), (2, 0.9), (3, 0.8))
