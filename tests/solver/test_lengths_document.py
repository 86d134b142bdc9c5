"""Promises of solver.lengths_document: the figures that follow from a problem and a tour."""

import random

from solver.lengths_document import step_figures
from tests.mixed_lengths import free_tours, random_mixed, tour_ns
from tests.recorded import Cases, digest, recorded


@recorded("lengths_document")
def test_figures_are_the_recorded_ones() -> Cases:
    for seed in range(6):
        mixed = random_mixed(seed)
        for n, tour in enumerate(random.Random(seed).sample([*free_tours(mixed)], 16)):
            told, time_ns = step_figures(mixed, tour), tour_ns(mixed, tour)
            assert (told and round(told["step_time_s"] * 1e9)) == time_ns
            if told is not None:
                yield f"{seed}.{n}", [told["step_time_s"], digest(told)]
