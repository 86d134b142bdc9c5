"""Promises of formulations.instance.node_group: equal machines and their links, alone or joined."""

from tests.instance.resolved import MINIMAL, broken, parsed, shipped
from tests.recorded import Cases, digest, recorded

test_lines = broken("spot_", "group_", "groups_", "range", "missing_network", "joined_")


@recorded("node_group")
def test_groups_are_the_recorded_ones() -> Cases:
    for name, instance in shipped().items():
        # alone, and two of them joined
        alone = instance.cluster.groups
        groups = [*alone, *(group.but(nodes=2).joined(2) for group in alone)]
        rings = [[g.ring_link(2), g.copies_link(2, 2), g.tensor_link(16)] for g in groups]
        held = [g.may_hold(tp, width) for g in groups for tp in (2, 3) for width in (3, 4, 8)]
        yield name, digest([groups, rings, held])


def test_a_single_node_needs_no_network() -> None:
    (alone,) = parsed(MINIMAL.replace("2, inter_node: Ethernet 40G", "1")).cluster.groups
    assert alone.inter_node == alone.intra_node == alone.gpu.link
