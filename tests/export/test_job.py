"""A plan as launchers see it: ranks, hosts, pieces, names."""

from solver.export.job import Piece, host_names, name_clash
from tests.export_cases import CHUNKS, UNEVEN, WHOLE_EXPERTS, instance_of, recomputing


def test_ranks_stand_in_node_order() -> None:
    """Stage 0 on the two GPUs of the first A10 node, 1 and 2 on the A100s, 3 on the other A10s."""
    ranks = UNEVEN.ranks
    assert [rank.host for rank in ranks] == ["small-0"] * 2 + ["big-0"] * 4 + ["small-1"] * 2
    assert [rank.gpu for rank in ranks] == [0, 1, 0, 1, 2, 3, 0, 1]
    places = [(rank.tensor, rank.data, rank.stage) for rank in ranks[:4]]
    assert places == [(0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1)]
    hosts = [(host.name, host.gpu_type, len(host.gpus), host.first_rank) for host in UNEVEN.hosts]
    assert hosts == [("small-0", "A10", 2, 0), ("big-0", "A100-80", 4, 2), ("small-1", "A10", 2, 6)]


def test_pieces_and_numbers() -> None:
    """Blocks are counted from 0 between embedding and head; 4 micro-batches of 2, twice."""
    assert UNEVEN.pieces[0] == Piece(True, range(3), False)
    assert UNEVEN.pieces[3] == Piece(False, range(8, 12), True)
    assert len(CHUNKS.pieces) == 8
    assert (UNEVEN.num_blocks, UNEVEN.world, UNEVEN.sequences, UNEVEN.tp) == (12, 8, 16, 1)
    assert not UNEVEN.sequence_parallel  # it has no tensor groups
    assert WHOLE_EXPERTS.sequence_parallel
    assert UNEVEN.recompute_way == "none"
    assert recomputing(UNEVEN, (3, 3, 2, 4)).recompute_way == "full"


def test_hosts_have_names_of_their_own() -> None:
    """Numbered within their group; groups whose names become one word clash."""
    cluster = instance_of().cluster
    assert host_names(cluster) == ("big-0", "small-0", "small-1")
    assert name_clash(cluster) is None
    groups = (cluster.groups[0].but(name="a b"), cluster.groups[1].but(name="a-b"))
    assert "the node groups a b and a-b" in (name_clash(cluster.but(groups=groups)) or "")
