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
from solver.search.driver import SearchOverview, search_overview, solve
from solver.search.enumeration import Stop, enumerate_config
from solver.study.store import StudyError, open_study, read_study
from tests.said import said
from tests.seeds import few_and_many
from tests.small_instances import random_instance

SMALL = load_instance(Path(__file__).resolve().parents[2] / "instances" / "hetero_small.yaml")
FORK = multiprocessing.get_context("fork")


def overview(path: Path) -> SearchOverview:
    with read_study(path) as (study, notes):
        found = search_overview(study, notes)
    assert found is not None
    return found


def solved(path: Path, instance: Instance = SMALL, **options: Any) -> Result:
    with open_study(path, instance) as study:
        return solve(instance, SolveOptions(**options), None, study)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a byte for each time that the engine, which takes longer, is asked by anyone."""
    path = tmp_path / "asked"

    def slow(intervals: Intervals, cutoff: int, gap: float, stop: Stop) -> ConfigAnswer:
        with path.open("ab") as file:
            file.write(b".")
        time.sleep(0.005)
        return enumerate_config(intervals, cutoff, gap, stop)

    monkeypatch.setattr(plan_search, "enumerate_config", slow)
    return path


@pytest.mark.parametrize(
    ("workers", "kills"), [(1, 1), (2, 2), pytest.param(1, 40, marks=pytest.mark.slow)]
)
def test_killed_at_random_moments_loses_one_config_at_most(
    tmp_path: Path, asked: Path, workers: int, kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resumed after a kill, a search asks for one config per worker again, and says the same.

    Once it has ended it asks nothing, and nothing is shown as open.
    """
    monkeypatch.setattr(speculation, "ALONE_S", 0.0)
    began_s, path, fresh = time.monotonic(), tmp_path / "whole.db", said(solve(SMALL))
    asked.unlink()
    assert said(solved(path)) == fresh
    whole, whole_s = asked.stat().st_size, time.monotonic() - began_s
    result, moments = solved(path), random.Random(workers)
    assert (said(result), asked.stat().st_size) == (fresh, whole)
    found = overview(path)
    assert (found.open, found.closed) == ((), len(result.log.configs))
    assert (found.objective, found.bound, found.gap) == (result.objective, result.bound, 0.0)
    for kill in range(kills):
        asked.write_bytes(b"")
        path = tmp_path / f"{kill}.db"
        process = FORK.Process(target=solved, args=(path,), kwargs={"workers": workers})
        process.start()
        time.sleep(moments.uniform(0.0, whole_s / 2))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        assert said(solved(path)) == fresh
        assert asked.stat().st_size <= whole + workers


def test_two_processes_on_one_study(tmp_path: Path) -> None:
    """Both write, from its first moment on; the study is sound, and gives the same plan."""
    path = tmp_path / "study.db"
    both = [FORK.Process(target=solved, args=(path,)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
        assert process.exitcode == 0
    assert said(solved(path)) == said(solve(SMALL))


@pytest.mark.parametrize(
    "tighter",
    [
        lambda best_ns: {"max_step_time_s": best_ns / 2e9},
        lambda best_ns: {"max_cost_usd_per_step": 1e-12},
    ],
)
def test_bug_recalled_plans_broke_the_limits_of_today(
    tmp_path: Path, tighter: Callable[[int], dict[str, float]]
) -> None:
    """With a time limit all that is known is offered; what is beyond a limit stays out.

    Another space is another instance.
    """
    path, instance = tmp_path / "study.db", random_instance(0)
    best_ns = solved(path, instance).step_time_ns
    assert best_ns is not None
    limited = instance.but(limits=tighter(best_ns))
    assert solved(path, limited, time_limit_s=60.0).status is Status.INFEASIBLE
    assert overview(path).step_time_ns is None
    assert solved(path, instance, time_limit_s=60.0).step_time_ns == best_ns
    assert overview(path).step_time_ns == best_ns
    with pytest.raises(StudyError, match="a study of another instance"):
        solved(path, instance.but(search={"micro_batch": (1,)}))


def random_limits(rng: random.Random, best_ns: int) -> dict[str, float]:
    """None, looser and tighter ones, around a step time."""
    limits: dict[str, float] = {}
    if rng.random() < 0.7:
        limits["max_step_time_s"] = best_ns * rng.choice([0.5, 1, 1.001, 1.3, 2]) / 1e9
    if rng.random() < 0.4:
        limits["max_cost_usd_per_step"] = best_ns / 3.6e12 * rng.choice([0.5, 1, 2, 5, 20])
    return limits


@pytest.mark.parametrize("seeds", few_and_many(range(20), 10))
def test_study_of_any_limits_gives_what_a_fresh_search_gives(
    seeds: Sequence[int], tmp_path: Path
) -> None:
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
