"""Promises of formulations.lengths.tour: steps, their switches and groups, the best strategy."""

import random

from formulations.lengths.tour import Group, Single, Tour, best_single, group_figures, hops, step_ns
from tests.mixed_lengths import free_tours, random_mixed, tour_ns
from tests.recorded import Cases, digest, recorded


@recorded("tour")
def test_steps_are_those_by_definition() -> Cases:
    """Of random tours, whose figures are the recorded ones; the best strategy is one that fits."""
    for seed in range(6):
        mixed = random_mixed(seed, rows="padded" if seed % 3 == 0 else "packed")
        tours = random.Random(seed).sample([*free_tours(mixed)], 30)
        for tour in tours:
            assert step_ns(mixed, tour) == tour_ns(mixed, tour)
        able = [tour for tour in tours if step_ns(mixed, tour) is not None]
        switches = [hops(mixed.switching, tour) for tour in tours]
        groups = [list(group_figures(mixed, tour)) for tour in able]
        yield str(seed), [digest(switches), digest(groups)]
        every = tuple(range(len(mixed.atoms)))
        single = [tour_ns(mixed, Tour(q, (Group(q, every),))) for q in range(len(mixed.strategies))]
        least = min(ns for ns in single if ns is not None)
        assert best_single(mixed) == Single(single.index(least), least)
