"""Least runs of layers that recompute for so long: what a stage holds decides its time."""

from itertools import product

import pytest

from formulations.decisions import Given
from formulations.models.cpsat import CpSat
from formulations.models.step_time import OneConfig
from tests import brute_force
from tests.random_configs import cramped_tables
from tests.twins import check_sizes, has_solution


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
