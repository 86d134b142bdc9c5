"""Templates of least simulated step time: against all templates, and bounds."""

from dataclasses import replace

import pytest

from bench.oobleck_templates import step_time
from formulations.instance.search import ScheduleName
from formulations.node_sharing import NodeSplit
from solver.graph.places import PlaceCosts, Places
from solver.interrupt import Stop
from solver.templates.step_time import TemplateOutcome, best_template
from tests.conftest import present
from tests.seeds import one_each
from tests.template_cases import all_templates, finals_of, fits, small_case


def _best(
    places: Places,
    nodes: int,
    m: int,
    stop: Stop = lambda: False,
    cutoff: int | None = None,
    gap: float = 0.0,
) -> TemplateOutcome:
    """What a search for templates of so many nodes finds."""
    costs, finals = PlaceCosts(places, places), finals_of(places)[nodes]
    return best_template(costs, finals, m, stop, cutoff=cutoff, gap=gap)


@pytest.mark.parametrize("optimizer", [1, 50])
@pytest.mark.parametrize("split", list(NodeSplit))
@pytest.mark.parametrize("seed", one_each(range(30), 30))
def test_optimum_is_that_of_all_templates(seed: int, split: NodeSplit, optimizer: int) -> None:
    """Transfers, memory, tied embeddings, blocking sends, GPipe, one and two node groups.

    With optimizers as long as a micro-batch, and with long ones.
    """
    several = small_case(seed, split, None if seed % 2 else 3)
    schedule: ScheduleName = "gpipe" if seed % 7 == 3 else "1f1b"
    several = replace(several, schedule=schedule, finish=several.finish * optimizer)
    costs, m = PlaceCosts(several, several), 1 + seed % 9
    for n in finals_of(several):
        templates = [t for t in all_templates(several, n) if fits(costs, t, m)]
        best = _best(several, n, m)
        assert best.complete
        assert best.value == min((step_time(costs, t, m) for t in templates), default=None)
        if best.template is not None:
            assert best.bound == best.value
            assert step_time(costs, best.template, m) == best.value


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_out_is_bounded(seed: int) -> None:
    """Without any time there is a template all the same, and the bound is below the optimum.

    With the optimum as cutoff nothing is found, and nothing is below it.
    """
    places = small_case(seed, NodeSplit.ALIGNED)
    places = replace(places, finish=places.finish * 50)
    best, stopped = present(_best(places, 2, 4).value), _best(places, 2, 4, stop=lambda: True)
    assert stopped.bound <= best <= present(stopped.value)
    cut = _best(places, 2, 4, cutoff=best)
    assert (cut.template, cut.bound, cut.complete) == (None, best, True)


@pytest.mark.parametrize("gap", [0.05, 0.3])
def test_bound_keeps_to_the_gap(gap: float) -> None:
    places = small_case(7, NodeSplit.ANY)
    best, near = present(_best(places, 3, 6).value), _best(places, 3, 6, gap=gap)
    assert near.complete
    assert present(near.value) * (1 - gap) <= near.bound <= best
