"""Ctrl-C in processes of their own ends in one line, whenever it comes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from solver.interrupt import TimeUp, held_back, time_up_after

ROOT = Path(__file__).resolve().parents[2]
#: Sends itself Ctrl-C when the named module is about to be loaded.
AT_IMPORT = """
import importlib.abc, os, signal, sys
class At(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, At())
from solver.cli import app
app(sys.argv[2:])
"""
TEMPLATES = ("templates", "instances/oobleck_bert_large.yaml", "--faults", "1")
SOLVE = ("solve", "instances/hetero_small.yaml", "--method", "cpsat")


def ended(code: str, *arguments: str) -> tuple[int, str]:
    """How a process that runs the code ends: exit code, and what it says on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("solver.cli.plans", TEMPLATES),
        ("numpy", TEMPLATES),
        ("formulations.instance.load", SOLVE),
        ("solver.templates.generate", TEMPLATES),
        pytest.param("solver.fleets.recovery", ("recover", "x.json", "--lost", "a")),
    ],
)
def test_bug_ctrl_c_while_loading_is_one_line(module: str, command: tuple[str, ...]) -> None:
    """No traceback, exit code 130."""
    assert ended(AT_IMPORT, module, *command) == (130, "interrupted\n")


def test_bug_ctrl_c_after_the_last_line_changed_the_exit_code() -> None:
    """While the interpreter ends, what was done stays done: exit code 0."""
    late = "class Late:\n    def __del__(self): signal.raise_signal(signal.SIGINT)\n"
    loaded = "import signal\nfrom solver.cli import app\n"
    code = f"{loaded}{late}kept = Late()\napp(['catalogue', '--schema'])"
    assert ended(code) == (0, "")


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
