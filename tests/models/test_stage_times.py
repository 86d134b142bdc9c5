"""Least runs of layers that recompute for so long: what a stage holds decides its time."""

from tests.random_configs import cramped_tables
from tests.twins import check_sizes


def test_models_are_the_recorded_ones() -> None:
    for schedule in ("1f1b", "interleaved", "zb-h1"):
        drawn = {f"{schedule} {seed}": cramped_tables(seed, schedule) for seed in range(4)}
        check_sizes("stage_times", drawn)
