"""What commands show on a terminal while they work."""

import io
import sys

import pytest

from solver.cli.terminal import progress_display
from solver.search.progress import Progress


class Terminal(io.StringIO):
    """Keeps what is written to it."""

    def isatty(self) -> bool:
        """Whether lines may be drawn over."""
        return True


def test_bug_counts_were_cut_off_on_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is closed stands there in full, the rest in as many lines as it takes."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with progress_display() as tell:
        assert tell is not None
        tell(Progress(45, 1314, 3_136_000_000, 2_011_000_000, 0.359, 1.0, 2.0))
    shown = terminal.getvalue()
    assert "shapes closed 45 of 1314" in shown
    assert "s to go" in shown
