"""Templates of least simulated step time, and bounds; test_generate has all templates beside."""

import pytest

from formulations.node_sharing import NodeSplit
from solver.interrupt import after
from solver.templates.step_time import best_template
from tests.recorded import Cases, digest, recorded
from tests.template_cases import finals_of, place_costs_of


@pytest.mark.parametrize("split", list(NodeSplit))
@recorded("template_step_time")
def test_templates_are_the_recorded_ones(split: NodeSplit) -> Cases:
    """With the optimum as cutoff nothing is found, and nothing is below it; gaps are kept.

    Without any time there is a template all the same, and the bound is below the optimum.
    """
    for seed in range(0, 12, 4):
        costs, m = place_costs_of(seed, split), 1 + seed % 9
        for nodes, finals in finals_of(costs.several).items():
            best = best_template(costs, finals, m, lambda: False)
            known = [best]
            if best.value is not None:
                cut = best_template(costs, finals, m, lambda: False, cutoff=best.value)
                assert (cut.template, cut.bound, cut.complete) == (None, best.value, True)
                above = best_template(costs, finals, m, lambda: False, cutoff=best.value + 1)
                assert above.value == best.value == best.bound
                for gap, asks in ((0.0, 0), (0.0, 5), (0.05, None), (0.3, None)):
                    stop = after(asks, lambda: False)
                    known.append(near := best_template(costs, finals, m, stop, gap=gap))
                    assert near.value is not None
                    assert near.bound <= best.value <= near.value
                    assert near.bound >= near.value * (1 - gap) or not near.complete
            told = [
                [each.value, each.bound, each.complete, digest(each.template)] for each in known
            ]
            yield f"{seed} {split} {nodes}", told
