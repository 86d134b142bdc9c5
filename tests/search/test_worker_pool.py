"""Processes of this machine that answer: each task is replied to, whoever dies or is halted."""

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

import pytest

from solver.search.worker_pool import Asked, Forks, Reply, Round

pytestmark = pytest.mark.skipif(not Forks.possible(), reason="no forks here")


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


def asked(position: int, task: int, best: float | None = None) -> Any:
    return Asked(position, task, best)  # type: ignore[arg-type]


def replies(round_: Round, number: int) -> dict[int, Reply]:
    known = dict[int, Reply]()
    until_s = time.monotonic() + 60
    while len(known) < number and time.monotonic() < until_s:
        known |= {reply.position: reply for reply in round_.receive(0.1)}
    return known


def test_every_task_is_answered_with_what_was_known_of_those_before() -> None:
    """Two workers, three tasks: room for one each, then for the third when one is done."""
    with Forks(2).round(Doubler(), 9, lambda: False) as round_:  # type: ignore[arg-type]
        for position, task in enumerate((5, 99)):
            assert round_.room == 1
            round_.submit([asked(position, task, 0.5)])
        assert round_.room == 0
        first = replies(round_, 1)
        assert first == {0: Reply(0, 10.5)}  # type: ignore[arg-type]
        round_.submit([asked(2, 7)])
        assert replies(round_, 1) == {2: Reply(2, 14.0)}  # type: ignore[arg-type]
        round_.halt()
        assert replies(round_, 1) == {1: Reply(1, 198.5)}  # type: ignore[arg-type]


def test_a_worker_that_dies_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """Its task comes back unanswered, and another worker takes the next one."""
    with Forks(1).round(Doubler(), 9, lambda: False) as round_:  # type: ignore[arg-type]
        round_.submit([asked(3, 13)])
        assert replies(round_, 1) == {3: Reply(3, None, lost=True)}
        round_.submit([asked(4, 1)])
        assert replies(round_, 1) == {4: Reply(4, 2.0)}  # type: ignore[arg-type]
    assert "a worker was lost" in caplog.text
