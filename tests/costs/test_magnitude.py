"""Figures beyond all meaning are refused before they overflow 64 bits."""

from itertools import product

import pytest

from formulations.costs.magnitude import check_memory, check_step
from formulations.costs.tables import build_tables
from formulations.errors import InstanceError
from formulations.instance import Instance
from formulations.space import configs
from tests.brute_force import all_orders, all_shares, all_splits, place, step_time_ns
from tests.chain_instances import SLOW, chain_instance
from tests.random_configs import zoned
from tests.seeds import one_each
from tests.small_instances import plain_config, random_instance, with_groups

DAY_S = 86_400
#: Forward and backward of one GFLOP on SLOW for the four sequences of a step: 4 * 3 ms.
STEP_S_PER_GFLOP = 0.012


def slow_step(days: float) -> Instance:
    """A chain whose one block takes this long, forward and backward of all sequences."""
    return chain_instance([round(days * DAY_S / STEP_S_PER_GFLOP)], [SLOW])


def test_52_days_are_the_limit() -> None:
    """And 1024 PiB. 2^52 ns are 52 days; over 126 stages too, half of that over 254."""
    check_memory(1 << 60, "here")
    with pytest.raises(InstanceError, match=r"^here: 2.05e\+03 PiB .* at most 1024 PiB"):
        check_memory(1 << 61, "here")
    check_step(1 << 52, "here", "it", stages=126)
    line = r"^here: it needs 53 days for one step; allowed: at most 52.1 days: a smaller"
    with pytest.raises(InstanceError, match=line):
        check_step(53 * DAY_S * 1e9, "here", "it")
    check_step(1 << 51, "here", "it", stages=254)
    with pytest.raises(InstanceError, match=r"at most 26.1 days over 254 stages: a smaller"):
        check_step((1 << 51) + 1000, "here", "it", stages=254)


def test_bug_times_beyond_64_bits_were_a_traceback() -> None:
    """Step time just inside the limit and beyond it; the embedding and head compute nothing."""
    build_tables(slow_step(51), plain_config((1,)))
    with pytest.raises(InstanceError, match=r"cluster\.groups slow0: one slow needs 53 days"):
        build_tables(slow_step(53), plain_config((1,)))
    with pytest.raises(InstanceError, match="days for one step"):
        build_tables(slow_step(1e25), plain_config((1,)))  # a step of 10^30 s


def test_link_that_takes_years_is_refused() -> None:
    """One byte in 10^9 s: the gradients alone take years, alike in every configuration."""
    instance = chain_instance([1], [SLOW])
    slow = {"bandwidth_bytes_per_s": 1e-9, "latency_s": 0}
    with pytest.raises(InstanceError, match="cluster: the slowest link needs"):
        build_tables(with_groups(instance, inter_node=slow), plain_config((1,)))


@pytest.mark.parametrize("seed", one_each(range(40), 20))
def test_no_step_is_longer_than_the_longest_path(seed: int) -> None:
    """Every configuration of random instances, zones or not, in the worst of all node orders."""
    instance = random_instance(seed)
    instance = zoned(instance, seed) if seed % 2 else instance
    for config in configs(instance):
        tables = build_tables(instance, config)
        split = next(all_splits(tables), None)
        for order, shares in product(all_orders(tables), all_shares(tables)):
            if split is not None:
                step_ns = step_time_ns(tables, place(tables, order), split, shares)
                assert step_ns <= tables.longest_ns
