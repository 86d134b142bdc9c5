"""Least transfers and all-reduces of any node order, by hand."""

from solver.bounds.placement_independent import ConfigColumns, send_ns, tails, tied_ns
from tests.chain_instances import equal_nodes
from tests.graph.drawn import drawn_configs
from tests.recorded import Cases, digest, recorded, summary


def test_transfers_inside_and_between_nodes() -> None:
    """1 MB at 10 GB/s and 1 us inside two nodes of 4 GPUs, at 1 GB/s and 10 us between them.

    Two stages on each node are one border of two lanes.
    """
    tables = equal_nodes(nodes=2, gpus=4, tp=1, dp=2, pp=4)
    columns = ConfigColumns(tables.instance, [tables.config])
    assert send_ns(columns).tolist() == [1 * 2_010_000 + 2 * 101_000]


@recorded("placement_independent")
def test_costs_are_the_recorded_ones() -> Cases:
    for name, (instance, space, _) in drawn_configs().items():
        columns = ConfigColumns(instance, space)
        layers, start = tails(columns)
        times = [send_ns(columns), tied_ns(columns), start, layers]
        yield name, [*(ns.sum() for ns in times), digest(summary(times))]
