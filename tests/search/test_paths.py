"""Paths as cuts: never above any simulated end, for any plan and any larger share."""

from formulations.costs.placement import Placer
from formulations.decisions import ALL_FREE, Decisions, Given
from solver.heuristics.balance import SplitSpace
from solver.search.paths import (
    CutPool,
    OpenConfig,
    first_cuts,
    harvest,
    largest_share,
    shares_of,
    whole_weights,
)
from tests import brute_force
from tests.graph.drawn import drawn_tables
from tests.loop_checks import random_decisions
from tests.random_configs import random_tables
from tests.recorded import Cases, digest, recorded


def test_harvest_values_the_plan_at_its_step_time() -> None:
    for seed in range(0, 60, 3):
        costs = random_tables(seed)
        made = random_decisions(costs, seed)
        placed = brute_force.place(costs, made.order)
        placement = Placer(costs).costs(made.order)
        found = harvest(SplitSpace(costs), placement, made, range(1, 9), 0)
        step = brute_force.step_time_ns(costs, placed, made.boundaries, made.micro_batches)
        assert found.step_time_ns == step
        stages = {cut.device for cut in found.cuts if cut.micro_batches in made.micro_batches}
        assert stages == set(range(costs.config.pp))


@recorded("search_paths")
def test_paths_are_the_recorded_ones() -> Cases:
    """First ones, those of plans and near them, shares that replicas may have, and weights."""
    for name, costs in list(drawn_tables().items())[::2]:
        config, pool = costs.config, CutPool()
        orders, splits = brute_force.all_orders(costs), list(brute_force.all_splits(costs))
        shares = list(brute_force.all_shares(costs))
        if not splits or not shares:
            continue
        made = Decisions(orders[-1], splits[-1], shares[-1])
        placement, space = Placer(costs).costs(made.order), SplitSpace(costs)
        near = range(1, 9) if config.vpp == 1 else ()
        first = list(first_cuts(config.schedule, config.pp, 2 * config.pp, config.vpp))
        pool.of(config).update(first)
        known = [len(pool.of(each)) for each in (config, config.but(pp=9), config.but(vpp=9))]
        plans = [harvest(space, placement, made, near, 0)]
        bounds = [plans[0].step_time_ns * tenths // 10 for tenths in (5, 7, 8, 9)]
        plans += [harvest(space, placement, made, near, bound_ns) for bound_ns in bounds]
        given = [shares_of(costs, each) for each in (ALL_FREE, Given(micro_batches=shares[-1]))]
        opened = [OpenConfig(costs, price) for price in (1.0, 0.37, 0.0)]
        counts = [len(first), *(len(plan.cuts) for plan in plans), plans[0].step_time_ns]
        most = [largest_share(costs, ns) for ns in (-1, costs.longest_ns // 3)]
        tail = list(map(list, given)), known, most, whole_weights(opened), whole_weights(opened[:1])
        yield name, [*counts, *tail, digest([first, plans])]
