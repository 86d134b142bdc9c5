"""Promises of formulations.instance.documents."""

import os
import sys
from pathlib import Path

import pytest

from formulations.errors import InstanceError
from formulations.instance import documents
from tests.instance.resolved import broken
from tests.recorded import as_recorded

test_lines = broken(
    "yaml_", "billion", "syntax", "self_", "key", "nested", "utf8", "documents", "object"
)

TEXT = """{ "a": [1, {"b c": "x\\"]"},
    [] ],
\t"d" : null}
"""


def test_positions_of_fields() -> None:
    """Line and column, from 1, of values and of keys, through lists, strings and white space."""
    document = documents.json_document(TEXT, "f")
    assert document.value == {"a": [1, {"b c": 'x"]'}, []], "d": None}
    paths = ((), ("a",), ("a", 0), ("a", 1, "b c"), ("a", 2), ("d",), ("e",))
    places = "f:1:1|f:1:8 a|f:1:9 a[0]|f:1:20 a[1].b c|f:2:5 a[2]|f:3:8 d|f:1:1 e"
    assert [document.where(path) for path in paths] == places.split("|")
    assert document.where(("a", 1, "b c"), key=True) == "f:1:13 a[1].b c"
    assert document.where(("d",), key=True) == "f:3:2 d"
    assert (
        documents.parse_document("a:\nb: 1", "f").where(("a",)) == "f:1:1 a"
    )  # where its value would be
    assert documents.parse_document("a:\t1", "f").value == {"a": 1}  # tabs as in YAML 1.2
    assert documents.line_and_column("a\nbc") == "2:3"


def test_bug_a_field_twice_was_read_as_its_last_value() -> None:
    """Other readers take the first: both would call the file theirs."""
    with pytest.raises(InstanceError) as refused:
        documents.json_document('{"a": {"b": 1,\n  "c": 2, "b": 1}}', "f")
    repeated = "f:2:11 b: repeated; it stands in line 1 too; allowed: every field once"
    assert str(refused.value) == repeated


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: '" + "x" * 10_001 + "'", "1:4: a text of 10,001 characters; allowed: at most 10,000"),
        ("a: " + "1:" * 6000 + "1", "1:4: a text of 12,001 characters"),
        ("#" * (1 << 20) + "\na: 1", " more than 1 MiB"),
        ("a: !!bool x", "1:4: not a value of the kind bool"),
        ("a: 2001-99-99", "1:4: month must be in 1..12"),
    ],
    ids=range(5),
)
def test_bug_hostile_yaml_is_one_line(text: str, line: str) -> None:
    """Texts that take long to read are told with a place; others stand in tests/data."""
    assert documents.parse_document("a: " + "x" * 10_000, "x.yaml").value == {"a": "x" * 10_000}
    with pytest.raises(InstanceError, match="^x.yaml:" + line):
        documents.parse_document(text, "x.yaml")


def test_bug_deep_json_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions are told of all levels that json can read, and of no others."""
    levels = sys.getrecursionlimit() // 2
    deep = documents.json_document("[" * levels + "]" * levels, "x")
    assert deep.where([0] * (levels - 1)).startswith(f"x:1:{levels} [0][0]")
    with pytest.raises(InstanceError, match="too many nested levels"):
        documents.json_document("[" * 100_000 + "]" * 100_000, "x")
    # commas and brackets count the values: 1 list and 2 commas are 3
    monkeypatch.setattr("formulations.instance.documents.MOST_VALUES", 3)
    assert documents.parse_json("[1,2,3]", "x") == [1, 2, 3]
    with pytest.raises(InstanceError, match=r"^x: 4 values; allowed: at most 3"):
        documents.parse_json("[1,2,3,4]", "x")


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    """Reading it would last for ever; a folder and a file that is not there have their reasons."""
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("pipe", "nobody writes"), ("", "is a directory"), ("x", "no such file")):
        with pytest.raises(InstanceError, match=rf"^{tmp_path / name}: .*{reason}.*; allowed: a f"):
            documents.read_bytes(tmp_path / name, "a file")


def test_places_and_columns_are_the_recorded_ones(tmp_path: Path) -> None:
    """Errors of fields further down, entries or bare values, close names; columns of a CSV."""
    place = documents.Place(documents.json_document('{"a": {"b": [1, 2], "c": 3}}', "f")).at("a")
    (tmp_path / "x.csv").write_text('a,"b,c"\n')
    unknown = place.at("c").unknown("GPU", "h10", ["H100", "L4"])
    assert str(unknown) == "f:1:26 a.c: unknown GPU 'h10' (did you mean H100?); allowed: H100, L4"
    figures = {
        "places": [str(place.at(*path).error("x", "y")) for path in (("b", 1), ("c",), ("d", 2))],
        "listed": [list(place.at(name).listed(1).path) for name in ("b", "c")],
        "fields": [[line, list(map(list, f))] for line, f in documents.csv_fields("a,  bc\n\n d,")],
        "rows": documents.csv_rows(tmp_path / "x.csv", "a table"),
    }
    as_recorded("documents", figures)
