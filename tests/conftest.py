"""Shared fixtures, and time limits of tests."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any, TypeVar

import pytest

from formulations.instance import Instance
from formulations.instance.load import parse_instance
from solver.document import PlanDocument
from solver.files import to_json
from solver.plan_figures import costs_of
from solver.simulate import Step, simulate_step
from tests.hand_made import document_of, heuristic_result, pipelined_result

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
#: Seconds for a slow test; pyproject.toml has those of the others.
SLOW_S = 1800
#: Share of the time of a test after which its child processes are killed.
FOR_CHILDREN = 0.95
_TIMER = pytest.StashKey[Timer]()


class Killed(BaseException):
    """Stands for a kill, which nothing catches."""


def present(value: T | None) -> T:
    """What is there; a test fails where it is None."""
    assert value is not None
    return value


def text_of(name: str) -> str:
    """A file of tests/data."""
    return (ROOT / "tests" / "data" / name).read_text(encoding="utf-8")


def stored_instance(name: str, **fields: object) -> Instance:
    """The instance of a file in tests/data/spaces, with what it leaves open; x.yaml in errors."""
    text = text_of(f"spaces/{name}.yaml")
    return parse_instance(text.format(**fields) if fields else text, "x.yaml", Path())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of a room run in one process, so that what they share is worked out once."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class Rooms(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("::")[0].rpartition("/")[0]

    return Rooms(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests have a time limit of their own."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_S))


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Iterator[None]:
    """A test that waits for a child fails by itself shortly before the limit ends the process."""
    seconds = FOR_CHILDREN * settings.timeout
    timer = item.stash[_TIMER] = Timer(seconds, kill_children, [os.getpid()])
    timer.start()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> Iterator[None]:
    """The test is over; a file that could not be collected has no timer."""
    timer = item.stash.get(_TIMER, None)
    if timer is not None:
        timer.cancel()
    return (yield)


def kill_children(process: int) -> None:
    """Kills all processes that a process has started, and theirs."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    waiting = [process]
    while waiting:
        for child in children.get(waiting.pop(), []):
            waiting.append(child)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


@pytest.fixture(scope="session")
def reference() -> Path:
    """Folder of reference data that the project did not make; skips where it is absent."""
    folder = Path(os.environ.get("HETPLAN_REFERENCE", ROOT.parent / "shared" / "reference"))
    if not folder.is_dir():
        pytest.skip(f"reference data not found at {folder} (set HETPLAN_REFERENCE)")
    return folder


@pytest.fixture
def round_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switches the memory traffic of layers off, so that times by hand are round numbers."""
    monkeypatch.setattr("formulations.costs.compute.MEMORY_PASSES", 0.0)


@pytest.fixture(scope="module")
def document() -> PlanDocument:
    """Two stages, two replicas, ZeRO 1."""
    return document_of(pipelined_result())


@pytest.fixture(scope="module")
def step(document: PlanDocument) -> Step:
    """The simulated step of `document`."""
    return simulate_step(costs_of(document))


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(to_json(document_of(heuristic_result())), encoding="utf-8")
    return path
