"""Promises of formulations.instance.documents."""

import pytest

from formulations.errors import InstanceError
from formulations.instance.documents import json_document

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
