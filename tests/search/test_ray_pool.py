"""A search on a Ray cluster of two workers: the same plan and log, whoever is lost."""

import os
import signal
import socket
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from formulations.errors import PlannerError
from formulations.instance.load import load_instance
from solver.enumeration.engine import ConfigAnswer
from solver.graph.problem import Intervals
from solver.interrupt import Stop
from solver.options import SolveOptions
from solver.search import plan_search, ray_pool, speculation
from solver.search.driver import solve
from solver.search.enumeration import enumerate_config
from solver.search.plan_search import PlanSearch
from solver.search.ray_pool import RayCrew
from tests.conftest import ROOT
from tests.small_instances import random_instance
from tests.verify.forgeries import said

PATH = ROOT / "instances" / "hetero_small.yaml"
SMALL = load_instance(PATH)


@pytest.mark.ray
@pytest.mark.skipif(not find_spec("ray"), reason="needs Ray: pip install 'hetplan[ray]'")
def test_worker_killed_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its configurations are closed by others; plan, bound and log are those of one process."""
    monkeypatch.setattr(speculation, "ALONE_S", 0.0)
    alone, mark = said(solve(SMALL)), tmp_path / "killed"

    def fatal_once(intervals: Intervals, cutoff: int, gap: float, stop: Stop) -> ConfigAnswer:
        config = intervals.tables.config
        if (config.pp, config.micro_batch, config.zero) == (8, 4, 0) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return enumerate_config(intervals, cutoff, gap, stop)

    monkeypatch.setattr(plan_search, "enumerate_config", fatal_once)
    assert said(solve(SMALL, SolveOptions(workers=2, engine="ray"))) == alone
    assert mark.exists()
    __import__("ray").shutdown()
    ray_pool.ray_crew.cache_clear()  # whose workers are gone


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(20, "Not a directory"), "[Errno 20] Not a directory"),
        (Exception("The current node timed out.\nMore."), "The current node timed out."),
        (AssertionError(), "AssertionError"),
    ],
)
def test_bug_ray_that_does_not_start_was_a_traceback(error: Exception, reason: str) -> None:
    """Ray raises whatever its node does, also without a word."""

    def init(**options: Any) -> None:
        raise error

    ray = SimpleNamespace(is_initialized=lambda: False, init=init)
    with pytest.raises(PlannerError) as told:
        RayCrew(ray, 2, None)._connect()
    assert told.value.lines == (f"--engine ray: no Ray cluster at this machine: {reason}",)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_bug_an_address_without_ray_took_minutes(scheme: str) -> None:
    """Nobody listens there, so Ray is not asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"{scheme}127.0.0.1:{server.getsockname()[1]}"
    ray = SimpleNamespace(is_initialized=lambda: False)
    with pytest.raises(PlannerError, match=f"no Ray cluster at {address}: .*refused"):
        RayCrew(ray, 2, address)._connect()


class Ref:
    """What an actor was asked to do; it does that when it is fetched."""

    def __init__(self, method: Any, words: tuple[Any, ...]) -> None:
        self.method, self.words = method, words


class Actor:
    """Stands for a worker elsewhere."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __getattr__(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(remote=lambda *words: Ref(getattr(self.of, name), words))


class NoRay:
    """Stands for Ray in one process; lost: actors whose next answers are."""

    exceptions = SimpleNamespace(RayActorError=LookupError, OutOfMemoryError=MemoryError)
    lost = 0

    def remote(self, **options: Any) -> Any:
        return lambda of: SimpleNamespace(remote=lambda: Actor(of()))

    def put(self, value: Any) -> Any:
        return value

    def wait(self, refs: list[Ref], timeout: float) -> Any:
        return refs, []

    def get(self, ref: Any) -> Any:
        if not isinstance(ref, Ref):
            return ref
        if self.lost:
            self.lost -= 1
            raise LookupError
        return ref.method(*ref.words)

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}


def test_tasks_are_answered_whoever_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers: as one process says; a lost task comes back; what came late is not heard.

    Workers none of whom ever starts are the end, with one line.
    """
    ray, search = NoRay(), PlanSearch(random_instance(3), SolveOptions())
    monkeypatch.setattr(ray_pool, "_ray", lambda: ray)
    tasks = search.open_list.open(None)[:2]
    crew = RayCrew(ray, 9, None)
    with crew.round(search.closer, len(tasks), lambda: False):
        assert (crew.workers, len(crew.idle), crew.receive(0.0)) == (2, 0, [])
        for position, task in enumerate(tasks):
            crew.submit(position, task, None)
        assert not crew.idle
        for position, answer in crew.receive(0.0):
            alone = search.closer.answer(tasks[position], None, lambda: False)
            assert answer is not None
            assert (answer.question, answer.found) == (alone.question, alone.found)
        crew.submit(0, tasks[0], None)
        ray.lost = 1
        assert crew.receive(0.0) == [(0, None)]
        assert crew.receive(0.0) == []
        assert (len(crew.idle), len(crew.busy)) == (2, 0)
        crew.submit(0, tasks[0], None)
    assert (crew.at_work, crew.receive(0.0), len(crew.idle)) == (set(), [], 2)
    ray.lost, crew = ray_pool.MOST_FAILED, RayCrew(ray, 2, None)
    crew._connect()
    assert crew.receive(0.0) == []
    with pytest.raises(PlannerError, match="3 workers could not start"):
        crew.receive(0.0)
