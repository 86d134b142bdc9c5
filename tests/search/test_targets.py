"""What other launch targets may gain: a bound that holds, cheap, and the words that ask for it."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from formulations.instance import Instance
from formulations.instance.instance import Objective
from formulations.instance.load import parse_instance
from formulations.instance.targets import TARGETS, Target
from formulations.space.launch import runs, widened
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.report.text import outcome
from solver.result import OtherTarget
from solver.search import targets
from solver.search.driver import solve as solve_alone
from solver.search.feasibility_relaxation import relaxations
from solver.search.targets import seen_within, solve
from tests.seeds import one_each
from tests.small_instances import random_instance


@pytest.fixture(autouse=True)
def _time_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to look at every target on a machine that has other work."""
    monkeypatch.setattr(targets, "LEAST_S", 60.0)


def for_megatron(seed: int, **search: Any) -> Instance:
    """A tiny instance that Megatron-LM is to run."""
    fields = {"schedule": ("1f1b",), "micro_batches": "even", "zero": (0, 1), **search}
    return random_instance(seed).but(
        search={"target": "megatron", "recompute_per": "plan", **fields}
    )


@pytest.mark.parametrize("seed", one_each(range(60), 13))
def test_gain_of_another_target_is_a_bound(seed: int) -> None:
    """Solved with the words that are offered, no plan is better than the gain allows."""
    instance = for_megatron(seed)
    result = solve(instance)
    if result.objective is None:
        return
    assert {other.target for other in result.other_targets} <= {"flagscale", "torchtitan", "any"}
    offered = {other.search: other for other in result.other_targets}
    for target, added in targets._others(instance):
        wider = instance.but(search={"target": target, **added})
        best = solve_alone(wider, SolveOptions(time_limit_s=20)).objective
        other = offered.get(targets._line(target, added))
        gain, seen = (other.gain, other.found_gain) if other else (0.001, 0.0)
        assert gain is not None
        assert best is None or best >= result.objective * (1 - gain) * (1 - 1e-9)
        if seen:
            assert best is not None
            assert best <= result.objective * (1 - seen) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_wider_target_is_never_slower(seed: int) -> None:
    """All that Megatron-LM runs, `any` runs too."""
    instance = for_megatron(seed)
    free = instance.but(search={"target": "any", "recompute_per": "stage"})
    narrow, wide = solve_alone(instance).objective, solve_alone(free).objective
    assert narrow is None or (wide is not None and wide <= narrow)


@pytest.mark.parametrize(("target", "wider"), [*product(TARGETS, TARGETS)])
def test_bug_another_target_was_offered_an_empty_list(target: Target, wider: Target) -> None:
    """Where it runs nothing of what was listed, all that it runs."""
    lists: dict[str, tuple[object, ...]] = {
        "zero": (0, 1, 2, 3),
        "schedule": ("1f1b", "gpipe", "interleaved", "zb-h1"),
        "recompute": ("none", "selective", "full"),
    }
    for name, values in lists.items():
        for value in values:
            instance = random_instance(0).but(search={"target": target, **{name: (value,)}})
            for added in widened(instance, wider):
                assert all(added.values()), (name, value)


def test_bug_split_parameters_for_torchtitan_ended_in_a_traceback() -> None:
    """Of Megatron-LM and FlagScale, which split states alone, the plans were none at all."""
    text = """
name: crash
workload: {sizes: {hidden_size: 256, layers: 2, heads: 4, vocabulary_size: 500,
  rotary_positions: true}, sequence_length: 128, global_batch: 4}
cluster: {groups: [{name: a, gpu: A100-40, gpus_per_node: 2, nodes: 1}]}
search: {target: torchtitan, zero: FULL_SHARD}
"""
    result = solve(parse_instance(text, "x.yaml", Path()))
    assert result.plan is not None
    assert result.plan.config.zero == 3
    offered = {gain.target: gain.search for gain in result.other_targets}
    assert "zero: [0, 1]" in offered["flagscale"]


