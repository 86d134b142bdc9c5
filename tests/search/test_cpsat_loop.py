"""The cut loop with CP-SAT models: cutoffs, bounds, limits, pools of paths, reference pipelines."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formulations.decisions import Decisions
from formulations.instance import Limits
from solver.backends.outcome import Outcome
from solver.options import SolveOptions
from solver.result import max_step_time_ns
from solver.search.engines import model_engine
from solver.search.paths import CutPool, largest_share
from tests import brute_force
from tests.loop_checks import feasible, judge, limited, random_decisions, solve_shape
from tests.random_shapes import random_tables
from tests.reference_pipelines import reference_cases, solves_reference
from tests.seeds import few_and_many

ENGINE = model_engine("cpsat")
SEEDS = few_and_many(range(40), 3)


@pytest.mark.parametrize("seeds", SEEDS)
def test_optimal_incumbent_is_proved(seeds: Sequence[int]) -> None:
    """Given the best plan, the loop returns it with the proof."""
    for tables, best in feasible(seeds):
        plan = solve_shape(tables, ENGINE).plan
        outcome = solve_shape(tables, ENGINE, incumbent=plan)
        assert (outcome.status, outcome.plan, outcome.bound_ns) == ("optimal", plan, best)


@pytest.mark.parametrize("seeds", SEEDS)
def test_incumbent_is_improved(seeds: Sequence[int]) -> None:
    """From any feasible plan the loop reaches the optimum."""
    for tables, best in feasible(seeds):
        made = random_decisions(tables, 1)
        if judge(tables, made) is not None:
            outcome = solve_shape(tables, ENGINE, incumbent=made.plan(tables))
            assert (outcome.status, outcome.step_time_ns) == ("optimal", best)


@pytest.mark.parametrize("seeds", SEEDS)
def test_known_bound_closes_without_a_model(seeds: Sequence[int]) -> None:
    """A plan that meets a bound proved elsewhere needs no round."""
    for tables, best in feasible(seeds):
        plan = solve_shape(tables, ENGINE).plan
        outcome = solve_shape(tables, ENGINE, incumbent=plan, bound_ns=best)
        assert (outcome.status, outcome.rounds) == ("optimal", 0)


def test_no_time_and_no_incumbent_is_unknown() -> None:
    """Out of time with nothing in hand is neither infeasible nor bounded."""
    outcome = solve_shape(random_tables(0), ENGINE, time_limit_s=0.0)
    assert (outcome.status, outcome.plan) == ("unknown", None)


@pytest.mark.parametrize("seeds", SEEDS)
def test_money_budget_is_a_time_budget(seeds: Sequence[int]) -> None:
    """A step of t ns on nodes of P USD/h costs t P / 3.6e12 USD."""
    for tables, best in feasible(seeds):
        groups = tables.instance.cluster.groups
        used = zip(tables.shape.nodes_used, groups, strict=True)
        price = sum(n * group.price_usd_per_hour for n, group in used)
        for spare, status in ((0, "optimal"), (-1, "infeasible")):
            cost = (best + spare) * price / 3.6e12
            assert solve_shape(limited(tables, max_cost_usd_per_step=cost), ENGINE).status == status


def test_budget_is_the_tighter_of_both() -> None:
    """At 2 USD/h a step of 0.001 USD may take 1.8 s; the time limit of 1 s is tighter."""
    tables = random_tables(1)
    groups = tuple(
        group.but(price_usd_per_hour=2 / sum(tables.shape.nodes_used))
        for group in tables.instance.cluster.groups
    )
    cluster = tables.instance.cluster.but(groups=groups)
    limits = Limits(max_step_time_s=1, max_cost_usd_per_step=0.001)
    instance = tables.instance.but(cluster=cluster, limits=limits)
    assert max_step_time_ns(instance, tables.shape) == 1_000_000_000
    free = Limits(max_cost_usd_per_step=0.001)
    instance = instance.but(limits=free)
    assert max_step_time_ns(instance, tables.shape) == 1_800_000_000


@pytest.mark.parametrize("seeds", few_and_many(range(0, 80, 4), 3))
def test_largest_share_never_excludes_a_plan(seeds: Sequence[int]) -> None:
    """No plan within a step time has a replica with more micro-batches than the bound."""
    for tables, _ in feasible(seeds):
        for order in brute_force.all_orders(tables):
            for shares in brute_force.all_shares(tables):
                made = Decisions(order, next(brute_force.all_splits(tables)), shares)
                step = judge(tables, made)
                assert step is None or max(shares) <= largest_share(tables, step)


def test_bug_steps_above_2_s_were_infeasible() -> None:
    """Alternatives above 2^31 ns: CP-SAT 9.15 took bounds of one that holds for bounds of all."""
    tables = random_tables(71)
    outcome = solve_shape(tables, ENGINE)
    assert outcome.step_time_ns == brute_force.optimum_ns(tables) == 56_335_002_434


def test_bug_an_engine_in_integers_that_lies_was_a_traceback() -> None:
    """A bound above the engine's own plan: all that it said is dropped, and told."""

    def run(model: Any, options: SolveOptions) -> Outcome:
        return replace(ENGINE.run(model, options), bound=10**15)

    tables, best = next(iter(feasible(range(40))))
    outcome = solve_shape(tables, replace(ENGINE, run=run), bound_ns=best - 1)
    assert (outcome.status, outcome.bound_ns) == ("unknown", best - 1)
    assert (outcome.trouble or "").startswith("numerical trouble: the solution is faster than")


@pytest.mark.parametrize("seeds", few_and_many(range(60), 2))
def test_pool_changes_no_optimum(seeds: Sequence[int]) -> None:
    """Cuts from other shapes of the same schedule and stages hold."""
    pool = CutPool()
    for tables, best in feasible(seeds):
        assert solve_shape(tables, ENGINE, pool=pool).step_time_ns == best


def test_reference_pipelines(reference: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optima that others proved, up to 8 stages, by brute force or enumeration."""
    cases = [case for case in reference_cases(reference) if len(case["stage_slowness"]) <= 8]
    assert len(cases) == 16
    for case in cases:
        with monkeypatch.context() as patch:
            assert solves_reference(ENGINE, case, patch), case["name"]


@pytest.mark.slow
def test_deep_reference_pipelines(reference: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, 16 to 32 stages."""
    cases = [case for case in reference_cases(reference) if len(case["stage_slowness"]) > 8]
    assert len(cases) == 10
    for case in cases:
        with monkeypatch.context() as patch:
            assert solves_reference(ENGINE, case, patch), case["name"]
