"""Promises of formulations.instance.documents."""

import os
import sys
from pathlib import Path

import pytest

from formulations.errors import InstanceError
from formulations.instance.documents import (
    Place,
    csv_fields,
    csv_rows,
    json_document,
    line_and_column,
    parse_document,
    parse_json,
    read_bytes,
)

TEXT = """{ "a": [1, {"b c": "x\\"]"},
    [] ],
\t"d" : null}
"""


def test_positions_of_fields() -> None:
    """Line and column, from 1, of values and of keys, through lists, strings and white space."""
    document = json_document(TEXT, "f")
    assert document.value == {"a": [1, {"b c": 'x"]'}, []], "d": None}
    paths = ((), ("a",), ("a", 0), ("a", 1, "b c"), ("a", 2), ("d",), ("e",))
    places = "f:1:1|f:1:8 a|f:1:9 a[0]|f:1:20 a[1].b c|f:2:5 a[2]|f:3:8 d|f:1:1 e"
    assert [document.where(path) for path in paths] == places.split("|")
    assert document.where(("a", 1, "b c"), key=True) == "f:1:13 a[1].b c"
    assert document.where(("d",), key=True) == "f:3:2 d"
    assert parse_document("a:\nb: 1", "f").where(("a",)) == "f:1:1 a"  # where its value would be
    assert line_and_column("a\nbc") == "2:3"


def test_bug_a_field_twice_was_read_as_its_last_value() -> None:
    """Other readers take the first: both would call the file theirs."""
    with pytest.raises(InstanceError) as refused:
        json_document('{"a": {"b": 1,\n  "c": 2, "b": 1}}', "f")
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
    assert parse_document("a: " + "x" * 10_000, "x.yaml").value == {"a": "x" * 10_000}
    with pytest.raises(InstanceError, match="^x.yaml:" + line):
        parse_document(text, "x.yaml")


def test_json_of_too_many_values_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commas and brackets count the values: 1 list and 2 commas are 3."""
    monkeypatch.setattr("formulations.instance.documents.MOST_VALUES", 3)
    assert parse_json("[1,2,3]", "x") == [1, 2, 3]
    with pytest.raises(InstanceError, match=r"^x: 4 values; allowed: at most 3"):
        parse_json("[1,2,3,4]", "x")


def test_bug_deep_json_is_one_line() -> None:
    """Levels that the positions of fields cannot follow are refused like those that json cannot."""
    json_document("[" * 100 + "]" * 100, "x")
    for levels in (sys.getrecursionlimit() - 20, 100_000):
        with pytest.raises(InstanceError, match="too many nested levels"):
            json_document("[" * levels + "]" * levels, "x")


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    """Reading it would last for ever; a folder and a file that is not there have their reasons."""
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("pipe", "nobody writes"), ("", "is a directory"), ("x", "no such file")):
        with pytest.raises(InstanceError, match=rf"^{tmp_path / name}: .*{reason}.*; allowed: a f"):
            read_bytes(tmp_path / name, "a file")


def test_fields_of_a_csv_have_columns(tmp_path: Path) -> None:
    """From 1, of the text behind the blanks; quoted fields have none."""
    fields = [(1, [(1, "a"), (5, "bc")]), (3, [(2, "d"), (4, "")])]
    assert [*csv_fields("a,  bc\n\n d,")] == fields
    (tmp_path / "x.csv").write_text('a,"b,c"\n')
    assert csv_rows(tmp_path / "x.csv", "a table") == [["a", "b,c"]]


def test_places_of_fields() -> None:
    """Further down, an entry or the bare value in its place; unknown names with close ones."""
    place = Place(json_document('{"a": {"b": [1, 2], "c": 3}}', "f")).at("a")
    assert str(place.at("b", 1).error("x", "y")) == "f:1:17 a.b[1]: x; allowed: y"
    assert place.at("b").listed(1).path == ("a", "b", 1)
    assert place.at("c").listed(1).path == ("a", "c")
    unknown = str(place.at("c").unknown("GPU", "h10", ["H100", "L4"]))
    assert unknown == "f:1:26 a.c: unknown GPU 'h10' (did you mean H100?); allowed: H100, L4"
