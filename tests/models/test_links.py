"""What crosses between zones in the models: flows, rings and lanes, counted as the costs count."""

import random

import pytest

from formulations.decisions import Given
from tests import brute_force
from tests.models.test_node_order import counted_terms, least_terms
from tests.random_configs import wide_zones
from tests.seeds import one_each
from tests.twins import TWINS, Twin, check_sizes


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize("seed", one_each(range(16), 16))
def test_costs_of_orders_over_many_zones(twin: Twin, seed: int) -> None:
    """So do they for six nodes in up to four zones, where rings of different zones share links."""
    tables = wide_zones(seed)
    boundaries = next(brute_force.all_splits(tables))
    order = tuple(random.Random(seed).sample(range(6), 6))
    assert least_terms(twin, tables, order, boundaries) == counted_terms(tables, order, boundaries)


def test_models_are_the_recorded_ones() -> None:
    tables = wide_zones(1)
    check_sizes("links", {"1": tables}, Given(boundaries=next(brute_force.all_splits(tables))))
