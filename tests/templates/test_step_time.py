"""Templates of least simulated step time: against all templates, and bounds."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.oobleck_templates import step_time
from formulations.instance.search import ScheduleName
from formulations.node_sharing import NodeSplit
from solver.graph.places import PlaceCosts, Places
from solver.templates.step_time import TemplateOutcome, best_template
from tests.seeds import one_each
from tests.template_cases import all_templates, finals_of, fits, small_case


def _never() -> bool:
    return False


def _found(
    places: Places,
    finals: list[tuple[int, ...]],
    m: int,
    cutoff: int | None = None,
    gap: float = 0.0,
    stop: Callable[[], bool] = _never,
) -> TemplateOutcome:
    """What a search for one key finds."""
    return best_template(PlaceCosts(places, places), finals, m, stop, cutoff=cutoff, gap=gap)


@pytest.mark.parametrize("optimizer", [1, 50])
@pytest.mark.parametrize("split", list(NodeSplit))
@pytest.mark.parametrize("seed", one_each(range(30), 15))
def test_optimum_is_that_of_all_templates(seed: int, split: NodeSplit, optimizer: int) -> None:
    """Transfers, memory, tied embeddings, blocking sends, GPipe, one and two node groups.

    With optimizers as long as a micro-batch, and with long ones.
    """
    several = small_case(seed, split, None if seed % 2 else 3)
    schedule: ScheduleName = "gpipe" if seed % 7 == 3 else "1f1b"
    several = replace(several, schedule=schedule, finish=several.finish * optimizer)
    costs = PlaceCosts(several, several)
    finals, micro_batches = finals_of(several), 1 + seed % 9
    for n in finals:
        templates = [t for t in all_templates(several, n) if fits(costs, t, micro_batches)]
        times = [step_time(costs, t, micro_batches) for t in templates]
        found = best_template(costs, finals[n], micro_batches, _never)
        assert found.complete
        assert found.value == min(times, default=None)
        if found.template is not None:
            assert found.bound == found.value
            assert step_time(costs, found.template, micro_batches) == found.value


def test_only_templates_below_the_cutoff() -> None:
    """The optimum as cutoff: nothing is found, and the bound says that nothing is below it."""
    places = small_case(5, NodeSplit.ALIGNED)
    best = _found(places, [(2,)], 4).value
    assert best is not None
    found = _found(places, [(2,)], 4, best)
    assert (found.template, found.bound, found.complete) == (None, best, True)


@pytest.mark.parametrize("seed", range(4))
def test_stopped_at_once_the_bound_holds(seed: int) -> None:
    """Without any time there is a template all the same, and the bound is below the optimum."""
    places = small_case(seed, NodeSplit.ALIGNED)
    places = replace(places, finish=places.finish * 50)
    own = finals_of(places)[2]
    best = _found(places, own, 4).value
    stopped = _found(places, own, 4, stop=lambda: True)
    assert best is not None
    assert stopped.value is not None
    assert stopped.bound <= best <= stopped.value


@pytest.mark.parametrize("gap", [0.05, 0.3])
def test_bound_keeps_to_the_gap(gap: float) -> None:
    """The best found is within the gap of the bound, and the bound below the optimum."""
    places = small_case(7, NodeSplit.ANY)
    best = _found(places, [(1, 2), (2, 1)], 6).value
    found = _found(places, [(1, 2), (2, 1)], 6, gap=gap)
    assert best is not None
    assert found.value is not None
    assert found.complete
    assert found.value * (1 - gap) <= found.bound <= best
