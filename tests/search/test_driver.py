"""The search over configurations, held against brute force and the verifier."""

from pathlib import Path

import pytest

from formulations.instance.load import load_instance
from formulations.space import configs
from solver.heuristics.baselines import equal_chunks_plan
from solver.heuristics.time_tables import TimeTables
from solver.options import SolveOptions
from solver.result import Status, Termination
from solver.search import driver, plan_search
from solver.search.driver import solve
from tests.best_plans import check_space, check_verified, least_objective
from tests.conftest import ROOT, present
from tests.search.spaces import SPACES, cases
from tests.small_instances import random_instance

SMALL = load_instance(ROOT / "instances" / "hetero_small.yaml")

# The best plan, and its proof


@pytest.mark.parametrize(("name", "seed"), cases())
def test_search_equals_brute_force_and_is_verified(name: str, seed: int) -> None:
    """The plan is the best of every config, order, split and share; the log is proved again."""
    instance = SPACES[name](seed)
    result = solve(instance)
    assert result.objective == least_objective(instance)
    assert result.status is (Status.INFEASIBLE if result.objective is None else Status.OPTIMAL)
    assert result.gap in (0.0, None)
    check_space(instance)
    check_verified(result)


# Limits of a search


@pytest.mark.parametrize("seed", [3, 5, 8, 12])
def test_bug_gap_with_a_budget_never_makes_an_instance_infeasible(seed: int) -> None:
    """A gap loosens the proof, never a limit: the plan that just keeps the budget is found.

    Limits at the optimum of one configuration, no incumbent: the engine still finds the plan.
    """
    instance = random_instance(seed).but(search={"pipeline_parallel": (1, 2, 3)})
    best = solve(instance).step_time_ns
    if best is not None:
        limited = instance.but(limits={"max_step_time_s": best / 1e9})
        result = solve(limited, SolveOptions(gap=0.2))
        assert (result.status, result.step_time_ns) == (Status.OPTIMAL, best)


def test_time_limit_returns_the_incumbent_with_its_gap() -> None:
    """A search that stops early keeps its plan and a valid bound; minutes do not prove this one."""
    options = SolveOptions(time_limit_s=2.0)
    result = solve(load_instance(ROOT / "bench/hard/zones_uneven_28_gpus.yaml"), options)
    assert result.status is Status.FEASIBLE
    assert 0 < present(result.gap) < 1
    check_verified(result, options)


def test_models_are_written_and_reasons_told_where_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is asked for; a reason where there is no plan, within 20 s and the time left."""
    path, instance, limits = tmp_path / "model.pb", random_instance(0), list[float]()
    result = solve(instance, SolveOptions(method="cpsat", write_model=path))
    assert path.exists()
    assert result.infeasibility is None
    monkeypatch.setattr(driver, "explain", lambda _, limit_s: limits.append(limit_s))
    none = instance.but(limits={"max_step_time_s": 1e-9})
    for limit_s in (None, 3600.0, 5.0):
        solve(none, SolveOptions(time_limit_s=limit_s))
    assert limits[:2] == [20.0, 20.0]
    assert limits[2] < 6


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def never_end(*_: object) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("engine", "limit_s", "termination"),
    [(interrupt, None, Termination.INTERRUPTED), (never_end, 1.0, Termination.TIME_LIMIT)],
)
def test_bug_an_engine_that_seldom_asks_kept_no_limit(
    engine: object, limit_s: float | None, termination: Termination, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not stop by itself is ended, by Ctrl-C too; its configuration stays open."""
    monkeypatch.setattr("solver.search.plan_search.enumerate_config", engine)
    result = solve(SMALL, SolveOptions(time_limit_s=limit_s))
    assert (result.termination, result.status) == (termination, Status.FEASIBLE)
    assert result.plan is not None


def test_bug_without_time_to_list_configs_a_plan_was_its_own_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan to start from, as of a study, proves nothing of configs that were not looked at."""
    proved = solve(SMALL)
    check_verified(proved)
    assert (proved.termination, proved.gap) == (Termination.CLOSED, 0.0)
    assert proved.plan is not None
    monkeypatch.setattr("solver.interrupt.Deadline.over", lambda self: True)
    options = SolveOptions(time_limit_s=1.0)
    result = solve(SMALL, options, start=(proved.plan, present(proved.step_time_ns)))
    assert (result.plan, result.status) == (proved.plan, Status.FEASIBLE)
    assert (result.bound, result.gap) == (None, None)


@pytest.mark.slow
def test_bug_first_plan_of_chunks_was_worse_than_equal_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GPT-3 175B on 1,024 GPUs: the first incumbent is as good as the best equal chunks."""
    instance = load_instance(ROOT / "bench/calculon/its_figures.yaml")
    monkeypatch.setattr(plan_search.PlanSearch, "run", lambda search: None)
    step_ns = solve(instance).step_time_ns
    equal = present(equal_chunks_plan(configs(instance), TimeTables(instance), lambda: False))
    assert step_ns is not None
    assert step_ns <= equal[1]


@pytest.mark.parametrize(("limit_s", "status"), [(None, Status.INFEASIBLE), (0.0, Status.UNKNOWN)])
def test_bug_listing_choices_of_nodes_without_a_config_took_no_notice_of_the_time(
    limit_s: float | None, status: Status
) -> None:
    """A thousand nodes for a batch of one sequence and nine stages of six layers."""
    instance = random_instance(0)
    first = instance.cluster.groups[0].but(nodes=1000)
    many = instance.but(
        cluster={"groups": (first,)},
        workload={"global_batch": 1},
        search={"pipeline_parallel": (9,), "micro_batch": (1,)},
    )
    assert solve(many, SolveOptions(time_limit_s=limit_s)).status is status
