"""Configs closed by several processes: the same proof, nothing lost when one dies or is stopped."""

import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from formulations.instance.load import load_instance
from solver.enumeration.engine import ConfigAnswer
from solver.graph.problem import Intervals
from solver.interrupt import Stop
from solver.options import SolveOptions
from solver.result import Status, Termination
from solver.search import plan_search, speculation
from solver.search.driver import solve
from solver.search.enumeration import enumerate_config
from solver.search.plan_search import Progress
from solver.search.speculation import Crew, Forks
from tests.best_plans import check_verified
from tests.command_line import refused
from tests.seeds import one_each
from tests.small_instances import random_instance
from tests.verify.forgeries import said

PATH = Path(__file__).resolve().parents[2] / "instances" / "hetero_small.yaml"
SMALL = load_instance(PATH).but(search={"micro_batch": (4,)})
TWO = SolveOptions(workers=2)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process works alone at first: work goes to several processes at once."""
    monkeypatch.setattr(speculation, "ALONE_S", 0.0)


@pytest.mark.parametrize("seed", one_each(range(440, 470), 10))
def test_any_number_of_workers_gives_the_same_plan_and_log(seed: int) -> None:
    """Also with a gap, where what is found depends on what was known before."""
    instance, gap = random_instance(seed), 0.05 * (seed % 8 == 4)
    one, *more = (said(solve(instance, SolveOptions(workers=n, gap=gap))) for n in (1, 2, 3))
    assert more == [one, one]


def test_a_worker_that_dies_leaves_its_config_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on; the configuration is not closed, and nobody claims that it is.

    So it is in the first round, with many open configurations, and in later ones, which have only
    this one.
    """

    def fatal(intervals: Intervals, cutoff: int, gap: float, stop: Stop) -> ConfigAnswer:
        config, in_worker = intervals.tables.config, multiprocessing.parent_process() is not None
        if in_worker and (config.pp, config.micro_batch, config.zero) == (8, 4, 0):
            os.kill(os.getpid(), signal.SIGKILL)
        return enumerate_config(intervals, cutoff, gap, stop)

    monkeypatch.setattr(plan_search, "enumerate_config", fatal)
    result = solve(SMALL, TWO)
    open_configs = [record.config for record in result.log.configs if record.reason == "open"]
    assert result.status is Status.FEASIBLE
    assert any((s.pp, s.micro_batch, s.zero) == (8, 4, 0) for s in open_configs)
    check_verified(result, TWO)


def test_interrupted_search_keeps_what_the_workers_found() -> None:

    def interrupt(progress: Progress) -> None:
        if progress.configs_closed:
            raise KeyboardInterrupt

    result = solve(SMALL, TWO, interrupt)
    assert (result.termination, result.status) == (Termination.INTERRUPTED, Status.FEASIBLE)
    check_verified(result, TWO)


def test_options_of_ray_are_refused_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    install = "Ray is not installed; allowed: pip install 'hetplan[ray]'"
    assert refused("solve", PATH, "--engine", "ray") == f"error: --engine ray: {install}\n"
    found = "--address is that of a Ray cluster; found: --engine processes"
    assert refused("solve", PATH, "--address", "auto") == f"error: {found}\n"


@dataclass(frozen=True)
class Doubler:
    """Stands for a closer: doubles numbers; dies of 13, and of 99 it works until it is halted."""

    def answer(self, task: int, best: float | None, stop: Any) -> float:
        """Twice the task, and the best objective with it."""
        if task == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        while task == 99 and not stop():
            time.sleep(0.001)
        return 2 * task + (best or 0.0)


def replies(crew: Crew) -> dict[int, Any]:
    known = dict[int, Any]()
    until_s = time.monotonic() + 60
    while not known and time.monotonic() < until_s:
        known |= crew.receive(0.1)
    return known


def test_every_task_is_answered_with_what_was_known_of_those_before() -> None:
    """Two workers, three tasks: room for one each, then for the third when one is done."""
    crew: Any = Forks(2)
    with crew.round(Doubler(), 9, lambda: False):
        for position, task in enumerate((5, 99)):
            assert crew.idle
            crew.submit(position, task, 0.5)
        assert not crew.idle
        assert replies(crew) == {0: 10.5}
        crew.submit(2, 7, None)
        assert replies(crew) == {2: 14.0}
        assert crew.at_work == {1}
        crew.halt()
        assert replies(crew) == {1: 198.5}


def test_a_worker_that_dies_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """Its task comes back unanswered, and another worker takes the next one."""
    crew: Any = Forks(1)
    with crew.round(Doubler(), 9, lambda: False):
        crew.submit(3, 13, None)
        assert replies(crew) == {3: None}
        crew.submit(4, 1, None)
        assert replies(crew) == {4: 2.0}
    assert "a worker was lost" in caplog.text


def test_bug_tasks_were_to_blame_for_workers_that_died_idle() -> None:
    """After MOST_LOST of them a configuration would stay open that nobody had looked at."""
    crew: Any = Forks(speculation.MOST_LOST)
    with crew.round(Doubler(), 9, lambda: False):
        for fork in crew.idle:
            fork.process.kill()
            fork.process.join()
        crew.submit(0, 1, None)
        assert replies(crew) == {0: 2.0}
        assert len(crew.idle) == speculation.MOST_LOST
