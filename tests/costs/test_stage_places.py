"""Costs of stages with degrees of their own: as docs/cost.md says, and on one kind of nodes."""

from formulations.costs.stage_places import StagePlacer, placement_of, stage_tables, with_stages
from formulations.space import configs
from formulations.space.slots import layouts, stage_places
from tests.oracles.agreement import pages_suffice
from tests.oracles.cases import drawn
from tests.recorded import Cases, recorded, summary
from tests.stage_degrees import stage_instance

test_pages_suffice = pages_suffice(0, 11, 16, 21, 38, 46, 54)


@recorded("stage_places")
def test_places_are_the_recorded_ones() -> Cases:
    """Rings of every place, messages and tied matrices between all pairs; of more stages too."""
    tables_of = {name: tables for name, *_, tables in drawn(0, 11, 16, 21)}
    for seed in range(12):
        instance = stage_instance(seed)
        config = next(config for config in configs(instance) if config.per_stage)
        tables_of[str(seed)] = stage_tables(instance, config, stage_places(instance, config))
    for name, tables in tables_of.items():
        if tables.by_place is not None:
            placer, places = StagePlacer(tables), range(len(tables.by_place.places))
            rings = [summary([*placer.rings(x)]) for x in places]
            sends = [
                list(placer.send_ns(x, y, t)) for x in places for y in places for t in (True, False)
            ]
            tied = [placer.embedding_ns(x, t) for x in places for t in (True, False)]
            longer = with_stages(tables, 7)
            stages = [longer.config.pp, longer.plan_config.pp, longer.plan_config.nodes_used]
            order = next(layouts(tables.by_place), None)
            placed = order and placement_of(tables, order)
            times = placed and summary([placed.send_ns, placed.sync_ns])
            nodes = [placer.num_nodes(x) for x in places]
            yield name, [rings, sends, tied, nodes, stages, times]
