"""A plan as launchers see it: ranks, hosts, pieces, names."""

import pytest

from solver.export.job import Piece, host_names, name_clash, read_settings, word
from tests.export.stored import JOBS
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


def test_ranks_of_a_sequence_are_neighbours() -> None:
    """Tensor fastest, then the GPUs of a sequence, then replicas."""
    assert [rank.data for rank in JOBS["ring"].ranks] == [0, 1, 2, 3] * 2
    tensor = [(rank.tensor, rank.data) for rank in WHOLE_EXPERTS.ranks[:4]]
    assert tensor == [(0, 0), (1, 0), (0, 1), (1, 1)]


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


@pytest.mark.parametrize(
    ("name", "one"),
    [("a100", "a100"), ("gpu a", "gpu-a"), ("a;b $HOME", "a-b-HOME"), ("日本", "plan")],
)
def test_names_are_words(name: str, one: str) -> None:
    """Nothing that a shell reads anything into."""
    assert word(name) == one


def test_hosts_have_names_of_their_own() -> None:
    """Numbered within their group; groups whose names become one word clash."""
    cluster = instance_of().cluster
    assert host_names(cluster) == ("big-0", "small-0", "small-1")
    assert name_clash(cluster) is None
    groups = (cluster.groups[0].but(name="a b"), cluster.groups[1].but(name="a-b"))
    assert "the node groups a b and a-b" in (name_clash(cluster.but(groups=groups)) or "")


def test_modules_are_read_and_not_run() -> None:
    """Literals by name, without what is computed."""
    text = "A = [1, 2]\ndef apply(cfg):\n    cfg.b.c = 'x'\n    config.d = f(1)\n"
    assert read_settings(text) == {"A": [1, 2], "b.c": "x"}
