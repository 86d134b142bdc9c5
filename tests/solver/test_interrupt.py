"""Ctrl-C and time limits come between any two steps of the work, but where they are held back."""

import os
import signal

import pytest

from solver.interrupt import Deadline, TimeUp, held_back, time_up_after


def test_ctrl_c_held_back_comes_afterwards() -> None:
    """What must not be broken halfway is finished first."""
    reached = []

    def interrupted() -> None:
        with held_back():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append(True)

    # heard also where the shell that started the tests ignores it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
    assert reached


def forever() -> None:
    while True:
        pass


def test_an_earlier_limit_around_another_one_counts() -> None:
    """It comes inside and then outside, also after the inner block; without a limit none does."""

    def inside() -> None:
        with time_up_after(None), time_up_after(60):
            pass
        with pytest.raises(TimeUp), time_up_after(60):
            forever()
        forever()

    with pytest.raises(TimeUp), time_up_after(0.01):
        inside()


def test_a_deadline_within_another_ends_with_it() -> None:
    """Time that is left is that of both, the shorter; none is left of 0 s."""
    assert Deadline(None).part(None).left_s is None
    assert 0 < (Deadline(60.0).part(3600.0).left_s or 0) <= 60.0
    for late in (Deadline(0.0).part(60.0), Deadline(None).part(0.0)):
        with pytest.raises(TimeUp):
            late.check()
    Deadline(60.0).part(None).check()
