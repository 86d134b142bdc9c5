"""Splits on trial: the simulator's step times in batch, and bounds from paths met before."""

from collections.abc import Iterator

import numpy as np
import pytest

from formulations.costs.tables import CostTables, build_tables
from formulations.instance.search import ScheduleName
from solver.heuristics.balance import SplitSpace
from solver.heuristics.trial import OrderTrial, PathPool
from solver.simulate import step_time_ns
from tests import brute_force
from tests.random_configs import WITH_NEW, random_tables
from tests.seeds import one_each


def trials(tables: CostTables) -> Iterator[OrderTrial]:
    space, vectors = SplitSpace(tables), list(brute_force.all_shares(tables))
    for order in brute_force.all_orders(tables):
        for shares in vectors[:: -(-len(vectors) // 4)]:
            yield OrderTrial(space, order, shares)


@pytest.mark.parametrize("schedule", WITH_NEW)
@pytest.mark.parametrize("seed", one_each(range(18), 9))
def test_judged_times_are_simulated_and_paths_bound_them(
    seed: int, schedule: ScheduleName | None
) -> None:
    """Even where kinds of replicas are left out, because others outdo them; zones or not.

    Paths learned from some splits of each order and share vector are tight there, and never above.
    """
    tables = random_tables(seed, seed % 3 == 0, schedule)
    if seed % 2:
        instance = tables.instance.but(search={"blocking_sends": True})
        tables = build_tables(instance, tables.config)
    splits, pool = np.array(list(brute_force.all_splits(tables))), PathPool()
    times = []
    for trial in trials(tables):
        plans = ((trial.order, tuple(split), trial.balance.shares) for split in splits.tolist())
        times.append([step_time_ns(trial.space.costs(*plan)) for plan in plans])
        judged, paths = trial.judge(splits[::2], paths=True)
        pool.learn(paths)
        assert trial.judge(splits)[0].tolist() == times[-1]
        assert pool.bound_ns(trial, splits[::2]).tolist() == judged.tolist() == times[-1][::2]
    for trial, simulated in zip(trials(tables), times, strict=True):
        assert (pool.bound_ns(trial, splits) <= simulated).all()
