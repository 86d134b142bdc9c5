"""What limits a step agrees with the simulator."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from solver.plan_figures import costs_of
from solver.report.critical import by_type, improvements, summary
from solver.simulate import simulate_step, step_time_ns
from tests.certified_cases import CASES
from tests.hand_made import document_of, results
from tests.recorded import Cases, recorded
from tests.report.shown import PLANS, plan
from tests.seeds import few_and_many


@pytest.mark.parametrize("seeds", few_and_many(range(25), 13))
def test_shares_and_gains_keep_within_the_step(seeds: Sequence[int]) -> None:
    """Nothing of the step is unexplained; 10 % off a kind of work saves at most 10 %."""
    for document in (*map(document_of, results(seeds)), CASES["split_backward"]()):
        step = simulate_step(costs_of(document))
        assert sum(part.time_ns for part in by_type(document, step)) == step.step_time_ns
        saved = [part for _, part in improvements(document, step)]
        assert saved == sorted(saved, reverse=True)
        assert all(0 < part <= 0.1 + 1e-6 for part in saved)


@recorded("critical")
def test_parts_and_gains_are_the_recorded_ones() -> Cases:
    for name in PLANS:
        document = plan(name)
        step = simulate_step(costs_of(document))
        told = [text for _, text in summary(document, step)]
        yield name, [*by_type(document, step), *improvements(document, step), *told]


def test_bug_faster_gpus_put_off_shorter_weight_gradients() -> None:
    """10 % less compute shortens both parts of a backward pass, so saves 10 % at most."""
    document = CASES["split_backward"]()
    costs = costs_of(document)
    saved = dict(improvements(document, simulate_step(costs)))
    assert all(0 < part <= 0.1 + 1e-6 for part in saved.values())
    faster = replace(
        costs,
        forward_ns=costs.forward_ns * 9 // 10,
        backward_ns=costs.backward_ns * 9 // 10,
        weight_ns=costs.weight_ns * 9 // 10,
    )
    assert max(saved.values()) <= 1 - step_time_ns(faster) / step_time_ns(costs) + 1e-9
