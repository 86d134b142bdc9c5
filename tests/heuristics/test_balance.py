"""Balanced splits of one node order against all splits."""

import numpy as np
import pytest

from formulations.instance.search import ScheduleName
from solver.heuristics.balance import SplitSpace
from tests import brute_force
from tests.random_configs import WITH_NEW, random_tables
from tests.recorded import Cases, recorded, summary


@pytest.mark.parametrize("schedule", WITH_NEW)
@recorded("balance")
def test_times_of_stages_are_the_recorded_ones(schedule: ScheduleName | None) -> Cases:
    """Of every kind of operation, of all splits of the first order; and farthest ends."""
    for seed in range(8):
        tables = random_tables(seed, schedule=schedule)
        space, splits = SplitSpace(tables), np.array(list(brute_force.all_splits(tables)))
        balance = space.balance(brute_force.all_orders(tables)[0])
        start, end = splits[:, :-1].T[:, None], splits[:, 1:].T[:, None]
        times = space.stage_times(space.even[0], balance.groups[:, :, None], start, end)
        work = [balance.work(tuple(split)) for split in splits.tolist()]
        limits = [balance.least_limit(1 << 50), balance.least_limit(min(work, default=0))]
        found = [None if limit is None else balance.split(limit) for limit in (*limits, *work[:3])]
        yield f"{seed} {schedule}", summary([*times, balance.farthest, np.array(work)])
        even = space.balance(brute_force.all_orders(tables)[-1]).least_limit(1 << 50)
        yield f"{seed} {schedule} limits", [*limits, even, *map(summary, found)]
