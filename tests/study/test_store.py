"""A study: what was closed before a kill stays closed, and nothing else changes."""

import math
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_instance
from solver.enumeration.engine import ConfigAnswer
from solver.graph.problem import Intervals
from solver.options import SolveOptions
from solver.result import Result, Status
from solver.search import plan_search, speculation
from solver.search.driver import search_overview, solve
from solver.search.enumeration import Stop, enumerate_config
from solver.search.plan_search import PlanSearch
from solver.study.store import StudyError, open_study, read_study
from tests.said import said
from tests.seeds import few_and_many
from tests.small_instances import random_instance

SMALL = load_instance(Path(__file__).resolve().parents[2] / "instances" / "hetero_small.yaml")
FORK = multiprocessing.get_context("fork")


@pytest.fixture(scope="module")
def fresh() -> dict[str, Any]:
    """What a search without a study says."""
    return said(solve(SMALL))


def solved(path: Path, instance: Instance = SMALL, **options: Any) -> Result:
    """With a study."""
    with open_study(path, instance) as study:
        return solve(instance, SolveOptions(**options), None, study)


Engine = Callable[[Intervals, int, float, Stop], ConfigAnswer]


class Asked:
    """How often the engine was asked, by whichever process: a byte each.

    A lock would stay closed when the process that holds it is killed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reset()

    def reset(self) -> None:
        """Counts from 0 on."""
        self.path.write_bytes(b"")

    def add(self) -> None:
        """Once more."""
        with self.path.open("ab") as file:
            file.write(b".")

    @property
    def value(self) -> int:
        """How often."""
        return self.path.stat().st_size


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Of the engine, which takes a little longer than usual."""
    count = Asked(tmp_path / "asked")

    def slow(intervals: Intervals, cutoff: int, gap: float, stop: Stop) -> ConfigAnswer:
        count.add()
        time.sleep(0.005)
        return enumerate_config(intervals, cutoff, gap, stop)

    monkeypatch.setattr(plan_search, "enumerate_config", slow)
    return count


def test_second_run_asks_nothing_and_says_the_same(
    tmp_path: Path, asked: Asked, fresh: dict[str, Any]
) -> None:
    """All comes from the study, and the log is that of a fresh run."""
    assert said(solved(tmp_path / "study.db")) == fresh
    first = asked.value
    assert said(solved(tmp_path / "study.db")) == fresh
    assert (first > 0, asked.value) == (True, first)


