"""Tables of what a stage costs at every place of an instance."""

import numpy as np
import pytest

from formulations.costs.template_costs import stage_tables
from formulations.node_sharing import NodeSplit
from formulations.space.configurations import pipeline_strategies
from solver.graph.places import place_costs
from tests.seeds import one_each
from tests.small_instances import random_instance
from tests.template_cases import random_places


@pytest.mark.parametrize("seed", one_each(range(12), 4))
def test_places_cost_what_tables_of_their_gpus_say(seed: int) -> None:
    """One layer and all; what has room for four micro-batches in flight has it for one."""
    instance = random_instance(seed)
    strategy = next(iter(pipeline_strategies(instance, 1)))
    places = place_costs(instance, strategy, NodeSplit.ANY).several
    for x, (j, gpus) in enumerate(zip(places.group, places.gpus, strict=True)):
        tables = stage_tables(instance, strategy, gpus, 2)
        assert places.forward[x, 0, -1] == tables.forward_ns[:, j].sum()
        assert places.forward[x, 1, 2] == tables.forward_ns[1, j]
        assert places.of_group(j)[gpus] == x
        assert (places.fits(x, 4) <= places.fits(x, 1)).all()
    assert np.array(places.nodes).tolist() == [group.nodes for group in instance.cluster.groups]


def test_layers_without_room_do_not_fit() -> None:
    """Of six layers three at most."""
    places = random_places(1, 6, [1], [1], NodeSplit.ANY, room=3)
    assert np.flatnonzero(places.fits(0, 1)[0]).tolist() == [1, 2, 3]
