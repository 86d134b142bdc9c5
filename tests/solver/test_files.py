"""Plan files: what is read back, and what is refused with line and column."""

import re
from pathlib import Path

import pytest

from formulations.errors import InstanceError
from solver.document import PlanDocument
from tests.conftest import present
from tests.refusals import refusals


def refusal(path: Path, data: bytes) -> str:
    """The line that reading this as a plan file gives, without the folder."""
    path.write_bytes(data)
    with pytest.raises(InstanceError) as caught:
        PlanDocument.read(path)
    assert str(caught.value).isprintable()
    assert caught.value.exit_code == 2
    return str(caught.value).removeprefix(f"{path}:")


@refusals("plan_fields")
def test_wrong_type_in_a_plan_file_is_refused(text: str, message: str, plan_file: Path) -> None:
    """A field of another type is named with its line, where it begins and what is allowed."""
    name, value = text.split(" = ")
    good = plan_file.read_text(encoding="utf-8")
    field = present(re.search(rf'^( *"{name}": )[^,\n]*', good, re.MULTILINE))
    broken = good[: field.start()] + field[1] + value + good[field.end() :]
    place = f"{good[: field.start()].count(chr(10)) + 1}:{len(field[1]) + 1} "
    assert refusal(plan_file, broken.encode()).startswith(place + message)


def test_unknown_and_missing_fields_are_named(plan_file: Path) -> None:
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
