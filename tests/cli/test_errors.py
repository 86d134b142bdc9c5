"""Files that are no input, names that are no files, Ctrl-C: one line each, no traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import refused
from tests.conftest import ROOT, text_of

CONTENTS = {
    "empty": b"",
    "blank": b" \n\n",
    "binary": bytes(range(256)) * 4,
    "utf16": "name: x".encode("utf-16"),
    "null": b"name: x\n\x00\n",
    "text": "☃ is a snowman\n".encode(),
    "number": b"12",
    "digits": b"9" * 5000,
    "brackets": b"[" * 500,
    "list": b"[1, 2]",
}
#: One for each reader: of an instance, a file of hetplan, a config.json, a family.
COMMANDS = ("solve", "verify", "catalogue", "pareto")


@pytest.mark.parametrize("content", CONTENTS)
def test_file_of_another_kind_is_one_line(content: str, tmp_path: Path) -> None:
    path = tmp_path / f"{content} ü.json"
    path.write_bytes(CONTENTS[content])
    for command in COMMANDS:
        assert f"{path}:" in refused(command, path)


KINDS = ("plan", "front", "fleet", "switch", "lengths")
#: Kind that a command takes, and its arguments.
TAKES = {
    "switch FILE FILE": "plan",
    "export FILE --to megatron --out x": "plan",
    "explain FILE": "plan",
    "diff FILE FILE": "plan",
    "recover FILE --lost a-0": "fleet",
    **{f"{command} FILE": "" for command in ("solve", "lengths", "replay", "evaluate", "pareto")},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", TAKES)
def test_bug_wrong_kind_of_file_is_named(command: str, kind: str, tmp_path: Path) -> None:
    names = {} if kind == "plan" else {"kind": kind}
    fields = names | dict.fromkeys(("schema_version", "hetplan_version", "digest"), 1)
    path = tmp_path / "file.json"
    path.write_text(json.dumps(fields), encoding="utf-8")
    err = refused(*(path if word == "FILE" else word for word in command.split()))
    expected = "schema version 1" if kind == TAKES[command] else f"1:1: a {kind} file"
    assert expected in err


@pytest.mark.parametrize("command", COMMANDS)
def test_name_that_is_no_file_is_one_line(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A folder, a file in a file, a missing one, a name that is too long or has two lines.

    Reading stops at a size that no input has.
    """
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for name in ("", "file/inner.json", "missing.json", "x" * 300, "a\nb.json", "ü☃.json"):
        refused(command, tmp_path / name)
    monkeypatch.setattr("formulations.instance.documents.MOST_BYTES", 1000)
    assert "more than" in refused(command, "/dev/zero")


@pytest.mark.parametrize("command", COMMANDS)
def test_bug_a_pipe_without_a_writer_was_waited_for(command: str, tmp_path: Path) -> None:
    """Where nobody writes, that is said at once; what a writer sends later is read."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "a pipe that nobody writes to" in refused(command, pipe)
    writer = subprocess.Popen(["sh", "-c", 'exec >"$0"; sleep 0.1; echo "[1, 2]"', pipe])
    assert "nobody" not in refused(command, pipe)
    assert writer.wait() == 0


# Ctrl-C, whenever it comes

#: Sends itself Ctrl-C when the named module is about to be loaded.
AT_IMPORT = text_of("at_import.txt")
TEMPLATES = ("templates", "instances/oobleck_bert_large.yaml", "--faults", "1")


def ended(code: str, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("module", ["solver.cli.plans", "numpy"])
def test_bug_ctrl_c_while_loading_is_one_line(module: str) -> None:
    assert ended(AT_IMPORT, module, *TEMPLATES) == (130, "interrupted\n")


def test_bug_ctrl_c_after_the_last_line_changed_the_exit_code() -> None:
    """While the interpreter ends, what was done stays done: exit code 0."""
    late = "class Late:\n    def __del__(self): signal.raise_signal(signal.SIGINT)\n"
    loaded = "import signal\nfrom solver.cli import app\n"
    code = f"{loaded}{late}kept = Late()\napp(['catalogue', '--schema'])"
    assert ended(code) == (0, "")
