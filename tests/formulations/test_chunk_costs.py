"""What devices with several chunks recompute: the least that fits beside all of them."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from formulations.costs.placement import Placer
from formulations.costs.recompute_costs import memory_parts, recomputed_ns
from formulations.costs.stage_costs import StageCosts
from tests import brute_force
from tests.cramped import cramped_tables
from tests.seeds import few_and_many


@pytest.mark.parametrize("seeds", few_and_many(range(60), 10))
def test_devices_take_the_least_that_fits(seeds: Sequence[int]) -> None:
    """Of all chunks alike: brute force agrees on times and choice."""
    again = 0
    for seed in seeds:
        tables = cramped_tables(seed, "interleaved")
        shape, stages = tables.shape, StageCosts(tables)
        m = tables.num_micro_batches // shape.dp
        order = brute_force.all_orders(tables)[0]
        placed = brute_force.place(tables, order)
        groups = Placer(tables).costs(order).group_of_slot.reshape(shape.pp, -1)[:, 0]
        splits = np.array(list(brute_force.all_splits(tables))[-12:])
        extra = stages.extra_of_splits(groups.tolist(), m, splits)
        for i, split in enumerate(splits.tolist()):
            for d, j in enumerate(groups.tolist()):
                chunks = list(pairwise(split))[d :: shape.pp]
                least = brute_force.recomputed_ns(tables, placed, split, d, 0, m)
                assert extra[d :: shape.pp, i].tolist() == (least or [0] * shape.vpp)
                found = stages.recomputed(d, j, m, chunks)
                times = [recomputed_ns(tables, j, *one) for one in zip(chunks, found, strict=True)]
                assert times == (least or [0] * shape.vpp)
                fits = sum(memory_parts(tables, chunks, d, j, m, found)) <= tables.capacity_bytes[j]
                assert fits == (least is not None)
                again += bool(least and any(least))
    assert again
