"""Where stages with degrees of their own may stand."""

import pytest

from formulations.plan import ByPlace, Degrees, Group
from formulations.space.layouts import Layout, layouts, slots_of
from tests.small_instances import plain_config, random_instance

ONE, TWO = 0, 1  #: places: slots of one GPU, and of two


def on_nodes_of_two(pp: int, dp: int, nodes: int) -> ByPlace:
    one = random_instance(0)
    group = one.cluster.groups[0].but(gpus_per_node=2, nodes=nodes)
    cluster = one.cluster.but(groups=(group,))
    config = plain_config((nodes,), degrees=(), pp=pp, dp=dp)
    instance = one.but(cluster=cluster)
    return ByPlace(instance, config, ((0, Degrees(tp=1)), (0, Degrees(tp=1, parts=2))))


@pytest.mark.parametrize(
    ("pp", "dp", "nodes", "found"),
    [
        # three stages on four GPUs: one has two
        (3, 1, 2, [(0, 1, 2), (2, 0, 1)]),
        # both replicas of a stage fill a node, or, with two GPUs each, both nodes
        (2, 2, 2, [(0, 0)]),
        (1, 2, 2, [(2,)]),
        (2, 1, 2, [(2, 2)]),
        (5, 1, 2, []),
    ],
)
def test_layouts_fill_the_nodes(pp: int, dp: int, nodes: int, found: list[Layout]) -> None:
    """Stage after stage, behind the one before or on a new node, until no GPU is left."""
    whole = on_nodes_of_two(pp, dp, nodes)
    assert sorted(layouts(whole)) == found
    assert all(slots_of(whole, one) for one in found)


def test_slots_are_side_by_side_or_on_whole_nodes() -> None:
    """Two slots of one GPU share a node, two of two GPUs have one each."""
    assert slots_of(on_nodes_of_two(1, 2, 2), (2 * TWO,)) == [
        [Group(node=0, gpus=(0, 1)), Group(node=1, gpus=(0, 1))]
    ]
    assert slots_of(on_nodes_of_two(1, 2, 1), (2 * ONE,)) == [
        [Group(node=0, gpus=(0,)), Group(node=0, gpus=(1,))]
    ]


@pytest.mark.parametrize("layout", [(0,), (2, 1), (0, 3), (0, 0), (1, 1)])
def test_what_is_no_layout_has_no_slots(layout: Layout) -> None:
    assert slots_of(on_nodes_of_two(2, 1, 1), layout) is None
