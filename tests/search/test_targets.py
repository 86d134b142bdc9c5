"""What other launch targets may gain: a bound that holds, cheap, and the words that ask for it."""

from itertools import product
from typing import Any

import pytest

from formulations.instance import Instance
from formulations.instance.targets import TARGETS
from formulations.space.launch import widened
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.report.text import outcome
from solver.result import OtherTarget
from solver.search import targets
from solver.search.driver import solve as solve_alone
from solver.search.targets import solve
from tests.conftest import present
from tests.seeds import one_each
from tests.small_instances import expert_instance, random_instance


@pytest.fixture(autouse=True)
def _time_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to look at every target on a machine that has other work."""
    monkeypatch.setattr(targets, "LEAST_S", 60.0)


def for_megatron(seed: int, **search: Any) -> Instance:
    fields = {"schedule": ("1f1b",), "micro_batches": "even", "zero": (0, 1), **search}
    instance = random_instance(seed).but(
        search={"target": "megatron", "recompute_per": "plan", **fields}
    )
    return instance.but(objective={"minimize": "cost_per_step"}) if seed % 3 == 1 else instance


@pytest.mark.parametrize("seed", one_each(range(60), 30))
def test_gain_of_another_target_is_a_bound(seed: int) -> None:
    """Solved with the words that are offered, no plan is better than the gain allows."""
    instance = for_megatron(seed)
    result = solve(instance)
    if result.objective is None:
        return
    assert {other.target for other in result.other_targets} <= {"flagscale", "torchtitan", "any"}
    offered = {other.search: other for other in result.other_targets}
    others = [(target, added) for target in TARGETS for added in widened(instance, target)]
    for target, added in others:
        wider = instance.but(search={"target": target, **added})
        best = solve_alone(wider, SolveOptions(time_limit_s=20)).objective
        other = offered.get(targets._line(target, added))
        gain, seen = (other.gain, other.found_gain) if other else (0.001, 0.0)
        assert gain is not None
        assert best is None or best >= result.objective * (1 - gain) * (1 - 1e-9)
        if seen:
            assert best is not None
            assert best <= result.objective * (1 - seen) * (1 + 1e-9)


def test_bug_another_target_was_offered_an_empty_list() -> None:
    """Where it runs nothing of what was listed, all that it runs."""
    lists: dict[str, tuple[object, ...]] = {
        "zero": (0, 1, 2, 3),
        "schedule": ("1f1b", "gpipe", "interleaved", "zb-h1"),
        "recompute": ("none", "selective", "full"),
    }
    choices = [(name, value) for name, values in lists.items() for value in values]
    for target, wider, (name, value) in product(TARGETS, TARGETS, choices):
        instance = random_instance(0).but(search={"target": target, name: (value,)})
        for added in widened(instance, wider):
            assert all(added.values()), (target, wider, name, value)


def test_bug_split_parameters_for_torchtitan_ended_in_a_traceback() -> None:
    """Of Megatron-LM and FlagScale, which split states alone, the plans were none at all."""
    chosen = {"target": "torchtitan", "zero": (3,), "schedule": ("1f1b",), "micro_batches": "even"}
    result = solve(expert_instance(1).but(search=chosen | {"expert_parallel": (1,)}))
    assert present(result.plan).config.zero == 3
    offered = {other.target: other.search for other in result.other_targets}
    assert "zero: [0, 1]" in offered["flagscale"]


def test_interrupt_keeps_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("solver.search.targets.seen_within", interrupted)
    result = solve(for_megatron(0))
    assert result.plan is not None
    assert result.other_targets == ()


@pytest.mark.parametrize(
    ("gain", "found_gain", "text"),
    [
        (0.1, 0.0, "not yet ruled out that a plan is up to 10.0 % faster"),
        (0.1, 0.05, "5.0 % faster, at most 10.0 %"),
        (0.1, 0.1, "10.0 % faster"),
        (None, 0.0, "not yet looked at for want of time: any target; `explain` does"),
    ],
)
def test_bug_what_time_left_open_read_like_a_gain(
    gain: float | None, found_gain: float, text: str
) -> None:
    """What was seen, what cannot be, and what nobody had the time to rule out."""
    result = solve_alone(for_megatron(0))
    late = list(targets._gains(result, [("any", {})], -1.0))
    seen = OtherTarget(target="any", gain=gain, found_gain=found_gain, search="{target: any}")
    lines = outcome(build_document(result, SolveOptions()), late if gain is None else [seen])
    expected = text if gain is None else f"any target: {text}, with search: {{target: any}}"
    assert [line for label, line in lines if label == "elsewhere"] == [expected]
