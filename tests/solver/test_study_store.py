"""A study: what was closed before a kill stays closed, and nothing else changes."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_instance
from solver.layered.problem import Intervals
from solver.options import SolveOptions
from solver.result import Result
from solver.search import driver, portfolio
from solver.search.closing import ShapeAnswer, Stop, enumerate_shape
from solver.search.driver import solve
from solver.search.overview import search_overview
from solver.study.store import open_study, read_study
from tests.said import said

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


Engine = Callable[[Intervals, int, float, Stop], ShapeAnswer]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """How often the engine was asked, by whichever process; it takes a little longer than usual."""
    count = FORK.Value("l", 0)

    def slow(intervals: Intervals, cutoff: int, gap: float, stop: Stop) -> ShapeAnswer:
        with count.get_lock():
            count.value += 1
        time.sleep(0.005)
        return enumerate_shape(intervals, cutoff, gap, stop)

    monkeypatch.setattr(driver, "enumerate_shape", slow)
    return count


def test_second_run_asks_nothing_and_says_the_same(
    tmp_path: Path, asked: Any, fresh: dict[str, Any]
) -> None:
    """All comes from the study, and the log is that of a fresh run."""
    assert said(solved(tmp_path / "study.db")) == fresh
    first = asked.value
    assert said(solved(tmp_path / "study.db")) == fresh
    assert (first > 0, asked.value) == (True, first)


@pytest.mark.parametrize(
    ("workers", "kills"), [(1, 2), (2, 2), pytest.param(1, 100, marks=pytest.mark.slow)]
)
def test_killed_at_random_moments_loses_one_shape_at_most(
    tmp_path: Path,
    asked: Any,
    fresh: dict[str, Any],
    workers: int,
    kills: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Resumed after a kill, a search asks for one shape per worker again, and says the same."""
    monkeypatch.setattr(portfolio, "ALONE_S", 0.0)
    began_s = time.monotonic()
    solved(tmp_path / "whole.db")
    whole, whole_s, moments = asked.value, time.monotonic() - began_s, random.Random(workers)
    for kill in range(kills):
        asked.value, path = 0, tmp_path / f"{kill}.db"
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
    assert (found.open, found.closed) == ((), len(result.log.shapes))
    assert (found.objective, found.bound, found.gap) == (result.objective, result.bound, 0.0)


def test_other_limits_use_what_is_known(tmp_path: Path, asked: Any) -> None:
    """A limit on the step cuts off, nothing more: the study is of the same instance."""
    path = tmp_path / "study.db"
    best = solved(path).step_time_ns
    assert best is not None
    limited = SMALL.but(limits={"max_step_time_s": best / 1e9})
    assert solved(path, limited).step_time_ns == best
