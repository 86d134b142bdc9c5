"""Least runs of layers that recompute for so long: what a stage holds decides its time."""

from itertools import combinations, product

import numpy as np
import pytest

from formulations.decisions import Given
from formulations.models.cpsat import CpSat
from formulations.models.stage_times import least_runs
from formulations.models.step_time import OneConfig
from tests import brute_force
from tests.random_configs import cramped_tables
from tests.twins import check_sizes, has_solution


@pytest.mark.parametrize("seed", range(20))
def test_the_longest_least_run_within_a_stage_is_its_time(seed: int) -> None:
    """Of times that never fall when layers are added on either side."""
    rng, layers = np.random.default_rng(seed), 6
    extra = np.zeros((layers + 1, layers + 1), dtype=np.int64)
    for start, end in sorted(combinations(range(layers + 1), 2), key=lambda run: run[1] - run[0]):
        inner = max(extra[start + 1, end], extra[start, end - 1])
        extra[start, end] = inner + rng.integers(0, 3) * rng.integers(0, 2)
    runs = least_runs(extra)
    for start, end in combinations(range(layers + 1), 2):
        times = [run.extra_ns or 0 for run in runs if start <= run.start and run.end <= end]
        assert max(times, default=0) == extra[start, end]
    assert all(run.extra_ns for run in runs)


@pytest.mark.parametrize("seed", range(6))
def test_devices_of_several_chunks_have_room_iff_a_way_fits(seed: int) -> None:
    """With the order, the shares and each split given."""
    tables = cramped_tables(seed, "interleaved")
    config, order = tables.config, brute_force.all_orders(tables)[0]
    placed, share = brute_force.place(tables, order), tables.num_micro_batches // config.dp
    for split in list(brute_force.all_splits(tables))[-6:]:
        slots = product(range(config.pp), range(config.dp))
        ways = [brute_force.recomputed_ns(tables, placed, split, *slot, share) for slot in slots]
        model = OneConfig(CpSat(), tables, Given(order, split, (share,) * config.dp)).model
        assert has_solution(model) == (None not in ways)


def test_models_are_the_recorded_ones() -> None:
    for schedule in ("1f1b", "interleaved", "zb-h1"):
        drawn = {f"{schedule} {seed}": cramped_tables(seed, schedule) for seed in range(4)}
        check_sizes("stage_times", drawn)
