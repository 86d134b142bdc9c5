"""Plan files: what is read back, and what is refused with line and column."""

import re
from pathlib import Path

import pytest

from formulations.errors import InstanceError
from solver.document import PlanDocument


def refusal(path: Path, data: bytes) -> str:
    """The line that reading this as a plan file gives, without the folder."""
    path.write_bytes(data)
    with pytest.raises(InstanceError) as caught:
        PlanDocument.read(path)
    assert str(caught.value).isprintable()
    assert caught.value.exit_code == 2
    return str(caught.value).removeprefix(f"{path}:")


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("schema_version", "true", "schema_version: schema version true; allowed: 13; solve again"),
        ("schema_version", "1.0", "schema_version: schema version 1.0; allowed: 13; solve again"),
        ("seed", "true", "seed: true; allowed: a whole number"),
        ("seed", '"0"', "seed: '0'; allowed: a whole number"),
        ("seed", "0.0", "seed: 0.0; allowed: a whole number"),
        ("runtime_s", '"fast"', "runtime_s: 'fast'; allowed: a number"),
        ("runtime_s", "NaN", "runtime_s: nan; allowed: a finite number"),
        ("runtime_s", "1e999", "runtime_s: inf; allowed: a finite number"),
        ("method", "null", "method: nothing; allowed: text"),
        # the path leads through lists
        ("kernels", "true", "instance.workload.layer_runs[0].layer.kernels: true; allowed: a whol"),
    ],
)
def test_wrong_type_in_a_plan_file_is_refused(
    name: str, value: str, line: str, plan_file: Path
) -> None:
    """A field of another type is named with its line, where it begins and what is allowed."""
    good = plan_file.read_text(encoding="utf-8")
    field = re.search(rf'^( *"{name}": )[^,\n]*', good, re.MULTILINE)
    assert field is not None
    broken = good[: field.start()] + field[1] + value + good[field.end() :]
    place = f"{good[: field.start()].count(chr(10)) + 1}:{len(field[1]) + 1} "
    assert refusal(plan_file, broken.encode()).startswith(place + line)


def test_unknown_and_missing_fields_are_named(plan_file: Path) -> None:
    """A misspelt field is the one told, with the right name close by."""
    line = refusal(plan_file, plan_file.read_bytes().replace(b'"seed"', b'"sead"', 1))
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
    assert refusal(tmp_path / "plan.json", data).startswith(line)
