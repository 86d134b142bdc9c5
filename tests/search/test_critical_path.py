"""The cut loop: it ends with the brute-force optimum, or with no claim that is not true."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from formulations.costs.tables import CostTables, build_tables
from formulations.instance.search import ScheduleName
from formulations.plan import Configuration
from solver.backends.outcome import Outcome
from solver.options import SolveOptions
from solver.result import Status, Termination
from solver.search.critical_path import CutLoop, Family, ModelEngine, broken_rule, model_engine
from solver.search.paths import CutPool, OpenConfig
from tests import best_plans, brute_force
from tests.brute_force import all_decisions
from tests.conftest import present
from tests.random_configs import WITH_NEW, crowded_instance, random_config, random_tables, slower
from tests.recorded import Cases, recorded
from tests.seeds import few_and_many, one_each
from tests.small_instances import random_instance

CPSAT, MILP = model_engine("cpsat"), model_engine("milp")
both = pytest.mark.parametrize("family", ["cpsat", "milp"])


# Optima


@both
@pytest.mark.parametrize("schedule", WITH_NEW)
@pytest.mark.parametrize("seeds", few_and_many(range(240), 48))
def test_model_equals_brute_force(
    seeds: Sequence[int], schedule: ScheduleName | None, family: Family
) -> None:
    """The best split, node order or shares, the rest given; and the best of all at once."""
    for n, seed in enumerate(seeds):
        tables, free = (
            random_tables(seed, n % 3 == 2, schedule),
            best_plans.FREE[n % len(best_plans.FREE)],
        )
        assert best_plans.finds_the_best(model_engine(family), tables, free, seed), seed


LOST = [(73, True, None), (157, True, None), (16, True, "interleaved"), (346, False, None)]


@pytest.mark.parametrize("case", one_each(LOST, 4))
def test_bug_highs_missed_optima(case: tuple[int, bool, ScheduleName | None]) -> None:
    """Presolve of HiGHS 1.14.0 missed three (ERGO-Code/HiGHS#2957), and is off.

    The one of several chunks was lost when rows of memory were tiny beside those of time.
    """
    assert best_plans.finds_the_best(MILP, random_tables(*case), "all", case[0])


def test_bug_steps_above_2_s_were_infeasible() -> None:
    """Alternatives above 2^31 ns: CP-SAT 9.15 took bounds of one that holds for bounds of all."""
    tables = random_tables(71)
    outcome = best_plans.solve_config(tables, CPSAT)
    assert outcome.step_time_ns == brute_force.optimum_ns(tables) == 56_335_002_434


# Cutoffs, limits, incumbents, bounds


@both
@pytest.mark.parametrize("seeds", few_and_many(range(0, 40, 2), 10))
def test_status_at_the_optimum_and_a_nanosecond_off(seeds: Sequence[int], family: Family) -> None:
    """Cut off at the optimum it is bounded, 1 ns above solved; (4) with budgets it is alike.

    A budget in money is one in time: a step of t ns on nodes of P USD/h costs t P / 3.6e12 USD.
    """
    engine = model_engine(family)
    for tables, best in best_plans.feasible(seeds):
        outcome = best_plans.solve_config(tables, engine, cutoff_ns=best)
        assert (outcome.status, outcome.plan, outcome.bound_ns) == ("bounded", None, best)
        assert best_plans.solve_config(tables, engine, cutoff_ns=best + 1).step_time_ns == best
        used = zip(tables.config.nodes_used, tables.instance.cluster.groups, strict=True)
        usd = sum(n * group.price_usd_per_hour for n, group in used) / 3.6e12
        for ns, status in ((best, "optimal"), (best - 1, "infeasible")):
            for limits in ({"max_step_time_s": ns / 1e9}, {"max_cost_usd_per_step": ns * usd}):
                assert (
                    best_plans.solve_config(best_plans.limited(tables, **limits), engine).status
                    == status
                )


@pytest.mark.parametrize("seeds", few_and_many(range(40), 10))
def test_incumbents_are_proved_or_improved(seeds: Sequence[int]) -> None:
    """Given the best plan, the loop proves it; given any other, it reaches that one.

    A plan that meets a bound proved elsewhere needs no round, and without time it is kept. Cuts
    from other configurations of the same schedule and stages hold; the seed decides the plan.
    """
    pool = CutPool()
    for tables, best in best_plans.feasible(seeds):
        first = best_plans.solve_config(tables, CPSAT)
        assert first == best_plans.solve_config(tables, CPSAT)
        assert best_plans.solve_config(tables, CPSAT, pool=pool).step_time_ns == best
        outcome = best_plans.solve_config(tables, CPSAT, incumbent=first.plan)
        assert (outcome.status, outcome.plan, outcome.bound_ns) == ("optimal", first.plan, best)
        outcome = best_plans.solve_config(tables, CPSAT, incumbent=first.plan, bound_ns=best)
        assert (outcome.status, outcome.rounds) == ("optimal", 0)
        outcome = best_plans.solve_config(tables, CPSAT, incumbent=first.plan, time_limit_s=0.0)
        assert (outcome.status, outcome.step_time_ns, outcome.trouble) == ("feasible", best, None)
        assert (outcome.bound_ns or 0) <= best
        assert best_plans.solve_config(tables, CPSAT, time_limit_s=0.0).status == "unknown"
        made = best_plans.random_decisions(tables, 1)
        if best_plans.judge(tables, made) is not None:
            outcome = best_plans.solve_config(tables, CPSAT, incumbent=made.plan(tables))
            assert (outcome.status, outcome.step_time_ns) == ("optimal", best)


@both
@recorded("critical_path")
def test_loops_over_several_configs_are_the_recorded_ones(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> Cases:
    """They enter the model one by one, cheaper ones first; what is proved of each in the end."""
    monkeypatch.setattr("solver.search.critical_path.FIRST_SHAPES", 1)
    for seed in (0, 8):
        tables = [tables for tables, _ in best_plans.feasible(range(seed, seed + 5))]
        configs = [OpenConfig(costs, 1.0 + n, 1000 * n) for n, costs in enumerate(tables)]

        def beyond(config: Configuration, best: float | None) -> int:
            prices = [each.price for each in configs if each.tables.plan_config == config]  # noqa: B023
            return 1 << 56 if best is None else int(best / min(prices))

        loop = CutLoop(model_engine(family), configs, beyond)
        entered = [len(loop.model.held) for _ in loop.run(SolveOptions(), lambda: False)]
        index = None if loop.found is None else loop.found.index
        bounds = [loop.is_open(n) for n in range(len(configs))]
        yield (
            f"{seed} {family}",
            [index, loop.best, bounds, loop.trouble, max(entered, default=0)],
        )


# Steps beyond the safe range of floats


def lasting(seed: int, factor: int) -> CostTables:
    instance = crowded_instance(seed) if seed % 4 == 0 else random_instance(seed)
    config = present(random_config(instance, seed))
    return build_tables(slower(instance, factor), config)


def test_bug_highs_called_models_of_hours_infeasible() -> None:
    """In units of a millisecond doubles do not hold a step of an hour; one of 37 hours in none."""
    hour, days = lasting(59, 100_000), lasting(12, 167_235)
    best = 3_814_117_153_009
    assert best == brute_force.optimum_ns(hour)
    outcome = best_plans.solve_config(hour, MILP, cutoff_ns=best + 1)
    assert (outcome.status, outcome.step_time_ns) == ("optimal", best)
    outcome = best_plans.solve_config(days, MILP)
    assert (outcome.status, outcome.plan, outcome.bound_ns) == ("unknown", None, 0)
    assert "rounding may move a row" in (outcome.trouble or "")


# Engines that lie

Tamper = Callable[[Any, Outcome], Outcome]


def tampered(change: Tamper, engine: ModelEngine = MILP) -> ModelEngine:
    """An engine, but for a change of every answer that has a solution."""

    def run(model: Any, options: SolveOptions) -> Outcome:
        outcome = engine.run(model, options)
        return outcome if outcome.values is None else change(model, outcome)

    return replace(engine, run=run)


def literals(model: Any) -> list[int]:
    kinds = ("config", "begun", "start", "reached")
    return [n for n, v in enumerate(model.variables()) if v.name.startswith(kinds)]


def fractional(model: Any, outcome: Outcome) -> Outcome:
    values = list(outcome.values or ())
    values[literals(model)[0]] = 0.5
    return replace(outcome, values=values)


def too_high_a_bound(model: Any, outcome: Outcome) -> Outcome:
    """A bound that its own solution refutes."""
    return replace(outcome, bound=10**15)


def odd_end(model: Any, outcome: Outcome) -> Outcome:
    return Outcome(Status.UNKNOWN, Termination.UNFINISHED, 0.0, trouble="HiGHS: Unknown")


def free_choice(seeds: range) -> list[tuple[CostTables, int]]:
    """Random tables of two groups with a plan, and its best step time."""
    return [
        (tables, best)
        for tables, best in best_plans.feasible(seeds)
        if tables.config.pp > 1 and sum(count > 0 for count in tables.config.nodes_used) == 2
    ]


@pytest.mark.parametrize(
    ("change", "engine", "trouble"),
    [
        (fractional, MILP, "the solution is fractional"),
        (too_high_a_bound, MILP, "the solution is faster than the bound"),
        (too_high_a_bound, CPSAT, "the solution is faster than the bound"),
        (odd_end, MILP, "HiGHS: Unknown"),
    ],
)
def test_bug_engines_that_lie_were_believed_or_a_traceback(
    change: Tamper, engine: ModelEngine, trouble: str
) -> None:
    """An answer that cannot be ends the loop; all that it said is dropped. An incumbent is kept."""
    for tables, best in free_choice(range(0, 16, 4))[:1]:
        lying = tampered(change, engine)
        outcome = best_plans.solve_config(tables, lying, bound_ns=best - 1)
        assert (outcome.status, outcome.plan, outcome.bound_ns) == ("unknown", None, best - 1)
        assert (outcome.trouble or "").startswith(f"numerical trouble: {trouble}")
        plan = best_plans.solve_config(tables, engine).plan
        outcome = best_plans.solve_config(tables, lying, incumbent=plan, cutoff_ns=best + 9)
        assert (outcome.status, outcome.step_time_ns) in (("feasible", best), ("optimal", best))
        assert (outcome.trouble is None) == (outcome.status == "optimal")


def test_bug_bounds_said_before_trouble_were_kept() -> None:
    """HiGHS has proved 295 s of steps of 159 s; no bound of an engine in trouble is believed."""
    tables, best = free_choice(range(0, 40, 4))[0]
    first = iter([True])

    def too_high(model: Any, outcome: Outcome) -> Outcome:
        told = replace(outcome, status=Status.UNKNOWN, values=None, bound=best + 9)
        return told if next(first, False) else outcome

    outcome = best_plans.solve_config(tables, tampered(too_high), bound_ns=best - 1)
    assert outcome.bound_ns == best - 1
    assert outcome.trouble is not None


# Rules that every plan of an engine is held against


def test_rules_are_those_of_the_plan_space_and_memory_to_the_byte() -> None:
    """Orders, splits and shares of the plan space break none, unless memory is short."""
    tables = next(
        tables
        for tables in map(random_tables, range(0, 400, 4))
        if tables.config.nodes_used == (2, 1) and tables.config.pp > 1 and tables.config.dp > 1
    )
    tables = replace(tables, capacity_bytes=np.full(2, 1 << 60))
    sizes, total = (tables.config.pp + 1, tables.config.dp), tables.num_micro_batches
    for even, alone in product(("even", "uneven"), (False, True)):
        search = {"micro_batches": even, "embedding_only_stages": alone}
        tables = replace(tables, instance=tables.instance.but(search=search))
        made, *_ = plans = list(all_decisions(tables))
        spaces = {
            "order": [x for n in range(5) for x in product(range(2), repeat=n)],
            "boundaries": product(range(tables.num_layers + 1), repeat=sizes[0]),
            "micro_batches": product(range(total + 1), repeat=sizes[1]),
        }
        for field, values in spaces.items():
            for value in values:
                other = replace(made, **{field: value})
                assert (broken_rule(tables, other) is None) == (other in plans), other
        for made in plans[::7]:
            need = best_plans.need_bytes(tables, made.boundaries, made.micro_batches)
            for spare in (0, -1):
                tight = replace(tables, capacity_bytes=np.full(2, need + spare))
                assert (broken_rule(tight, made) is None) == (spare == 0)
