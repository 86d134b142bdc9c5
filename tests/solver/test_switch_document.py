"""Promises of solver.switch_document: the figures that follow from what is sent."""

from formulations.switching.switch import published_plan
from solver.switch_document import switch_figures
from tests.recorded import Cases, digest, recorded
from tests.switch_cases import tiny_switch


@recorded("switching")
def test_figures_are_the_recorded_ones() -> Cases:
    """Of the published rule, by GPU; from 40 on zones have links of their own."""
    for seed in (*range(0, 24, 2), *range(40, 52, 2)):
        switch = tiny_switch(seed)
        told = switch_figures(switch, published_plan(switch))
        times = told["time_s"], told["lower_bound_s"], told["gap"]
        bound_by = [str(line) for line in told["bound_by"][:4]]
        yield f"figures {seed}", [*times, *bound_by, digest(told)]
