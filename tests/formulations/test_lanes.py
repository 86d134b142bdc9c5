"""Lanes of slots, by hand."""

import numpy as np

from formulations.costs.sharding import (
    lanes_like,
    layers_alike,
    message_lanes,
    tied_lanes,
    widest_group,
)
from formulations.instance import SearchSpace
from formulations.plan import Degrees
from tests.equal_nodes import equal_nodes
from tests.small_instances import plain_shape

#: Tensor groups of 2 in three parts, of 1, of 2, and of 4 on nodes that are not used.
DEGREES = (Degrees(tp=2, parts=3), Degrees(tp=1), Degrees(tp=2), Degrees(tp=4))
SHAPE = plain_shape((1, 1, 1, 0)).but(degrees=DEGREES)


def test_lanes_of_node_groups() -> None:
    """Lanes of the third group hold as much as those of the first, which is the widest used."""
    assert [lanes_like(SHAPE, j) for j in range(4)] == [0, 1, 0, 3]
    assert widest_group(SHAPE) == 0
    assert [tied_lanes(SHAPE, j) for j in range(4)] == [6, 1, 2, 4]


def test_lanes_of_messages() -> None:
    """Split, every GPU sends its part once; whole, as often as the widest tensor group has GPUs."""
    instance = equal_nodes(1, 1, 1, 1, 1).instance
    for split, lanes in ((True, 3 * 2), (False, 3 * 4)):
        search = SearchSpace(scatter_gather=split)
        assert message_lanes(instance.but(search=search), DEGREES[0], 4) == lanes


def test_layers_that_agree_in_bytes() -> None:
    """All of one mask on tensor groups of one size, else one for each pair of sizes."""
    sizes = np.array([[4, 8, 4, 9], [2, 4, 2, 9], [4, 8, 4, 9]])
    masks = [mask.tolist() for mask in layers_alike(SHAPE, sizes)]
    assert masks == [[0, 1, 0], [1, 0, 1]]
    alike = SHAPE.but(nodes_used=(1, 0, 1, 0))
    assert [mask.tolist() for mask in layers_alike(alike, sizes)] == [[1, 1, 1]]