def test_words_that_are_offered() -> None:
    """Only what the target adds, and nothing that uneven micro-batches exclude."""
    instance = for_megatron(0, schedule=("1f1b", "interleaved"))
    assert widened(instance, "megatron") == []
    assert widened(instance, "flagscale") == [
        {"degrees": "per_group", "schedule": ("1f1b",), "recompute_per": "stage"}
    ]
    schedules = ("1f1b", "gpipe", "interleaved", "zb-h1")
    whole = {"schedule": schedules, "zero": (0, 1, 2, 3)}
    assert widened(instance, "torchtitan") == [whole]
    assert widened(instance, "any") == [
        {"micro_batches": "uneven", "recompute_per": "stage", "schedule": ("1f1b",)},
        {"degrees": "per_group", "recompute_per": "stage", **whole},
    ]


def test_words_for_a_target_that_is_not_wider() -> None:
    """Megatron-LM has chunks, which FlagScale lacks, but neither its degrees nor per stage."""
    fields = {"degrees": "per_group", "recompute_per": "stage"}
    instance = for_megatron(0).but(search={"target": "flagscale", **fields})
    (found,) = widened(instance, "megatron")
    assert found["schedule"] == ("1f1b", "interleaved")
    assert (found["degrees"], found["recompute_per"]) == ("uniform", "plan")


def test_nothing_is_beyond_the_widest_target() -> None:
    """No search is made for others."""
    assert solve(random_instance(0)).other_targets == ()


def test_bound_of_an_empty_plan_space_is_infinite() -> None:
    """And without time nothing is known."""
    instance = for_megatron(0)
    none = instance.but(limits={"max_step_time_s": 1e-9})
    assert seen_within(none, 10) == (float("inf"), None)


def test_money_is_compared_with_money() -> None:
    """A bound of the cost per step, where that is minimised."""
    instance = for_megatron(4).but(objective=Objective(minimize="cost_per_step"))
    result = solve(instance)
    assert result.objective
    assert all(0 < (other.gain or 0) < 1 for other in result.other_targets)


def test_remedies_name_the_target_that_can_run_them() -> None:
    """Uneven micro-batches are no remedy for Megatron-LM."""
    texts = dict(relaxations(for_megatron(0)))
    assert "search.micro_batches: uneven with search.target: any" in texts
    assert "search.zero: 3 with search.target: torchtitan" in texts
    assert all(runs(wider.search.target, wider.search) for wider in texts.values())


def test_interrupt_keeps_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while other targets are looked at loses nothing that was found."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("solver.search.targets.seen_within", interrupted)
    result = solve(for_megatron(0))
    assert result.plan is not None
    assert result.other_targets == ()


def test_time_limit_covers_the_look_at_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twentieth of it is kept for that."""
    limits: list[float | None] = []

    def recorded(instance: Instance, options: SolveOptions, *_: object) -> object:
        limits.append(options.time_limit_s)
        return solve_alone(instance, options)

    monkeypatch.setattr("solver.search.targets.solve_instance", recorded)
    solve(for_megatron(0), SolveOptions(time_limit_s=100))
    solve(random_instance(0), SolveOptions(time_limit_s=100))
    assert limits == [95, 100]


@pytest.mark.parametrize(
    ("gain", "found_gain", "text"),
    [
        (0.1, 0.0, "not yet ruled out that a plan is up to 10.0 % faster"),
        (0.1, 0.05, "5.0 % faster, at most 10.0 %"),
        (0.1, 0.1, "10.0 % faster"),
    ],
)
def test_bug_what_time_left_open_read_like_a_gain(
    gain: float, found_gain: float, text: str
) -> None:
    """What was seen, what cannot be, and what nobody had the time to rule out."""
    result = solve_alone(for_megatron(0))
    other = OtherTarget(target="any", gain=gain, found_gain=found_gain, search="{target: any}")
    document = build_document(result, SolveOptions())
    lines = [line for label, line in outcome(document, [other]) if label == "elsewhere"]
    assert lines == [f"any target: {text}, with search: {{target: any}}"]


def test_no_time_for_others_is_said() -> None:
    """They are not ruled out by silence."""
    result = solve(for_megatron(0), SolveOptions(time_limit_s=20))
    assert all(other.gain is not None for other in result.other_targets)
    late = tuple(targets._gains(result, list(targets._others(result.instance)), -1.0))
    document = build_document(result, SolveOptions())
    lines = [line for label, line in outcome(document, late) if label == "elsewhere"]
    names = "FlagScale, torchtitan, any target"
    assert lines == [f"not yet looked at for want of time: {names}; `explain` does"]
