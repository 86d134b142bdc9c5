"""Problems of single node orders, and what zones make of stages."""

from formulations.costs.placement import Placer
from solver.graph.placements import StageZones, fixed_order, group_columns, replica_classes
from solver.graph.problem import Intervals
from tests import brute_force
from tests.graph.drawn import drawn_tables, figures
from tests.random_configs import wide_zones
from tests.recorded import Cases, digest, recorded, summary


@recorded("placements")
def test_problems_are_the_recorded_ones() -> Cases:
    """Of single orders, with a replica of each class; zones; columns of one group."""
    wide = {f"wide {seed}": wide_zones(seed) for seed in range(6)}
    for name, costs in (drawn_tables() | wide).items():
        intervals, placer, config = Intervals(costs), Placer(costs), costs.config
        zones, orders = StageZones(placer), []
        for order in brute_force.all_orders(costs)[:4]:
            placement = placer.costs(order)
            classes = replica_classes(placement, config.dp)
            shares = [1 + n % 3 for n in range(len(classes))]
            problem = fixed_order(intervals, placement, classes, shares)
            orders.append([digest(classes), figures(problem)])
        spanning = zones.spanning_ns()
        split = [zones.split_by(cutoff) for cutoff in (None, 0, spanning, spanning + 1)]
        groups = list(costs.config.groups_used)
        sends = [zones.terms.sends_ns([i] * 2, [j] * 2, 3) for i in groups for j in groups]
        across = [zones.embedding_ns(zones.zone_of_group[i], j) for i in groups for j in groups]
        rings = [zones.ring([i, j]) for i in groups for j in groups] if zones.known else []
        columns = group_columns(intervals, groups[:1])
        places = [columns.first(k, m) for k in range(config.pp) for m in (1, 4)]
        zoned = [zones.aligned, split, spanning, digest([sends, across, rings])]
        yield name, [orders, zoned, places, digest(summary(list(columns.times())))]
