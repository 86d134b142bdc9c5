"""Levels, completions and the search through them keep every template below the cutoff."""

from dataclasses import replace

import numpy as np
import pytest

from formulations.template import Template
from solver.layered.problem import Array
from solver.templates.chains import Counts
from solver.templates.completions import Completions, classes
from solver.templates.judge import fits, step_time
from solver.templates.level_search import LevelSearch
from solver.templates.levels import LevelBuilder
from solver.templates.places import PlaceCosts, Places
from solver.templates.shared_bounds import SharedBounds
from solver.templates.template_options import Split
from tests.seeds import one_each
from tests.template_cases import all_templates, finals_of, random_places, small_case


def _case(seed: int) -> Places:
    """Five layers on one or two node groups, or seven on three nodes of two GPUs."""
    split, room = (Split.ALIGNED, Split.ANY)[seed % 2], (None, 4)[seed // 2 % 2]
    if seed % 3:
        return small_case(seed, split, room)
    places = random_places(seed, 7, (2,), (3,), split, 20, room)
    return replace(places, schedule="gpipe" if seed % 9 == 6 else "1f1b")


def _kept(places: Places, finals: list[Counts], m: int, cutoff: int) -> list[Template]:
    """Templates of several stages that a search below the cutoff comes to, if it finds none."""
    shared = SharedBounds(places, {0: finals}, m)
    while shared.open({0: cutoff}):
        shared.close({0: cutoff})
    numbers = np.flatnonzero(shared.bounds(0, cutoff) < cutoff).tolist()
    if not numbers:
        return []
    low, high = shared.least_term(0), cutoff - shared.least_latency(0)
    builder = LevelBuilder(shared.suffixes, finals, shared.known(0, cutoff), high)
    levels, starts = builder.build(cutoff, numbers)
    for _ in range(2):
        chosen = classes(levels, m - 1, low, high, 5, 4)
        completions = Completions(levels, shared.terms, chosen, cutoff)
        kept, levels = levels, completions.pruned(starts, cutoff)
    found = list[Template]()

    def judge(paths: Array) -> Array:
        for path in paths:
            p = int((path >= 0).sum())
            found.append(builder.template(kept[:p], path[:p]))
        return np.full(len(paths), cutoff)

    assert LevelSearch(completions, starts, judge, cutoff, 0.0).run(lambda: False) >= cutoff
    return found


@pytest.mark.parametrize("seed", one_each(range(36), 7))
def test_every_template_below_the_cutoff_is_looked_at(seed: int) -> None:
    """With a tenth of all templates below it, of whatever number of stages."""
    places, m = _case(seed), 1 + seed % 8
    costs = PlaceCosts(places, places)
    for n, finals in finals_of(places).items():
        every = [t for t in all_templates(places, n) if t.num_stages > 1 and fits(costs, t, m)]
        times = [step_time(costs, one, m) for one in every]
        if not times:
            continue
        cutoff = sorted(times)[len(times) // 10] + 1
        found = _kept(places, finals, m, cutoff)
        assert len(set(found)) == len(found)
        assert {one for one, time in zip(every, times, strict=True) if time < cutoff} <= set(found)
