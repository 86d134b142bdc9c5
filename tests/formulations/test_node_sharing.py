"""Which stages may share a node, by hand."""

import pytest

from formulations.node_sharing import NodeSplit, filled, is_power_of_two, may_start


def test_where_stages_start() -> None:
    """Two GPUs begin at an even one if aligned, anywhere otherwise."""
    assert [may_start(NodeSplit.ALIGNED, 2, offset) for offset in range(3)] == [True, False, True]
    assert all(may_start(NodeSplit.ANY, 2, offset) for offset in range(3))
    assert [n for n in range(1, 9) if is_power_of_two(n)] == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("gpus", "degrees", "split", "expected"),
    [
        (5, (2,), NodeSplit.ANY, 4),
        (7, (2, 3), NodeSplit.ANY, 7),  # 2 + 2 + 3
        (7, (4, 2), NodeSplit.ALIGNED, 6),
        (3, (2, 1), NodeSplit.ALIGNED, 3),
        (3, (4,), NodeSplit.ANY, 0),
    ],
)
def test_gpus_that_stages_can_fill(
    gpus: int, degrees: tuple[int, ...], split: NodeSplit, expected: int
) -> None:
    """As many as sums of degrees can be."""
    assert filled(gpus, degrees, split) == expected
