"""Ctrl-C in processes of their own ends in one line, whenever it comes."""

import os
import signal
from collections.abc import Iterator

import pytest

from solver.interrupt import TimeUp, held_back, time_up_after


@pytest.fixture
def hearing() -> Iterator[None]:
    """Ctrl-C is heard, also where the shell that started the tests ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_held_back_comes_afterwards(hearing: None) -> None:
    """What must not be broken halfway is finished first."""
    reached = []

    def interrupted() -> None:
        with held_back():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert reached


def forever() -> None:
    """Never asks whether to stop."""
    while True:
        pass


def test_time_up_comes_in_the_middle_of_anything() -> None:
    """Work that never asks whether to stop is ended; without a limit nothing is."""
    with pytest.raises(TimeUp), time_up_after(0.01):
        forever()
    with time_up_after(None):
        pass


def test_an_earlier_limit_around_another_one_counts() -> None:
    """It comes inside and then outside, also after the inner block has ended."""

    def inside() -> None:
        with time_up_after(60):
            pass
        with pytest.raises(TimeUp), time_up_after(60):
            forever()
        forever()

    with pytest.raises(TimeUp), time_up_after(0.01):
        inside()
