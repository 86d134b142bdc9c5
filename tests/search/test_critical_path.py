"""The cut loop: it ends with the brute-force optimum, or with no claim that is not true."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import Given
from formulations.errors import InstanceError
from formulations.instance.search import ScheduleName
from formulations.models.model import Model
from formulations.models.step_time import OneConfig
from solver.backends.outcome import Outcome
from solver.options import SolveOptions
from solver.result import Status, Termination
from solver.search.critical_path import broken_rule
from solver.search.engines import Family, ModelEngine, model_engine
from solver.search.paths import CutPool
from tests import brute_force
from tests.brute_force import all_decisions
from tests.loop_checks import (
    FREE,
    Free,
    feasible,
    finds_the_best,
    judge,
    limited,
    need_bytes,
    random_decisions,
    solve_config,
)
from tests.random_configs import crowded_instance, random_config, random_tables, slower
from tests.reference_pipelines import reference_cases, solves_reference
from tests.seeds import few_and_many
from tests.small_instances import random_instance

CPSAT, MILP = model_engine("cpsat"), model_engine("milp")
SEEDS = few_and_many(range(40), 6)
both = pytest.mark.parametrize("family", ["cpsat", "milp"])

# Optima


@both
@pytest.mark.parametrize("free", FREE)
@pytest.mark.parametrize("seeds", few_and_many(range(240), 48))
def test_model_equals_brute_force(seeds: Sequence[int], free: Free, family: Family) -> None:
    """The best split, node order or shares, the rest given; and the best of all at once."""
    for seed in seeds:
        assert finds_the_best(model_engine(family), random_tables(seed), free, seed), seed


@both
@pytest.mark.parametrize("schedule", ["zb-h1", "interleaved"])
@pytest.mark.parametrize("free", FREE)
@pytest.mark.parametrize("seeds", few_and_many(range(70), 35))
def test_weight_gradients_and_chunks_equal_brute_force(
    seeds: Sequence[int], free: Free, schedule: ScheduleName, family: Family
) -> None:
    """The same for backwards that are split, and for several chunks per device; zones or not."""
    for seed in seeds:
        tables = random_tables(seed, seed % 20 == 0, schedule)
        assert finds_the_best(model_engine(family), tables, free, seed), seed


@both
@pytest.mark.parametrize("free", ["order", "all"])
@pytest.mark.parametrize("seeds", few_and_many(range(120), 40))
def test_model_equals_brute_force_over_zones(
    seeds: Sequence[int], free: Free, family: Family
) -> None:
    """The same where nodes stand in several zones."""
    for seed in seeds:
        tables = random_tables(seed, zones=True)
        assert finds_the_best(model_engine(family), tables, free, seed), seed


@pytest.mark.parametrize(("seed", "zones"), [(346, False), (73, True), (157, True)])
def test_bug_highs_presolve_returned_plans_that_are_not_optimal(seed: int, zones: bool) -> None:
    """Presolve of HiGHS 1.14.0 missed these optima (ERGO-Code/HiGHS#2957); it is off."""
    assert finds_the_best(MILP, random_tables(seed, zones=zones), "all", seed)


def test_bug_memory_in_large_units_lost_an_optimum_of_several_chunks() -> None:
    """HiGHS called the model infeasible when rows of memory were tiny beside those of time."""
    assert finds_the_best(MILP, random_tables(16, True, "interleaved"), "all", 16)


def test_bug_steps_above_2_s_were_infeasible() -> None:
    """Alternatives above 2^31 ns: CP-SAT 9.15 took bounds of one that holds for bounds of all."""
    tables = random_tables(71)
    outcome = solve_config(tables, CPSAT)
    assert outcome.step_time_ns == brute_force.optimum_ns(tables) == 56_335_002_434


def test_reference_pipelines(reference: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optima that others proved, up to 8 stages, by brute force or enumeration."""
    cases = [case for case in reference_cases(reference) if len(case["stage_slowness"]) <= 8]
    assert len(cases) == 16
    for case in cases:
        with monkeypatch.context() as patch:
            assert solves_reference(CPSAT, case, patch), case["name"]


@pytest.mark.slow
def test_deep_reference_pipelines(reference: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, 16 stages; the enumeration solves those of 24 and 32, too (`bench splits`)."""
    cases = [case for case in reference_cases(reference) if len(case["stage_slowness"]) == 16]
    assert len(cases) == 4
    for case in cases:
        with monkeypatch.context() as patch:
            assert solves_reference(CPSAT, case, patch), case["name"]


# Cutoffs, limits, incumbents, bounds


@both
@pytest.mark.parametrize("seeds", few_and_many(range(0, 40, 2), 7))
def test_status_at_the_optimum_and_a_nanosecond_off(seeds: Sequence[int], family: Family) -> None:
    """Cut off at the optimum it is bounded, 1 ns above solved; (4) with budgets it is alike.

    A budget in money is one in time: a step of t ns on nodes of P USD/h costs t P / 3.6e12 USD.
    """
    engine = model_engine(family)
    for tables, best in feasible(seeds):
        outcome = solve_config(tables, engine, cutoff_ns=best)
        assert (outcome.status, outcome.plan, outcome.bound_ns) == ("bounded", None, best)
        used = zip(tables.config.nodes_used, tables.instance.cluster.groups, strict=True)
        usd = sum(n * group.price_usd_per_hour for n, group in used) / 3.6e12
        for solved in (
            solve_config(tables, engine, cutoff_ns=best + 1),
            solve_config(limited(tables, max_step_time_s=best / 1e9), engine),
            solve_config(limited(tables, max_cost_usd_per_step=best * usd), engine),
        ):
            assert (solved.status, solved.step_time_ns) == ("optimal", best)
        for tight in (
            limited(tables, max_step_time_s=(best - 1) / 1e9),
            limited(tables, max_cost_usd_per_step=(best - 1) * usd),
        ):
            assert solve_config(tight, engine).status == "infeasible"


@pytest.mark.parametrize("seeds", SEEDS)
def test_incumbents_are_proved_or_improved(seeds: Sequence[int]) -> None:
    """Given the best plan, the loop proves it; given any other, it reaches that one.

    A plan that meets a bound proved elsewhere needs no round, and without time it is kept.
    """
    for tables, best in feasible(seeds):
        plan = solve_config(tables, CPSAT).plan
        outcome = solve_config(tables, CPSAT, incumbent=plan)
        assert (outcome.status, outcome.plan, outcome.bound_ns) == ("optimal", plan, best)
        outcome = solve_config(tables, CPSAT, incumbent=plan, bound_ns=best)
        assert (outcome.status, outcome.rounds) == ("optimal", 0)
        outcome = solve_config(tables, CPSAT, incumbent=plan, time_limit_s=0.0)
        assert (outcome.status, outcome.step_time_ns, outcome.trouble) == ("feasible", best, None)
        assert (outcome.bound_ns or 0) <= best
        made = random_decisions(tables, 1)
        if judge(tables, made) is not None:
            outcome = solve_config(tables, CPSAT, incumbent=made.plan(tables))
            assert (outcome.status, outcome.step_time_ns) == ("optimal", best)


def test_no_time_and_no_incumbent_is_unknown() -> None:
    """Out of time with nothing in hand is neither infeasible nor bounded."""
    outcome = solve_config(random_tables(0), CPSAT, time_limit_s=0.0)
    assert (outcome.status, outcome.plan) == ("unknown", None)


@both
def test_same_seed_same_plan(family: Family) -> None:
    """One worker and one seed give the same plan."""
    for tables, _ in feasible(range(0, 40, 20)):
        first, second = (solve_config(tables, model_engine(family), seed=3) for _ in range(2))
        assert first.plan == second.plan
        assert (first.rounds, first.num_cuts) == (second.rounds, second.num_cuts)


@pytest.mark.parametrize("seeds", few_and_many(range(60), 6))
def test_pool_changes_no_optimum(seeds: Sequence[int]) -> None:
    """Cuts from other configurations of the same schedule and stages hold."""
    pool = CutPool()
    for tables, best in feasible(seeds):
        assert solve_config(tables, CPSAT, pool=pool).step_time_ns == best


# Steps beyond the safe range of floats


def lasting(seed: int, factor: int) -> CostTables | None:
    """Tables of `random_tables`, their steps so many times as long; None if these are too long."""
    for number in range(seed, seed + 50_000, 1000):
        instance = crowded_instance(number) if seed % 4 == 0 else random_instance(number)
        if config := random_config(instance, seed):
            with suppress(InstanceError):
                return build_tables(slower(instance, factor), config)
            return None
    raise AssertionError("fifty instances without a configuration")


def test_bug_highs_called_models_of_hours_infeasible() -> None:
    """In units of a millisecond doubles do not hold a step of an hour; one of 37 hours in none."""
    hour, days = lasting(59, 100_000), lasting(12, 167_235)
    assert hour is not None
    assert days is not None
    best = 3_814_117_153_009
    assert best == brute_force.optimum_ns(hour)
    outcome = solve_config(hour, MILP, cutoff_ns=best + 1)
    assert (outcome.status, outcome.step_time_ns) == ("optimal", best)
    outcome = solve_config(days, MILP)
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
        outcome = solve_config(tables, MILP, cutoff_ns=best + 1)
        allowed = ("unknown", "feasible") if outcome.trouble else ("optimal",)
        assert outcome.status in allowed, (seed, factor)
        assert outcome.step_time_ns in (None, best), (seed, factor)
        assert outcome.bound_ns is not None, (seed, factor)
        assert outcome.bound_ns <= best, (seed, factor)


# Engines that lie

Tamper = Callable[[Any, Outcome], Outcome]


def tampered(change: Tamper, engine: ModelEngine = MILP) -> ModelEngine:
    """An engine, but for a change of every answer that has a solution."""

    def run(model: Any, options: SolveOptions) -> Outcome:
        outcome = engine.run(model, options)
        return outcome if outcome.values is None else change(model, outcome)

    return replace(engine, run=run)


def literals(model: Any) -> list[int]:
    """Positions of the decisions among the variables."""
    kinds = ("config", "begun", "start", "reached")
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
    values = [1 if n in own else x for n, x in enumerate(outcome.values or ())]
    return replace(outcome, values=values)


def too_high_a_bound(model: Any, outcome: Outcome) -> Outcome:
    """A bound that its own solution refutes."""
    return replace(outcome, bound=10**15)


def free_choice(seeds: range) -> list[tuple[CostTables, int]]:
    """Random tables of two groups with a plan, and its best step time."""
    return [
        (tables, best)
        for tables, best in feasible(seeds)
        if tables.config.pp > 1 and sum(count > 0 for count in tables.config.nodes_used) == 2
    ]


def test_solution_within_the_tolerances_is_judged_in_integers() -> None:
    """Literals and times that are slightly off lead to the same optimum and proof."""
    for tables, best in free_choice(range(0, 40, 8)):
        outcome = solve_config(tables, tampered(slightly_off))
        assert (outcome.status, outcome.step_time_ns, outcome.bound_ns) == ("optimal", best, best)


@pytest.mark.parametrize("change", [fractional, all_ones, too_high_a_bound])
def test_numerical_trouble_is_said_and_proves_nothing(change: Tamper) -> None:
    """An answer that cannot be ends the loop; neither its plan nor its bound is believed.

    The incumbent stays known.
    """
    for tables, best in free_choice(range(0, 40, 8)):
        outcome = solve_config(tables, tampered(change))
        assert (outcome.status, outcome.plan) == ("unknown", None)
        assert (outcome.trouble or "").startswith("numerical trouble: the solution ")
        assert outcome.bound_ns is not None
        assert outcome.bound_ns <= best
        plan = solve_config(tables, MILP).plan
        outcome = solve_config(tables, tampered(change), incumbent=plan, cutoff_ns=best + 9)
        assert (outcome.status, outcome.step_time_ns) in (("feasible", best), ("optimal", best))
        assert (outcome.trouble is None) == (outcome.status == "optimal")


def test_bug_an_engine_in_integers_that_lies_was_a_traceback() -> None:
    """A bound above the engine's own plan: all that it said is dropped, and told."""
    tables, best = next(iter(feasible(range(40))))
    outcome = solve_config(tables, tampered(too_high_a_bound, CPSAT), bound_ns=best - 1)
    assert (outcome.status, outcome.bound_ns) == ("unknown", best - 1)
    assert (outcome.trouble or "").startswith("numerical trouble: the solution is faster than")


def test_bug_bounds_said_before_trouble_were_kept() -> None:
    """HiGHS has proved 295 s of steps of 159 s; no bound of an engine in trouble is believed."""
    tables, best = free_choice(range(0, 40, 4))[0]
    first = iter([True])

    def too_high(model: Any, outcome: Outcome) -> Outcome:
        told = replace(outcome, status=Status.UNKNOWN, values=None, bound=best + 9)
        return told if next(first, False) else outcome

    outcome = solve_config(tables, tampered(too_high), bound_ns=best - 1)
    assert outcome.bound_ns == best - 1
    assert outcome.trouble is not None


def test_odd_end_is_said_and_proves_nothing() -> None:
    """An end that is neither a solution nor a proof nor a limit: the loop passes on the word."""

    def odd_end(model: Any, outcome: Outcome) -> Outcome:
        ended = Termination.UNFINISHED
        return Outcome(Status.UNKNOWN, ended, None, None, 0.0, None, "HiGHS: Unknown")

    tables, best = free_choice(range(0, 40, 2))[0]
    outcome = solve_config(tables, tampered(odd_end), bound_ns=best - 1)
    assert (outcome.status, outcome.plan, outcome.bound_ns) == ("unknown", None, best - 1)
    assert outcome.trouble == "numerical trouble: HiGHS: Unknown"


def test_solution_out_of_memory_is_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solution whose stages do not fit the GPUs is trouble, not a plan."""
    roomy, _ = free_choice(range(0, 40, 2))[0]
    small = replace(roomy, capacity_bytes=0 * roomy.capacity_bytes)

    def blind(model: Model, tables: CostTables, given: Given) -> OneConfig:
        """Takes the GPUs for as large as they were."""
        return OneConfig(model, replace(tables, capacity_bytes=roomy.capacity_bytes), given)

    monkeypatch.setattr("formulations.models.degrees.OneConfig", blind)
    outcome = solve_config(small, MILP)
    assert (outcome.status, outcome.plan) == ("unknown", None)
    assert "do not fit in memory" in (outcome.trouble or "")


def test_plan_that_the_engine_wrongly_prefers_is_excluded() -> None:
    """An engine blind to the limit on step time proposes judged plans again; all are left out."""
    tables, best = free_choice(range(0, 40, 2))[0]

    def run(model: Any, options: SolveOptions) -> Outcome:
        for name in [name for name in model._constraints if name.startswith("n4_")]:
            model._constraints[name].expr.clear()
        return replace(MILP.run(model, options), bound=None)

    outcome = solve_config(tables, replace(MILP, run=run))
    assert (outcome.status, outcome.step_time_ns, outcome.bound_ns) == ("optimal", best, best)
    plans = [one for one in all_decisions(tables) if judge(tables, one) is not None]
    assert outcome.rounds > len(plans)


# Rules that every plan of an engine is held against, each just inside and just outside


def several() -> CostTables:
    """Tables of two groups, several stages and replicas, uneven shares, room for everything."""
    tables = next(
        tables
        for tables in map(random_tables, range(0, 400, 4))
        if tables.config.nodes_used == (2, 1) and tables.config.pp > 1 and tables.config.dp > 1
    )
    return replace(tables, capacity_bytes=np.full(2, 1 << 60))


def test_every_plan_passes() -> None:
    """Orders, splits and shares of the plan space break no rule, unless memory is short."""
    for seed in range(0, 40, 6):
        tables = random_tables(seed)
        for decisions in all_decisions(tables):
            fits = judge(tables, decisions) is not None
            assert (broken_rule(tables, decisions) is None) == fits


def test_what_breaks_a_rule_is_named() -> None:
    """Nodes of an order, boundaries of stages, shares of micro-batches: fewer, more, others.

    The order has two nodes of group 0 and one of group 1; no stage is empty or missing, all layers
    are on one; every replica has a micro-batch, and all together have all.
    """
    tables = several()
    made = next(all_decisions(tables))
    p, layers = tables.config.pp, tables.num_layers
    total, dp = tables.num_micro_batches, tables.config.dp
    orders = [(0, 1), (0, 0, 0), (0, 0, 1, 1), (0, 1, 1)]
    boundaries = [
        (0, *[1] * (p - 1), 1),
        (0, *[0] * (p - 1), layers),
        (1, *made.boundaries[1:]),
        made.boundaries[:-1],
        (0, *[layers] * (p - 1), layers),
    ]
    shares = [
        (total, *[0] * (dp - 1)),
        (total + 1, *made.micro_batches[1:]),
        made.micro_batches[1:],
    ]
    for order in orders:
        assert "node order" in (broken_rule(tables, replace(made, order=order)) or "")
    for wrong in boundaries:
        assert "boundaries" in (broken_rule(tables, replace(made, boundaries=wrong)) or "")
    for wrong in shares:
        assert "shares" in (broken_rule(tables, replace(made, micro_batches=wrong)) or "")


def test_a_stage_needs_a_block_and_even_shares_are_equal() -> None:
    """A stage of the embedding alone is none, nor are uneven shares, where not allowed."""
    tables = several()
    made = next(all_decisions(tables))
    alone = replace(made, boundaries=(0, *range(1, tables.config.pp), tables.num_layers))
    for allowed in (True, False):
        instance = tables.instance.but(search={"embedding_only_stages": allowed})
        assert (broken_rule(replace(tables, instance=instance), alone) is None) == allowed
    even = replace(tables, instance=tables.instance.but(search={"micro_batches": "even"}))
    for made in all_decisions(tables):
        assert (broken_rule(even, made) is None) == (len(set(made.micro_batches)) == 1)


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (-1, False)])
def test_memory_to_the_byte(spare: int, fits: bool) -> None:
    """The largest need of a plan fits a GPU of that size, not one of a byte less."""
    tables = several()
    for made in list(all_decisions(tables))[::7]:
        need = need_bytes(tables, made.boundaries, made.micro_batches)
        tight = replace(tables, capacity_bytes=np.full(2, need + spare))
        assert (broken_rule(tight, made) is None) == fits
