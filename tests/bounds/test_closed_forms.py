"""Closed-form bounds as recorded; `test_all_bounds`: none is above the best plan of its config."""

from formulations.costs.compute import TimeColumns
from formulations.costs.tables import CostTables
from solver.bounds.closed_forms import ClosedForms
from tests.graph.drawn import drawn_configs
from tests.recorded import Cases, recorded


def bounds_of(tables: CostTables) -> ClosedForms:
    config = tables.config
    times = TimeColumns(tables.instance).times(
        config.degrees, config.micro_batch, config.recompute[0]
    )
    return ClosedForms(tables.instance, [config], [times])


@recorded("closed_forms")
def test_bounds_are_the_recorded_ones() -> Cases:
    for name, (instance, configs, times) in drawn_configs().items():
        forms = ClosedForms(instance, configs, times)
        yield name, [sorted(ns.tolist()) for ns in (forms.work_ns(), forms.filling_ns())]
