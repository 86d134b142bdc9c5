"""Templates of least simulated step time: against all templates, and bounds."""

import pytest

from solver.resilience.graph import TemplateGraph
from solver.resilience.judge import fits, step_time
from solver.resilience.places import PlaceCosts
from solver.resilience.stage_bounds import stage_bounds
from solver.resilience.step_time import StepTimeSearch, starts
from solver.resilience.template_options import Split
from tests.seeds import one_each
from tests.template_cases import all_templates, finals_of, small_case


@pytest.mark.parametrize("split", list(Split))
@pytest.mark.parametrize("seed", one_each(range(30), 7))
def test_optimum_is_that_of_all_templates(seed: int, split: Split) -> None:
    """Transfers, memory, tied embeddings, blocking sends, one and two node groups."""
    several = small_case(seed, split, None if seed % 2 else 3)
    costs = PlaceCosts(several, several)
    finals, micro_batches = finals_of(several), 1 + seed % 5
    first = starts(costs, finals, micro_batches)
    for n, own in finals.items():
        templates = [t for t in all_templates(several, n) if fits(costs, t, micro_batches)]
        times = [step_time(costs, t, micro_batches) for t in templates]
        search = StepTimeSearch(costs, own, micro_batches)
        found = search.run(first.get(n), None, lambda: False)
        assert found.complete
        assert found.value == min(times, default=None)
        if found.template is not None:
            assert found.bound == found.value
            assert step_time(costs, found.template, micro_batches) == found.value


@pytest.mark.parametrize("seed", one_each(range(20), 7))
def test_bounds_by_number_of_stages_hold(seed: int) -> None:
    """No template is below the bound of its number of stages, with the best step as cutoff + 1."""
    places = small_case(seed, Split.ALIGNED, None if seed % 2 else 3)
    costs, micro_batches = PlaceCosts(places, places), 1 + seed % 6
    for n, own in finals_of(places).items():
        graph = TemplateGraph(places, own)
        templates = [t for t in all_templates(places, n) if fits(costs, t, micro_batches)]
        times = [(step_time(costs, t, micro_batches), t.num_stages) for t in templates]
        if times:
            cutoff = min(times)[0] + 1 + seed
            bounds = stage_bounds(graph, micro_batches, cutoff).least
            assert all(bounds[p] <= time for time, p in times if time < cutoff)


def test_only_templates_below_the_cutoff() -> None:
    """The optimum as cutoff: nothing is found, and the bound says that nothing is below it."""
    places = small_case(5, Split.ALIGNED)
    costs = PlaceCosts(places, places)
    best = StepTimeSearch(costs, [(2,)], 4).run(None, None, lambda: False).value
    assert best is not None
    found = StepTimeSearch(costs, [(2,)], 4).run(None, best, lambda: False)
    assert (found.template, found.bound, found.complete) == (None, best, True)


@pytest.mark.parametrize("seed", range(4))
def test_stopped_at_once_the_bound_holds(seed: int) -> None:
    """Without any time the outcome is not complete, and its bound is below the optimum."""
    places = small_case(seed, Split.ALIGNED)
    costs = PlaceCosts(places, places)
    own = finals_of(places)[2]
    best = StepTimeSearch(costs, own, 4).run(None, None, lambda: False).value
    stopped = StepTimeSearch(costs, own, 4).run(None, None, lambda: True)
    assert best is not None
    assert stopped.bound <= best


@pytest.mark.parametrize("gap", [0.05, 0.3])
def test_bound_keeps_to_the_gap(gap: float) -> None:
    """The best found is within the gap of the bound, and the bound below the optimum."""
    places = small_case(7, Split.ANY)
    costs = PlaceCosts(places, places)
    best = StepTimeSearch(costs, [(1, 2), (2, 1)], 6).run(None, None, lambda: False).value
    found = StepTimeSearch(costs, [(1, 2), (2, 1)], 6, gap).run(None, None, lambda: False)
    assert best is not None
    assert found.value is not None
    assert found.complete
    assert found.value * (1 - gap) <= found.bound <= best
