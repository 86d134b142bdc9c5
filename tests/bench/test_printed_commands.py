"""The commands that bench/README.md begins with run to their end, or end in one line."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

_BLOCK = re.search(r"```\n(.*?)```", (ROOT / "bench" / "README.md").read_text("utf-8"), re.S)
COMMANDS = [] if _BLOCK is None else [line.partition("#")[0] for line in _BLOCK[1].splitlines()]
#: Of those that a benchmark has, later ones count: a look at each, not its figures.
SHORTER = {"--time-limit": "2", "--repeats": "1"}


@pytest.mark.slow
@pytest.mark.usefixtures("reference")
@pytest.mark.parametrize("printed", COMMANDS)
def test_command_ends_without_a_traceback(printed: str, tmp_path: Path) -> None:
    """Exit code 0, or that of what could not be done, told in one line."""
    words = [sys.executable, *shlex.split(printed)[1:]]
    if len(words) > 3:
        told = subprocess.run([*words[:4], "--help"], cwd=ROOT, capture_output=True, text=True)
        for option, value in {**SHORTER, "--out": str(tmp_path / "records.jsonl")}.items():
            words += [option, value] if option in told.stdout else []
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert done.returncode in ((0, 3, 4) if len(words) > 3 else (1,)), done.stderr
    assert done.returncode in (0, 1) or re.fullmatch(r"error: .+\n", done.stderr)
