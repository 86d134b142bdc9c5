"""The micro-batch models, CP-SAT and MILP: exactly the shares that there are, within memory."""

from formulations.decisions import Given
from tests import brute_force
from tests.random_configs import random_tables
from tests.twins import check_sizes


def test_models_are_the_recorded_ones() -> None:
    for seed in range(0, 40, 8):
        tables = random_tables(seed)
        split = next(brute_force.all_splits(tables))
        for most in (None, 2):
            given = Given(boundaries=split, largest_share=most)
            check_sizes("microbatches", {f"{seed} {most}": tables}, given)
