"""Ray that does not start, without Ray: one line that says why."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from formulations.errors import PlannerError
from solver.search.ray_pool import RayCrew


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(20, "Not a directory"), "[Errno 20] Not a directory"),
        (Exception("The current node timed out.\nMore."), "The current node timed out."),
        (ConnectionError("\nnobody there"), "nobody there"),
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
