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
from solver.search import plan_search, speculation
from solver.search.driver import solve
from solver.search.enumeration import enumerate_config
from solver.search.ray_pool import RayCrew
from tests.said import said

ROOT = Path(__file__).resolve().parents[2]
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
