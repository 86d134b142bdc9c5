"""Closed-form bounds by hand, recorded, and that none is above the best plan of its config."""

import pytest

from formulations.costs.compute import TimeColumns
from formulations.costs.tables import CostTables
from solver.bounds.closed_forms import ClosedForms
from tests.chain_instances import SLOW, chain_instance, chain_tables
from tests.graph.drawn import drawn_configs
from tests.recorded import Cases, recorded

#: Optimizer of one layer of a chain: 10,000,007 parameters * (4 + 2 * 12 + 2) B at 1e12 B/s.
OPTIMIZER_NS = 300_001
#: Two layers at least on stage 0, and one transfer each way of 1,000 B at 1e9 B/s.
AFTER_NS = 2 * OPTIMIZER_NS + 2_000


def bounds_of(tables: CostTables) -> ClosedForms:
    config = tables.config
    times = TimeColumns(tables.instance).times(
        config.degrees, config.micro_batch, config.recompute[0]
    )
    return ClosedForms(tables.instance, [config], [times])


@pytest.mark.usefixtures("round_times")
def test_bounds_of_two_equal_stages() -> None:
    """4 micro-batches, 1 ms + 2 ms on each of 2 equal GPUs: half the work, and the filling.

    Work: 4 times 6 ms and the optimizer of 4 layers, halved. Forward passes are a third of the
    work, so c = 3 - 1/3 on the first stage and 3 on the second; weight v loads
    3/8 v + 1/3 v = 17/24 v. Less by d = 0.300001 / 3 on stage 0, v is 24/17 (1 + 3/8 d); the blocks
    count (1 + v - d) 3 + (1 + v) 3 ms.
    """
    bounds = bounds_of(chain_tables(chain_instance([1, 1], [SLOW, SLOW])))
    assert bounds.work_ns()[0] == 12_000_000 + 2 * OPTIMIZER_NS
    d = OPTIMIZER_NS / 3e6
    v = 24 / 17 * (1 + 3 / 8 * d)
    expected = 3e6 * (2 + 2 * v - d) + AFTER_NS
    assert bounds.filling_ns()[0] == pytest.approx(expected, abs=1)


@recorded("closed_forms")
def test_bounds_are_the_recorded_ones() -> Cases:
    for name, (instance, configs, times) in drawn_configs().items():
        forms = ClosedForms(instance, configs, times)
        yield name, [sorted(ns.tolist()) for ns in (forms.work_ns(), forms.filling_ns())]
