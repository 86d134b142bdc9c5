"""Promises of formulations.instance.record: what people write, and what a schema says of it."""

import re
from math import floor
from typing import Annotated

import pytest
from pydantic import Field, Tag, TypeAdapter, ValidationError

from formulations.instance import record
from formulations.instance.load import instance_json_schema
from formulations.units import parse_quantity
from tests.recorded import as_recorded, digest

SCHEMA = instance_json_schema()
NAMES: TypeAdapter[str] = TypeAdapter(record.Name)


class Inner(record.Record):
    """A record in a record."""

    a: int = 1
    b: int = 2


Whole = Annotated[int, Tag(record.NUMBER)]


class Outer(record.Record):
    """Every field type of what people write."""

    inner: Inner = Inner()
    share: record.Fraction = 0.0
    sizes: Annotated[tuple[int, ...], record.OneOrMany()] = (1,)
    time_s: Annotated[float, record.Quantity("time", "1 s", "1 h", "2 s")] = Field(
        default=1.0, validation_alias="time"
    )
    whole_bytes: Annotated[int, record.Quantity("size", "0", "1 GiB", "1 B", floor)] = 0
    either: Annotated[Whole | Annotated[Inner, Tag(record.MAPPING)], record.NUMBER_OR_MAPPING] = 1
    several: Annotated[Whole | Annotated[list[int], Tag(record.LIST)], record.NUMBER_OR_LIST] = 1
    named: record.NameOr[Inner] = "x"


def written(**fields: object) -> Outer:
    return Outer.model_validate(fields, by_alias=True, by_name=False, context=record.WRITTEN)


@pytest.mark.parametrize(
    "text", ["40 Gbit/s", "230 GB/s", "1e9 B/s", " 12.5GiB/s ", "40", "40 GHz", "GB/s"]
)
def test_pattern_of_quantities_is_the_parser(text: str) -> None:
    pattern = SCHEMA["$defs"]["LinkFile"]["properties"]["bandwidth"]["pattern"]
    if re.search(pattern, text):
        assert parse_quantity(text, "bandwidth") > 0
    else:
        with pytest.raises(ValueError, match="write a number and one of B/s"):
            parse_quantity(text, "bandwidth")


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\x1b[31m", "\u202ea", "\ufffe"])
def test_bug_names_that_reach_the_terminal_are_refused(name: str) -> None:
    """Escapes, line breaks, what turns text round, and what XML does not allow."""
    with pytest.raises(ValidationError):
        NAMES.validate_python(name)
    for name in ("x" * 200, "ü☃ 3"):
        assert NAMES.validate_python(name) == name


def test_values_and_messages_are_the_recorded_ones() -> None:
    """1 is not below 1, true is no number, a text needs its sign or unit; what is long is cut."""
    tried: dict[str, list[object]] = {
        "share": [1, -0.1, True, "5", "x %", "100 %", None, 0, "5 %", " 99.5% "],
        "time": ["999 ms", "3601 s", 3, "1 h", "1 s"],
        "sizes": [[], [2, 3, 2], 4, [4, 2]],
        "whole_bytes": ["2.5 B", "1 GiB", "1.1 GiB", 3],
        "either": [3, {"a": 2}, "3"],
        "several": [3, [1, 2], "3"],
        "named": ["y", {"a": 3}, 3],
    }
    figures: dict[str, object] = {}
    for field, values in tried.items():
        for value in values:
            try:
                figures[f"{field} {value}"] = digest(written(**{field: value}))
            except ValidationError as error:
                figures[f"{field} {value}"] = error.errors()[0]["msg"]
    values = [None, True, {}, {"a": 1}, [1, 2], (), 1 << 300, "x" * 70]
    figures["shown"] = list(map(record.shown, values))
    figures["most"] = [record.MOST_CHAIN, record.MOST_ZONE_PAIRS]
    figures["printable"] = [
        record.printable("a\x1b\nb"),
        record.printable("x" * 10, 8),
        record.printable("x" * 8, 8),
    ]
    limits = ((8, 1 << 15), (8, (1 << 15) + 1), (1, 1 << 16))
    figures["simulated"] = [record.can_be_simulated(p, m, min(m, 1 << 15)) for p, m in limits]
    figures["simulated"] = [
        figures["simulated"],
        record.can_be_simulated(1, 1 << 16, (1 << 15) + 1),
    ]
    figures["beyond"] = [record.first_beyond(counts, 7) for counts in ([3, 4], [3, 4, 1], [8])]
    as_recorded("record", figures)
    outer = Outer(inner=Inner(a=5))
    assert (outer.but(inner={"b": 7}).inner, outer.inner) == (Inner(a=5, b=7), Inner(a=5))
