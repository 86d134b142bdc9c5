"""Least transfers and all-reduces of any node order, by hand."""

import pytest

from solver.bounds.placement_independent import ConfigColumns, send_ns, tails, tied_ns
from tests.bounds.drawn import drawn_configs
from tests.chain_instances import equal_nodes
from tests.recorded import Cases, digest, recorded, summary


def columns(tied: bool = False, zero: int = 0, **sizes: int) -> ConfigColumns:
    """Of one configuration on equal nodes."""
    tables = equal_nodes(**sizes, tied=tied, zero=zero)  # type: ignore[arg-type]
    return ConfigColumns(tables.instance, [tables.config])


@pytest.mark.parametrize(
    ("dp", "pp", "expected_ns"),
    [
        (2, 4, 1 * 2_010_000 + 2 * 101_000),  # two stages on each node, one border, two lanes
        (4, 2, 1 * 4_010_000),  # a stage is a node: four lanes cross at once
        (1, 8, 1 * 1_010_000 + 6 * 101_000),
    ],
)
def test_transfers_inside_and_between_nodes(dp: int, pp: int, expected_ns: int) -> None:
    """1 MB at 10 GB/s and 1 us inside two nodes of 4 GPUs, at 1 GB/s and 10 us between them."""
    assert send_ns(columns(nodes=2, gpus=4, tp=1, dp=dp, pp=pp)).tolist() == [expected_ns]


@recorded("placement_independent")
def test_costs_are_the_recorded_ones() -> Cases:
    for name, (instance, space, _) in drawn_configs().items():
        columns = ConfigColumns(instance, space)
        after = tails(columns)
        times = [send_ns(columns), tied_ns(columns), after.start, after.layers]
        yield name, [*(ns.sum() for ns in times), digest(summary(times))]
