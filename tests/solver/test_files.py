"""Plan files: what is read back, and what is refused with line and column."""

import re
from pathlib import Path

import pytest

from formulations.errors import InstanceError
from solver.document import PlanDocument


def refusal(path: Path, text: str | bytes) -> str:
    """The line that reading this text as a plan file gives, without the folder."""
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(InstanceError) as caught:
        PlanDocument.read(path)
    assert str(caught.value).isprintable()
    assert caught.value.exit_code == 2
    return str(caught.value).removeprefix(f"{path}:")


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("schema_version", "true", ": schema version true; allowed: 11; solve again"),
        ("schema_version", "1.0", ": schema version 1.0; allowed: 11; solve again"),
        ("seed", "true", ": true; allowed: a whole number"),
        ("seed", '"0"', ": '0'; allowed: a whole number"),
        ("seed", "0.0", ": 0.0; allowed: a whole number"),
        ("runtime_s", '"fast"', ": 'fast'; allowed: a number"),
        ("runtime_s", "NaN", ": nan; allowed: a finite number"),
        ("runtime_s", "1e999", ": inf; allowed: a finite number"),
        ("method", "null", ": nothing; allowed: text"),
        ("node_order", "{}", ": an empty mapping; allowed: a list"),
    ],
)
def test_wrong_type_in_a_plan_file_is_refused(
    name: str, value: str, line: str, plan_file: Path
) -> None:
    """A field of another type is named with its line, where it begins and what is allowed."""
    good = plan_file.read_text(encoding="utf-8")
    start = re.search(rf'^ "{name}": ', good, re.MULTILINE)
    assert start is not None
    old = re.compile(r"\[[^]]*\]|[^,\n]*").match(good, start.end())
    assert old is not None
    broken = good[: start.end()] + value + good[old.end() :]
    number = good[: start.end()].count("\n") + 1
    column = len(start.group()) + 1
    assert refusal(plan_file, broken) == f"{number}:{column} {name}{line}"


def test_wrong_type_deep_in_a_plan_file_is_refused(plan_file: Path) -> None:
    """The path leads through lists; six levels of one space and `"kernels": ` stand before."""
    broken = plan_file.read_text().replace('"kernels": 1', '"kernels": true', 1)
    line = refusal(plan_file, broken)
    end = "instance.workload.layer_runs[0].layer.kernels: true; allowed: a whole number"
    assert re.fullmatch(rf"\d+:18 {re.escape(end)}", line), line


def test_unknown_and_missing_fields_are_named(plan_file: Path) -> None:
    """A misspelt field is the one told, with the right name close by."""
    broken = plan_file.read_text().replace('"seed"', '"sead"', 1)
    line = refusal(plan_file, broken)
    assert "sead: unknown field (did you mean seed?); allowed: " in line


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "1:1: Expecting value; allowed: valid JSON"),
        (b"{}", "1:1: an empty mapping; allowed: a plan file written by solve --out"),
        (b"[]", "1:1: an empty list; allowed: a plan file written by solve --out"),
        (b'{\n "a" 1}', "2:6: Expecting ':' delimiter; allowed: valid JSON"),
        (b'{"a": \xff}', "1:7: byte 0xff; allowed: text in UTF-8"),
        (b"[" * 100_000, "1:1: too many nested levels; allowed: at most some 100"),
        (b"9" * 5000, "1:1: "),
    ],
)
def test_what_is_no_plan_file_is_one_line(data: bytes, line: str, tmp_path: Path) -> None:
    """Whatever stands in the file, reading it gives one line with a position."""
    assert refusal(tmp_path / "plan.json", data).startswith(line)
