"""Output files: refused early, written whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from formulations.errors import PlannerError
from solver.cli.files import check_writable, write_folder, write_text


@pytest.mark.parametrize(("name", "reason"), [("", "it is a folder"), ("x" * 300, "name too long")])
def test_what_no_file_can_be_called_is_refused(name: str, reason: str, tmp_path: Path) -> None:
    """A folder; a name that is too long, in the system's words."""
    with pytest.raises(PlannerError, match=reason):
        check_writable(tmp_path / name)


def test_bug_the_second_output_replaced_the_first(tmp_path: Path) -> None:
    """One file for two outputs is refused, by whatever name; not for what is no file."""
    with pytest.raises(PlannerError, match="the command also names it as something else"):
        check_writable(tmp_path / "x", tmp_path / ".." / tmp_path.name / "x")
    check_writable(Path(os.devnull), None, Path(os.devnull), keep=[Path(os.devnull)])


def test_bug_links_in_a_circle_were_a_traceback(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)
    check_writable(link)
    write_text(link, "new")
    assert link.read_text() == "new"


def test_failures_leave_nothing_behind(tmp_path: Path) -> None:
    """Neither checks, nor a folder of which one file cannot be written."""
    check_writable(tmp_path / "plan.json")
    with pytest.raises(PlannerError, match=r"cannot write .*job: "):
        write_folder(tmp_path / "job", {"a.txt": "1\n", "x" * 300: "2\n"})
    assert os.listdir(tmp_path) == []


def test_write_keeps_the_old_file_on_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(PlannerError, match="No space left"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_write_follows_links_and_keeps_permissions(tmp_path: Path) -> None:
    """A link stays a link, and a file readable by its owner alone stays so."""
    path, link = tmp_path / "plan.json", tmp_path / "link.json"
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to(path)
    write_text(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
