"""A plan as launchers see it: ranks, hosts, pieces, names."""

from solver.export.job import host_names, name_clash
from tests.export.stored import check_exports
from tests.export_cases import instance_of

test_ranks_and_pieces_are_as_stored = check_exports("megatron")
test_modules_and_sums_are_as_stored = check_exports("torchtitan")


def test_hosts_have_names_of_their_own() -> None:
    """Numbered within their group; groups whose names become one word clash."""
    cluster = instance_of().cluster
    assert host_names(cluster) == (("big-0",), ("small-0",), ("small-1",))
    assert name_clash(cluster) is None
    groups = (cluster.groups[0].but(name="a b"), cluster.groups[1].but(name="a-b"))
    assert "the node groups a b and a-b" in (name_clash(cluster.but(groups=groups)) or "")
