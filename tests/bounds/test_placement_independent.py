"""Least transfers and all-reduces of any node order."""

from solver.bounds.placement_independent import ConfigColumns, send_ns, tails, tied_ns
from tests.graph.drawn import drawn_configs
from tests.recorded import Cases, digest, recorded, summary


@recorded("placement_independent")
def test_costs_are_the_recorded_ones() -> Cases:
    for name, (instance, space, _) in drawn_configs().items():
        columns = ConfigColumns(instance, space)
        layers, start = tails(columns)
        times = [send_ns(columns), tied_ns(columns), start, layers]
        yield name, [*(ns.sum() for ns in times), digest(summary(times))]
