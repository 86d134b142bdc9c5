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
    assert document.where(()) == "f:1:1"
    assert document.where(("a",)) == "f:1:8 a"
    assert document.where(("a", 0)) == "f:1:9 a[0]"
    assert document.where(("a", 1, "b c")) == "f:1:20 a[1].b c"
    assert document.where(("a", 1, "b c"), key=True) == "f:1:13 a[1].b c"
    assert document.where(("a", 2)) == "f:2:5 a[2]"
    assert document.where(("d",)) == "f:3:8 d"
    assert document.where(("d",), key=True) == "f:3:2 d"
    assert document.where(("e",)) == "f:1:1 e"


def test_bug_a_field_twice_was_read_as_its_last_value() -> None:
    """Other readers take the first: both would call the file theirs."""
    text = '{"a": {"b": 1,\n  "c": 2, "b": 1}}'
    with pytest.raises(InstanceError) as refused:
        json_document(text, "f")
    repeated = "f:2:11 b: repeated; it stands in line 1 too; allowed: every field once"
    assert str(refused.value) == repeated


@pytest.mark.parametrize(
    ("first", "level"),
    [("b0: &x0 [1]", "&x{0} [{1}]"), ("b0: &x0 {k: 1}", "&x{0} {{<<: [{1}]}}")],
    ids=["aliases", "merge keys"],
)
def test_bug_values_written_out_by_the_billion_are_refused(first: str, level: str) -> None:
    """Aliases and merge keys are counted as what they stand for, here 8^12, before they are."""
    lines = [f"b{i + 1}: " + level.format(i + 1, ", ".join([f"*x{i}"] * 8)) for i in range(12)]
    with pytest.raises(InstanceError, match=r"^x.yaml: .* values; allowed: at most 200,000 in"):
        parse_document(first + "\n" + "\n".join(lines), "x.yaml")


def test_shared_values_have_positions_of_their_own_file_line() -> None:
    """A value that stands in two places by an alias is found at both."""
    document = parse_document("a: &x [1, 2]\nb: {<<: {c: *x}}\n", "x.yaml")
    assert document.has(("b", "c", 1))
    assert document.value == {"a": [1, 2], "b": {"c": [1, 2]}}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: '" + "x" * 10_001 + "'", r"1:4: a text of 10,001 characters; allowed: at most 10,000"),
        ("a: " + "1:" * 6000 + "1", "1:4: a text of 12,001 characters"),
        ("a: !!bool x", "1:4: not a value of the kind bool; allowed: valid YAML"),
        ("a: !!int ''", "1:4: not a value of the kind int"),
        ("a: !!timestamp x", "1:4: not a value of the kind timestamp"),
        ("#" * (1 << 20) + "\na: 1", " more than 1 MiB"),
    ],
    ids=range(6),
)
def test_bug_hostile_yaml_is_one_line(text: str, line: str) -> None:
    """Explicit kinds that do not fit, and texts that take long to read, are told with a place."""
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

    def nested(levels: int) -> None:
        json_document("[" * levels + "]" * levels, "x")

    nested(100)
    for levels in (sys.getrecursionlimit() - 20, 100_000):
        with pytest.raises(InstanceError, match="too many nested levels"):
            nested(levels)


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    """Reading it would last for ever; a folder and a file that is not there have their reasons."""
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("pipe", "nobody writes"), ("", "is a directory"), ("x", "no such file")):
        with pytest.raises(InstanceError, match=reason):
            read_bytes(tmp_path / name, "a file")


def test_fields_of_a_csv_have_columns(tmp_path: Path) -> None:
    """From 1, of the text behind the blanks; quoted fields have none."""
    assert [*csv_fields("a,  bc\n\n d,")] == [
        (1, [(1, "a"), (5, "bc")]),
        (3, [(2, "d"), (4, "")]),
    ]
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
