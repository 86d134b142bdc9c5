"""Tables of what a stage costs at every place of an instance."""

from formulations.node_sharing import NodeSplit
from formulations.space.configurations import pipeline_strategies
from solver.graph.places import Places, place_costs, places_of
from solver.graph.problem import Intervals
from tests.conftest import present
from tests.graph.drawn import staged_tables
from tests.recorded import Cases, digest, recorded, summary
from tests.small_instances import random_instance, widened


def _figures(places: Places) -> list[object]:
    """All that is said of places, with what four stages of them recompute."""
    size = places.num_layers
    extra = [places.memory.extra(x, 3) for x in range(len(places.gpus))]
    ways = [places.memory.recomputed(x, 3, (0, size)) for x in range(len(places.gpus))]
    held = [places.held(4, k, m) for k in range(4) for m in (2, 5)]
    fixed = places.split, places.nodes, places.node_gpus, places.group, places.gpus, held
    times = places.forward, places.backward, places.sync, places.finish, *extra
    sends = places.send, places.send_back, places.message_kind, places.embedding
    flags = places.tied, places.blocking, places.schedule
    return [*fixed, digest([summary([*times, *sends]), flags, ways])]


@recorded("places")
def test_places_are_the_recorded_ones() -> Cases:
    """Of templates, for one stage alone and several; of stages with degrees of their own."""
    for seed in range(6):
        instance = (random_instance, widened)[seed % 2](seed)
        links = [group.inter_node for group in instance.cluster.groups][: seed % 3]
        for n, strategy in enumerate(list(pipeline_strategies(instance, 1))[::3]):
            for split in NodeSplit:
                costs = place_costs(instance, strategy, split, links)
                yield f"{seed}.{n} {split}", [_figures(costs.alone), _figures(costs.several)]
    for name, tables in staged_tables().items():
        yield name, _figures(places_of(Intervals(tables), present(tables.by_place)))
