"""A search on a Ray cluster of two workers: the same plan and log, whoever is lost."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from formulations.instance.load import load_instance
from solver.enumeration.engine import ConfigAnswer
from solver.graph.problem import Intervals
from solver.options import SolveOptions
from solver.search import plan_search, speculation
from solver.search.driver import solve
from solver.search.enumeration import Stop, enumerate_config
from solver.study.store import open_study
from tests.said import said

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'hetplan[ray]'")
pytestmark = pytest.mark.ray

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "instances" / "hetero_small.yaml"
SMALL = load_instance(PATH)
TWO = SolveOptions(workers=2, engine="ray")

#: A search with Ray and a study, slow enough to be killed.
SEARCH = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from formulations.instance.load import load_instance
from solver.options import SolveOptions
from solver.search import driver, plan_search, speculation
from solver.search.enumeration import enumerate_config
from solver.study.store import open_study
speculation.ALONE_S = 0.0
def slow(*question):
    time.sleep(0.5)
    return enumerate_config(*question)
plan_search.enumerate_config = slow
instance = load_instance(Path({str(PATH)!r}))
with open_study(Path(sys.argv[1]), instance) as study:
    driver.solve(instance, SolveOptions(workers=2, engine="ray"), None, study)
"""


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
    assert said(solve(SMALL, TWO)) == alone
    assert mark.exists()
    ray.shutdown()


def test_driver_killed_and_resumed(tmp_path: Path) -> None:
    """What the workers had answered is in the study; it is gone on from without Ray."""
    path = tmp_path / "study.db"
    search = subprocess.Popen([sys.executable, "-c", SEARCH, str(path)], start_new_session=True)
    try:
        deadline_s = time.monotonic() + 120
        while _answers(path) < 4 and search.poll() is None and time.monotonic() < deadline_s:
            time.sleep(0.2)
        assert search.poll() is None
        search.kill()
    finally:
        search.wait()
    kept = _answers(path)
    with open_study(path, SMALL) as study:
        resumed = said(solve(SMALL, None, None, study))
    assert kept >= 4
    assert resumed == said(solve(SMALL))


def _answers(path: Path) -> int:
    """Answers in a study that may not exist yet."""
    with suppress(sqlite3.OperationalError):
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        row: tuple[int] = connection.execute(
            "select count(*) from records where kind = 'configuration'"
        ).fetchone()
        connection.close()
        return row[0]
    return 0
