"""What other launch targets may gain: a bound that holds, cheap, and the words that ask for it."""

from typing import Any

import pytest

from formulations.instance import Instance
from formulations.instance.instance import Objective
from formulations.launch import runs, widened
from solver.options import SolveOptions
from solver.search.driver import lower_bound
from solver.search.driver import solve as solve_alone
from solver.search.remedies import changed, relaxations
from solver.search.targets import solve
from tests.seeds import one_each
from tests.small_instances import random_instance


def for_megatron(seed: int, **search: Any) -> Instance:
    """A tiny instance that Megatron-LM is to run."""
    fields = {"schedule": ("1f1b",), "micro_batches": "even", "zero": (0, 1), **search}
    return changed(
        random_instance(seed), "search", target="megatron", recompute_per="plan", **fields
    )


@pytest.mark.parametrize("seed", one_each(range(60), 6))
def test_gain_of_another_target_is_a_bound(seed: int) -> None:
    """Solved with the words that are offered, no plan is better than the gain allows."""
    instance = for_megatron(seed)
    result = solve(instance)
    if result.objective is None:
        return
    assert {other.target for other in result.other_targets} <= {"flagscale", "torchtitan", "any"}
    offered = {other.target: other.gain for other in result.other_targets}
    for target in ("flagscale", "torchtitan", "any"):
        wider = changed(instance, "search", target=target, **widened(instance, target))
        best = solve_alone(wider, SolveOptions(time_limit_s=20)).objective
        assert best is None or best >= result.objective * (1 - offered.get(target, 0.001)) * (
            1 - 1e-9
        )


@pytest.mark.parametrize("seed", range(3))
def test_wider_target_is_never_slower(seed: int) -> None:
    """All that Megatron-LM runs, `any` runs too."""
    instance = for_megatron(seed)
    free = changed(instance, "search", target="any", recompute_per="stage")
    narrow, wide = solve_alone(instance).objective, solve_alone(free).objective
    assert narrow is None or (wide is not None and wide <= narrow)


def test_words_that_are_offered() -> None:
    """Only what the target adds, and nothing that uneven micro-batches exclude."""
    instance = for_megatron(0, schedule=("1f1b", "interleaved"))
    assert widened(instance, "megatron") == {}
    assert widened(instance, "flagscale") == {
        "degrees": "per_group",
        "schedule": ("1f1b",),
        "recompute_per": "stage",
    }
    assert widened(instance, "torchtitan") == {
        "schedule": ("1f1b", "gpipe", "interleaved", "zb-h1"),
        "zero": (0, 1, 2, 3),
    }
    assert widened(instance, "any") == {
        "micro_batches": "uneven",
        "recompute_per": "stage",
        "schedule": ("1f1b",),
    }


def test_words_for_a_target_that_is_not_wider() -> None:
    """Megatron-LM has chunks, which FlagScale lacks, but neither its degrees nor per stage."""
    fields = {"degrees": "per_group", "recompute_per": "stage"}
    instance = changed(for_megatron(0), "search", target="flagscale", **fields)
    found = widened(instance, "megatron")
    assert found["schedule"] == ("1f1b", "interleaved")
    assert (found["degrees"], found["recompute_per"]) == ("uniform", "plan")


def test_nothing_is_beyond_the_widest_target() -> None:
    """No search is made for others."""
    assert solve(random_instance(0)).other_targets == ()


def test_bound_of_an_empty_plan_space_is_infinite() -> None:
    """And without time nothing is known."""
    instance = for_megatron(0)
    none = changed(instance, "limits", max_step_time_s=1e-9)
    assert lower_bound(none, 10) == float("inf")


def test_money_is_compared_with_money() -> None:
    """A bound of the cost per step, where that is minimised."""
    instance = for_megatron(4).model_copy(update={"objective": Objective(minimize="cost_per_step")})
    result = solve(instance)
    assert result.objective
    assert all(0 < other.gain < 1 for other in result.other_targets)


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

    monkeypatch.setattr("solver.search.targets.lower_bound", interrupted)
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