@pytest.mark.parametrize(
    ("workers", "kills"), [(1, 2), (2, 2), pytest.param(1, 40, marks=pytest.mark.slow)]
)
def test_killed_at_random_moments_loses_one_config_at_most(
    tmp_path: Path,
    asked: Asked,
    fresh: dict[str, Any],
    workers: int,
    kills: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Resumed after a kill, a search asks for one config per worker again, and says the same."""
    monkeypatch.setattr(speculation, "ALONE_S", 0.0)
    began_s = time.monotonic()
    solved(tmp_path / "whole.db")
    whole, whole_s, moments = asked.value, time.monotonic() - began_s, random.Random(workers)
    for kill in range(kills):
        asked.reset()
        path = tmp_path / f"{kill}.db"
        process = FORK.Process(target=solved, args=(path,), kwargs={"workers": workers})
        process.start()
        time.sleep(moments.uniform(0.0, whole_s))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        assert said(solved(path)) == fresh
        assert asked.value <= whole + workers


def test_two_processes_on_one_study(tmp_path: Path, fresh: dict[str, Any]) -> None:
    """Both write, from its first moment on; the study is sound, and gives the same plan."""
    path = tmp_path / "study.db"
    both = [FORK.Process(target=solved, args=(path,)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert [one.exitcode for one in both] == [0, 0]
    assert said(solved(path)) == fresh


def test_overview_of_a_finished_search_has_nothing_open(tmp_path: Path) -> None:
    """`study show` counts what the search counts."""
    path = tmp_path / "study.db"
    result = solved(path)
    with read_study(path) as (study, notes):
        found = search_overview(study, notes)
    assert found is not None
    assert (found.open, found.closed) == ((), len(result.log.configs))
    assert (found.objective, found.bound, found.gap) == (result.objective, result.bound, 0.0)


Limit = dict[str, float]
Tighter = Callable[[int], Limit]


@pytest.mark.parametrize(
    "tighter",
    [
        lambda best_ns: {"max_step_time_s": best_ns / 2e9},
        lambda best_ns: {"max_cost_usd_per_step": 1e-12},
    ],
)
def test_bug_recalled_plans_broke_the_limits_of_today(tmp_path: Path, tighter: Tighter) -> None:
    """With a time limit all that is known is offered; what is beyond a limit stays out."""
    path, instance = tmp_path / "study.db", random_instance(0)
    best_ns = solved(path, instance).step_time_ns
    assert best_ns is not None
    limited = instance.but(limits=tighter(best_ns))
    assert solved(path, limited, time_limit_s=60.0).status is Status.INFEASIBLE
    assert shown(path) is None
    assert solved(path, instance, time_limit_s=60.0).step_time_ns == best_ns
    assert shown(path) == best_ns


def shown(path: Path) -> int | None:
    """Step time of the plan that `study show` has."""
    with read_study(path) as (study, notes):
        overview = search_overview(study, notes)
    assert overview is not None
    return overview.step_time_ns


def test_no_plan_beyond_a_limit_is_kept_whoever_offers_it() -> None:
    """Just inside and just outside."""
    instance = random_instance(0)
    result = solve(instance)
    plan, best_ns = result.plan, result.step_time_ns
    assert plan is not None
    assert best_ns is not None
    for limit_ns, objective in ((best_ns - 1, math.inf), (best_ns, best_ns)):
        limited = instance.but(limits={"max_step_time_s": limit_ns / 1e9})
        incumbents = PlanSearch(limited, SolveOptions()).incumbents
        incumbents.offer((plan, best_ns))
        assert incumbents.known.objective == objective


def random_limits(rng: random.Random, best_ns: int) -> Limit:
    """None, looser and tighter ones, around a step time."""
    limits: Limit = {}
    if rng.random() < 0.7:
        limits["max_step_time_s"] = best_ns * rng.choice([0.5, 1, 1.001, 1.3, 2]) / 1e9
    if rng.random() < 0.4:
        limits["max_cost_usd_per_step"] = best_ns / 3.6e12 * rng.choice([0.5, 1, 2, 5, 20])
    return limits


@pytest.mark.parametrize("seeds", few_and_many(range(20), 10))
def test_study_of_any_limits_gives_what_a_fresh_search_gives(
    seeds: Sequence[int], tmp_path: Path
) -> None:
    """One study after the other limit and gap: status, plan and bound are those without it."""
    for seed in seeds:
        rng, instance, path = random.Random(seed), random_instance(seed), tmp_path / f"{seed}.db"
        best_ns = solve(instance).step_time_ns
        for _ in range(3 if best_ns else 0):
            limited = instance.but(limits=random_limits(rng, best_ns or 1))
            gap, limit_s = rng.choice([0.0, 0.0, 0.1]), rng.choice([None, 60.0])
            kept = solved(path, limited, gap=gap, time_limit_s=limit_s)
            fresh = solve(limited, SolveOptions(gap=0.0))
            assert kept.status is fresh.status, seed
            if gap == 0.0:
                assert (kept.step_time_ns, kept.bound) == (fresh.step_time_ns, fresh.bound), seed
            elif kept.bound is not None:
                assert kept.bound <= (fresh.objective or math.inf), seed
            longest_s = limited.limits.max_step_time_s or math.inf
            assert (kept.step_time_ns or 0) <= longest_s * 1e9 * (1 + 1e-12), seed


def test_other_lists_are_of_another_instance(tmp_path: Path) -> None:
    """What is closed under one plan space is not asked under another."""
    path, instance = tmp_path / "study.db", random_instance(0)
    solved(path, instance)
    with pytest.raises(StudyError, match="a study of another instance"):
        solved(path, instance.but(search={"micro_batch": (1,)}))


def test_other_limits_use_what_is_known(tmp_path: Path, asked: Asked) -> None:
    """A limit on the step cuts off, nothing more: the study is of the same instance."""
    path = tmp_path / "study.db"
    best = solved(path).step_time_ns
    assert best is not None
    limited = SMALL.but(limits={"max_step_time_s": best / 1e9})
    assert solved(path, limited).step_time_ns == best
