"""Which stages may share a node, by hand."""

from formulations.node_sharing import NodeSplit, filled, is_power_of_two, may_start
from tests.recorded import as_recorded


def test_where_stages_start() -> None:
    """Two GPUs begin at an even one if aligned, anywhere otherwise."""
    assert [may_start(NodeSplit.ALIGNED, 2, offset) for offset in range(3)] == [True, False, True]
    assert all(may_start(NodeSplit.ANY, 2, offset) for offset in range(3))
    assert [n for n in range(1, 9) if is_power_of_two(n)] == [1, 2, 4, 8]


def test_gpus_that_stages_can_fill() -> None:
    """As many as sums of degrees can be: 2 + 2 + 3 of 7, 4 + 2 where they are aligned."""
    assert filled(7, (2, 3), NodeSplit.ANY) == 7
    assert filled(7, (4, 2), NodeSplit.ALIGNED) == 6
    degrees = ((2,), (2, 3), (4, 2), (2, 1), (4,))
    figures = {
        str(each): [[filled(n, each, s) for n in range(9)] for s in NodeSplit] for each in degrees
    }
    as_recorded("node_sharing", figures)
