"""Paths as cuts: never above any simulated end, for any plan and any larger share."""

from types import SimpleNamespace
from typing import Any

import pytest

from formulations.costs.placement import Placer
from formulations.decisions import ALL_FREE, Decisions, Given
from solver.heuristics.balance import SplitSpace
from solver.search import paths
from solver.search.paths import (
    CutPool,
    HeldConfigs,
    OpenConfig,
    first_cuts,
    harvest,
    largest_share,
    shares_of,
    whole_weights,
)
from tests import brute_force
from tests.best_plans import random_decisions
from tests.graph.drawn import drawn_tables
from tests.random_configs import random_tables
from tests.recorded import Cases, digest, recorded
from tests.twins import CPSAT, size_of


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
        bounds = [plans[0].step_time_ns * tenths // 10 for tenths in (5, 7, 8, 9, 10)]
        plans += [harvest(space, placement, made, near, bound_ns) for bound_ns in bounds]
        with pytest.MonkeyPatch.context() as cramped:  # no room for a split beside the plan's
            cramped.setattr(paths, "BATCH_ENTRIES", 1)
            plans.append(harvest(space, placement, made, near, 0))
        given = [shares_of(costs, each) for each in (ALL_FREE, Given(micro_batches=shares[-1]))]
        opened = [OpenConfig(costs, price) for price in (1.0, 0.37, 0.0)]
        counts = [len(first), *(len(plan.cuts) for plan in plans), plans[0].step_time_ns]
        most = [largest_share(costs, ns) for ns in (-1, costs.longest_ns // 3)]
        tail = list(map(list, given)), known, most, whole_weights(opened), whole_weights(opened[:1])
        yield name, [*counts, *tail, digest([first, plans])]


def test_weights_of_long_steps_leave_room_for_their_sum() -> None:
    """Two steps of at most 2 (2^50 + 1) ns: 2^62 over their sum is a little less than 2^10."""
    days: Any = SimpleNamespace(longest_ns=1 << 50)
    assert whole_weights([OpenConfig(days), OpenConfig(days, 0.5)]) == [1023, 512]


@recorded("search_paths")
def test_held_configs_are_the_recorded_ones() -> Cases:
    """Two configurations that share their paths, and one of other stages, below two targets."""
    drawn = drawn_tables()
    for name in ("plain 0", "zb-h1 1", "interleaved 2"):
        tables, pool = drawn[name], CutPool()
        unlike = next(costs for costs in drawn.values() if costs.config.pp != tables.config.pp)
        configs = [OpenConfig(tables), OpenConfig(tables, 0.5), OpenConfig(unlike)]
        model = HeldConfigs(CPSAT.model(), configs, pool)
        for index, target_ns in enumerate((tables.longest_ns, 1 << 60, 1 << 60)):
            model.hold(index, 1000 * index, target_ns)
        sizes, new = [len(part.cuts) for part in model.built.parts], list[bool]()
        made = random_decisions(tables, 1)
        placement = Placer(tables).costs(made.order)
        cuts = harvest(SplitSpace(tables), placement, made, range(1, 30), 0).cuts
        for _ in range(2):
            new.append(model.add_cuts(0, cuts))
            sizes += [len(part.cuts) for part in model.built.parts]
        shares = list(map(list, model.shares.values()))
        yield f"{name}, held", [sizes, new, shares, *size_of(model.built.model)]
