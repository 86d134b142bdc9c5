"""Layers on the nodes of pipelines."""

from formulations.fleet import Pipeline, holdings, layers_by_position
from tests.formulations.test_transition import THREE, TWO


def test_nodes_hold_the_layers_of_all_their_stages() -> None:
    """The first node of TWO runs two stages."""
    assert layers_by_position(TWO) == (range(3), range(3, 5))
    fleet = [Pipeline(TWO, (4, 2), 1), Pipeline(THREE, (0, 1, 3), 1)]
    assert holdings(fleet) == {
        4: range(3),
        2: range(3, 5),
        0: range(2),
        1: range(2, 3),
        3: range(3, 5),
    }
