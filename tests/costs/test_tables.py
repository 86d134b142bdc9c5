"""What models and search read of one configuration, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from formulations.costs.tables import CostTables, build_tables
from formulations.instance.search import ScheduleName
from formulations.plan import Degrees
from tests.equal_nodes import equal_nodes
from tests.oracles.agreement import pages_suffice
from tests.small_instances import layer, plain_config, workload

test_pages_suffice = pages_suffice(9, 13, 14)


def tables_of(schedule: ScheduleName) -> CostTables:
    """Two blocks of 0.2 ms forward, a fifth of it scores, between ends of 0.02 ms."""
    block = layer("block", 10, 0, 0).but(unweighted_flops=2 * 10**9)
    chain = [layer("embedding", 1, 0, 0), block, block, layer("head", 1, 0, 0)]
    base = equal_nodes(1, 2, 1, 1, 2).instance
    instance = base.but(workload=workload(chain, 4, 10**6, False))
    config = plain_config((1,), pp=2, schedule=schedule, recompute=("none", "full"))
    return build_tables(instance, config)


@pytest.mark.usefixtures("round_times")
def test_passes_of_a_micro_batch() -> None:
    """Backward takes twice as long, and once more where all is recomputed."""
    tables = tables_of("1f1b")
    forward, backward = tables.passes
    assert forward[:, 0].tolist() == [20_000, 200_000, 200_000, 20_000]
    assert backward[:, 0].tolist() == [40_000, 400_000, 400_000, 40_000]
    assert tables.longest_passes[1][:, 0].tolist() == [40_000, 600_000, 600_000, 40_000]
    assert tables.work_ns[:, 0].tolist() == [60_000, 600_000, 600_000, 60_000]
    assert (tables.least_forward_ns, tables.least_work_ns) == (440_000, 1_320_000)


@pytest.mark.usefixtures("round_times")
def test_passes_where_weight_gradients_are_split_off() -> None:
    """They take half of the backward pass of ends, 8 of the 20 GFLOPs of blocks."""
    tables = tables_of("zb-h1")
    _, inputs, weight = tables.passes
    assert weight[:, 0].tolist() == [20_000, 160_000, 160_000, 20_000]
    assert inputs[:, 0].tolist() == [20_000, 240_000, 240_000, 20_000]
    _, longest, same = tables.longest_passes
    assert longest[:, 0].tolist() == [20_000, 440_000, 440_000, 20_000]
    assert same.tolist() == weight.tolist()


def test_least_is_that_of_the_fastest_group_used() -> None:
    """Of two layers 3 and 2 forward, 9 and 7 in all; of the first group alone 3 + 4 and 10 + 9."""
    tables = equal_nodes(2, 1, 1, 1, 2, zones="ab")
    forward, backward = np.array([[3, 5], [4, 2]]), np.array([[7, 4], [5, 5]])
    both = replace(tables, forward_ns=forward, backward_ns=backward)
    assert (both.least_forward_ns, both.least_work_ns) == (3 + 2, 9 + 7)
    first = replace(both, config=tables.config.but(nodes_used=(1, 0)))
    assert (first.least_forward_ns, first.least_work_ns) == (3 + 4, 10 + 9)


@pytest.mark.parametrize(
    ("zones", "degrees", "expected_s"),
    [
        ("", (1,), 180e6 * 1e-9 / 0.5 + 20e-5),
        ("ab", (1, 1), 180e6 * 4e-9 / 0.5 + 20e-3),
        ("ab", (1, 2), 180e6 * 8e-9 / 0.5 + 32e-3),
    ],
)
def test_traffic_that_no_path_exceeds(
    zones: str, degrees: tuple[int, ...], expected_s: float
) -> None:
    """12 crossings of 1 MB, 4 x 42 MB of gradients at half of 1 GB/s; 12 + 8 starts of 10 us.

    Four micro-batches and two stages: 2 (4 + 2) crossings. Between zones both slots share 0.5 GB/s,
    with 1 ms a start. Where a slot has two GPUs, twice the bytes share it, and 24 + 8 starts.
    """
    tables = equal_nodes(2, 1, 1, 1, 2, zones=zones)
    config = tables.config.but(degrees=tuple(Degrees(tp=tp) for tp in degrees))
    tables = replace(tables, config=config, embedding_bytes=(2 * 10**6, 10**6))
    slower = tables.optimizer_ns + 10 * np.arange(len(degrees))  # on the second group
    tables = replace(tables, optimizer_ns=slower)
    times = tables.num_micro_batches * int((tables.work_ns.max(axis=1)).sum())
    optimizer = int(tables.optimizer_ns.max(axis=1).sum())
    assert tables.longest_ns - times - optimizer == pytest.approx(expected_s * 1e9, abs=2)
