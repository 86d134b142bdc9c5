"""Promises of formulations.instance.validation; the lines of tests/data/errors.txt are its own."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from formulations.errors import InstanceError
from formulations.instance.documents import json_document
from formulations.instance.record import Name, Record
from formulations.instance.validation import validated, written_kind
from tests.instance.resolved import MINIMAL, PROFILE, broken, parsed
from tests.refusals import refusals


def _paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in keys:
        yield from _paths(value[key], (*path, key))  # type: ignore[index]


test_lines = broken("bug_", "unknown_", "wrong_", "missing_", "empty", "not_a", "gpu_", "tp_")

FULL = yaml.safe_load(
    MINIMAL
    + PROFILE
    + "search: {tensor_parallel: [1, 2], micro_batch: 4}\n"
    + "limits: {memory_headroom: 5 %, max_step_time: 2 s}\n"
    + "objective: {minimize: step_time, steps: 5}\n"
)
JUNK = [None, True, 0, -1, 10**30, 1.5, float("nan"), "", "x", "a\nb", [], [[1]], {}, {1: 2}]


def test_junk_in_any_field_gives_lines() -> None:
    """Whatever stands in a field, loading gives an instance or lines with a position each."""
    for i, path in enumerate(_paths(FULL)):
        for junk in JUNK[i % 7 :: 7]:  # two in every field, and all of it in neighbours
            value = copy.deepcopy(FULL)
            owner = value
            for key in path[:-1]:
                owner = owner[key]
            owner[path[-1]] = junk
            try:
                parsed(yaml.safe_dump(value))
            except InstanceError as error:
                for line in str(error).split("\n"):
                    assert line.isprintable(), (path, junk)
                    assert line.startswith("x.yaml:"), (path, junk)


class Small(Record):
    """A file of two fields."""

    name: Name
    sizes: tuple[int, ...] = ()


@refusals("forms")
def test_files_of_another_form(text: str, message: str) -> None:
    """One with more unknown fields than known ones is of another kind.

    A field that is missing beside an unknown one may just be misspelt.
    """
    with pytest.raises(InstanceError) as caught:
        validated(Small, json_document(text, "f"))
    assert "; ".join(sorted(line[:40] for line in caught.value.lines)) == message
    assert written_kind({"kind": "a b", "schema_version": 1}) is written_kind([]) is None
