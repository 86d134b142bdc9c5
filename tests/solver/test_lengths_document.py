"""Promises of solver.lengths_document: the figures that follow from a problem and a tour."""

import random

from formulations.switching.switch import published_plan
from solver.lengths_document import step_figures, switch_figures
from tests.mixed_lengths import free_tours, random_mixed, tour_ns
from tests.recorded import Cases, digest, recorded
from tests.switch_cases import tiny_switch


@recorded("lengths_document")
def test_figures_of_a_step_are_the_recorded_ones() -> Cases:
    for seed in range(6):
        mixed = random_mixed(seed)
        for n, tour in enumerate(random.Random(seed).sample([*free_tours(mixed)], 16)):
            told, time_ns = step_figures(mixed, tour), tour_ns(mixed, tour)
            assert (told and round(told["step_time_s"] * 1e9)) == time_ns
            if told is not None:
                yield f"{seed}.{n}", [told["step_time_s"], digest(told)]


@recorded("switching")
def test_figures_of_a_switch_are_the_recorded_ones() -> Cases:
    """Of the published rule, by GPU; from 40 on zones have links of their own."""
    for seed in (*range(0, 24, 2), *range(40, 52, 2)):
        switch = tiny_switch(seed)
        told = switch_figures(switch, published_plan(switch))
        times = told["time_s"], told["lower_bound_s"], told["gap"]
        bound_by = [str(line) for line in told["bound_by"][:4]]
        yield f"figures {seed}", [*times, *bound_by, digest(told)]
