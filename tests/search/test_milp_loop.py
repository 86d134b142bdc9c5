"""The cut loop with MILP models: repaired answers of HiGHS, and trouble, said."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import Given
from formulations.errors import InstanceError
from formulations.models.model import Model
from formulations.models.step_time import OneShape
from solver.backends.outcome import Outcome
from solver.options import SolveOptions
from solver.result import Status, Termination
from solver.search.engines import ModelEngine, model_engine
from tests import brute_force
from tests.brute_force import all_decisions
from tests.loop_checks import feasible, finds_the_best, judge, solve_shape
from tests.random_shapes import crowded_instance, random_shape, random_tables, slower
from tests.seeds import few_and_many
from tests.small_instances import random_instance

ENGINE = model_engine("milp")


@pytest.mark.parametrize(("seed", "zones"), [(346, False), (73, True), (157, True)])
def test_bug_highs_presolve_returned_plans_that_are_not_optimal(seed: int, zones: bool) -> None:
    """Presolve of HiGHS 1.14.0 missed these optima (ERGO-Code/HiGHS#2957); it is off."""
    assert finds_the_best(ENGINE, random_tables(seed, zones=zones), "all", seed)


def test_bug_memory_in_large_units_lost_an_optimum_of_several_chunks() -> None:
    """HiGHS called the model infeasible when rows of memory were tiny beside those of time."""
    assert finds_the_best(ENGINE, random_tables(16, True, "interleaved"), "all", 16)


def lasting(seed: int, factor: int) -> CostTables | None:
    """Tables of `random_tables`, their steps so many times as long; None if these are too long."""
    for number in range(seed, seed + 50_000, 1000):
        instance = crowded_instance(number) if seed % 4 == 0 else random_instance(number)
        if shape := random_shape(instance, seed):
            with suppress(InstanceError):
                return build_tables(slower(instance, factor), shape)
            return None
    raise AssertionError("fifty instances without a shape")


def test_bug_highs_called_models_of_hours_infeasible() -> None:
    """In units of a millisecond doubles do not hold a step of an hour; one of 37 hours in none."""
    hour, days = lasting(59, 100_000), lasting(12, 167_235)
    assert hour is not None
    assert days is not None
    best = 3_814_117_153_009
    assert best == brute_force.optimum_ns(hour)
    outcome = solve_shape(hour, ENGINE, cutoff_ns=best + 1)
    assert (outcome.status, outcome.step_time_ns) == ("optimal", best)
    outcome = solve_shape(days, ENGINE)
    assert (outcome.status, outcome.plan, outcome.bound_ns) == ("unknown", None, 0)
    assert "rounding may move a row" in (outcome.trouble or "")


@pytest.mark.parametrize("seeds", few_and_many(range(60), 30))
def test_steps_however_long_are_proved_or_stay_open(seeds: Sequence[int]) -> None:
    """From seconds to days the loop ends with the brute-force optimum, or says why it does not."""
    for seed, factor in product(seeds, (30, 3_000, 100_000)):
        tables = lasting(seed, factor)
        best = None if tables is None else brute_force.optimum_ns(tables)
        if tables is None or best is None:
            continue
        outcome = solve_shape(tables, ENGINE, cutoff_ns=best + 1)
        allowed = ("unknown", "feasible") if outcome.trouble else ("optimal",)
        assert outcome.status in allowed, (seed, factor)
        assert outcome.step_time_ns in (None, best), (seed, factor)
        assert outcome.bound_ns is not None, (seed, factor)
        assert outcome.bound_ns <= best, (seed, factor)


Tamper = Callable[[Any, Outcome], Outcome]


def tampered(change: Tamper) -> ModelEngine:
    """HiGHS, but for a change of every answer that has a solution."""

    def run(model: Any, options: SolveOptions) -> Outcome:
        outcome = ENGINE.run(model, options)
        return outcome if outcome.values is None else change(model, outcome)

    return replace(ENGINE, run=run)


def literals(model: Any) -> list[int]:
    """Positions of the decisions among the variables."""
    kinds = ("shape", "begun", "start", "reached")
    return [n for n, v in enumerate(model.variables()) if v.name.startswith(kinds)]


def slightly_off(model: Any, outcome: Outcome) -> Outcome:
    """Every literal off by 1e-7, as an engine's tolerance allows, and times by a microsecond."""
    own = set(literals(model))
    values = [x + (1e-7 if n in own else 1e3) for n, x in enumerate(outcome.values or ())]
    return replace(outcome, values=values)


def fractional(model: Any, outcome: Outcome) -> Outcome:
    """One literal at one half."""
    first = literals(model)[0]
    values = list(outcome.values or ())
    return replace(outcome, values=[*values[:first], 0.5, *values[first + 1 :]])


def all_ones(model: Any, outcome: Outcome) -> Outcome:
    """Every literal 1: nodes that stand in each other, or stages without layers."""
    own = set(literals(model))
    return replace(
        outcome, values=[1 if n in own else x for n, x in enumerate(outcome.values or ())]
    )


def too_high_a_bound(model: Any, outcome: Outcome) -> Outcome:
    """A bound that its own solution refutes."""
    return replace(outcome, bound=10**15)


def free_choice(seeds: range) -> list[tuple[CostTables, int]]:
    """Random tables of two groups with a plan, and its best step time."""
    return [
        (tables, best)
        for tables, best in feasible(seeds)
        if tables.shape.pp > 1 and sum(count > 0 for count in tables.shape.nodes_used) == 2
    ]


def test_solution_within_the_tolerances_is_judged_in_integers() -> None:
    """Literals and times that are slightly off lead to the same optimum and proof."""
    for tables, best in free_choice(range(0, 40, 4)):
        outcome = solve_shape(tables, tampered(slightly_off))
        assert (outcome.status, outcome.step_time_ns, outcome.bound_ns) == ("optimal", best, best)


@pytest.mark.parametrize("change", [fractional, all_ones, too_high_a_bound])
def test_numerical_trouble_is_said_and_proves_nothing(change: Tamper) -> None:
    """An answer that cannot be ends the loop; neither its plan nor its bound is believed."""
    for tables, best in free_choice(range(0, 40, 4)):
        outcome = solve_shape(tables, tampered(change))
        assert (outcome.status, outcome.plan) == ("unknown", None)
        assert outcome.trouble is not None
        assert outcome.trouble.startswith("numerical trouble: the solution ")
        assert outcome.bound_ns is not None
        assert outcome.bound_ns <= best


def test_bug_bounds_said_before_trouble_were_kept() -> None:
    """HiGHS has proved 295 s of steps of 159 s; no bound of an engine in trouble is believed."""
    tables, best = free_choice(range(0, 40, 4))[0]
    first = iter([True])

    def too_high(model: Any, outcome: Outcome) -> Outcome:
        told = replace(outcome, status=Status.UNKNOWN, values=None, bound=best + 9)
        return told if next(first, False) else outcome

    outcome = solve_shape(tables, tampered(too_high), bound_ns=best - 1)
    assert outcome.bound_ns == best - 1
    assert outcome.trouble is not None


def odd_end(model: Any, outcome: Outcome) -> Outcome:
    """An end that is neither a solution nor a proof nor a limit."""
    return Outcome(Status.UNKNOWN, Termination.UNFINISHED, None, None, 0.0, None, "HiGHS: Unknown")


def test_odd_end_is_said_and_proves_nothing() -> None:
    """The loop passes on what the engine said."""
    tables, best = free_choice(range(0, 40, 2))[0]
    outcome = solve_shape(tables, tampered(odd_end), bound_ns=best - 1)
    assert (outcome.status, outcome.plan, outcome.bound_ns) == ("unknown", None, best - 1)
    assert outcome.trouble == "numerical trouble: HiGHS: Unknown"


def test_trouble_keeps_the_incumbent() -> None:
    """What was known before the trouble stays known."""
    for tables, best in free_choice(range(0, 40, 4)):
        plan = solve_shape(tables, ENGINE).plan
        outcome = solve_shape(tables, tampered(fractional), incumbent=plan, cutoff_ns=best + 9)
        assert (outcome.status, outcome.step_time_ns) in (("feasible", best), ("optimal", best))
        assert (outcome.trouble is None) == (outcome.status == "optimal")


def test_solution_out_of_memory_is_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solution whose stages do not fit the GPUs is trouble, not a plan."""
    roomy, _ = free_choice(range(0, 40, 2))[0]
    small = replace(roomy, capacity_bytes=0 * roomy.capacity_bytes)

    def blind(model: Model, tables: CostTables, given: Given) -> OneShape:
        """Takes the GPUs for as large as they were."""
        return OneShape(model, replace(tables, capacity_bytes=roomy.capacity_bytes), given)

    monkeypatch.setattr("formulations.models.degrees.OneShape", blind)
    outcome = solve_shape(small, ENGINE)
    assert (outcome.status, outcome.plan) == ("unknown", None)
    assert "do not fit in memory" in (outcome.trouble or "")


def test_plan_that_the_engine_wrongly_prefers_is_excluded() -> None:
    """An engine blind to the limit on step time proposes judged plans again; all are left out."""
    tables, best = free_choice(range(0, 40, 2))[0]

    def run(model: Any, options: SolveOptions) -> Outcome:
        for name in [name for name in model._constraints if name.startswith("n4_")]:
            model._constraints[name].expr.clear()
        return replace(ENGINE.run(model, options), bound=None)

    outcome = solve_shape(tables, replace(ENGINE, run=run))
    assert (outcome.status, outcome.step_time_ns, outcome.bound_ns) == ("optimal", best, best)
    plans = [one for one in all_decisions(tables) if judge(tables, one) is not None]
    assert outcome.rounds > len(plans)
