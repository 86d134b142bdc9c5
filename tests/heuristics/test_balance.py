"""Balanced splits of one node order against all splits."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from formulations.costs.tables import CostTables
from formulations.instance.search import ScheduleName
from solver.heuristics.balance import WIDTH, Balance, Split, SplitSpace, group_of_slot
from tests import brute_force
from tests.random_configs import WITH_NEW, random_tables
from tests.recorded import Cases, recorded, summary
from tests.seeds import one_each


def cases(seeds: range) -> Iterator[tuple[CostTables, Balance, list[Split]]]:
    """Random configurations with every order, two of the share vectors, and all splits that fit."""
    for seed in seeds:
        tables = random_tables(seed)
        space, config = SplitSpace(tables), tables.config
        vectors = list(brute_force.all_shares(tables))
        for order in brute_force.all_orders(tables):
            placed = brute_force.place(tables, order)
            groups = group_of_slot(tables, order).reshape(config.pp, config.dp)
            for shares in {vectors[0], vectors[-1]}:
                fitting = [
                    split
                    for split in brute_force.all_splits(tables)
                    if brute_force.fits(tables, placed, split, shares)
                ]
                yield tables, Balance(space, groups, shares), fitting


def work(tables: CostTables, balance: Balance, split: Split) -> int:
    times = tables.forward_ns + tables.backward_ns
    return max(
        m * int(times[start:end, j].sum())
        for row, (start, end) in zip(balance.groups.tolist(), pairwise(split), strict=True)
        for j, m in zip(row, balance.shares, strict=True)
    )


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
        yield f"{seed} {schedule}", summary([*times, balance.farthest, np.array(work)])


def test_split_keeps_memory_and_its_limit() -> None:
    """Whatever the limit: a split that fits with no more work, exactly where there is one."""
    for tables, balance, fitting in cases(range(12)):
        works = sorted(work(tables, balance, split) for split in fitting)
        for limit in [0, *(w + step for w in works for step in (-1, 0))]:
            split = balance.split(limit)
            assert (split is None) == (not works or limit < works[0])
            if split is not None:
                found = tuple(split.tolist())
                assert found in fitting
                assert balance.work(found) == work(tables, balance, found) <= limit


@pytest.mark.parametrize("follows", [0, 1])
@pytest.mark.parametrize("seed", one_each(range(0, 60, 10), 6))
def test_least_limit_is_the_load_of_the_most_balanced_split(seed: int, follows: int) -> None:
    """Work, and what follows the last backward, of the most loaded stage; None if none fits."""
    for tables, bare, fitting in cases(range(seed, seed + 10)):
        stages = follows * np.arange(1, tables.config.pp + 1)[:, None]
        sums = np.cumsum(stages * tables.gradient_bytes[:, 0], axis=1)
        after = np.concatenate([0 * stages, sums], axis=1)
        balance = Balance(bare.space, bare.groups, bare.shares, after) if follows else bare
        limit = balance.least_limit(1 << 50)
        loads = [
            max(
                m * int((tables.forward_ns + tables.backward_ns)[start:end, j].sum())
                + int(after[k, end] - after[k, start])
                for k, (start, end) in enumerate(pairwise(split))
                for j, m in zip(bare.groups[k].tolist(), bare.shares, strict=True)
            )
            for split in fitting
        ]
        assert (limit is None) == (not fitting)
        if limit is not None:
            assert min(loads) <= limit <= min(loads) * (1 + 2 * WIDTH) + 1
            assert balance.least_limit(min(loads) - 1) is None
