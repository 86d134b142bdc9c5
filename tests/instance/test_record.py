"""Promises of formulations.instance.record: what people write, and what a schema says of it."""

import re
from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from formulations.instance.load import instance_json_schema
from formulations.instance.record import (
    WRITTEN,
    Fraction,
    OneOrMany,
    Quantity,
    Record,
    shown,
)
from formulations.units import parse_quantity

SCHEMA = instance_json_schema()


class Inner(Record):
    """A record in a record."""

    a: int = 1
    b: int = 2


class Outer(Record):
    """Every field type of what people write."""

    inner: Inner = Inner()
    share: Fraction = 0.0
    sizes: Annotated[tuple[int, ...], OneOrMany()] = (1,)
    time_s: Annotated[float, Quantity("time", most="1 h", example="2 s", least="1 s")] = Field(
        default=1.0, validation_alias="time"
    )
    whole_bytes: Annotated[int, Quantity("size", most="1 GiB", example="1 B")] = 0


def written(**fields: object) -> Outer:
    """As people write it."""
    return Outer.model_validate(fields, by_alias=True, by_name=False, context=WRITTEN)


def test_a_mapping_changes_fields_of_a_record_in_a_record() -> None:
    """All other fields stay; the first value is not touched."""
    outer = Outer(inner=Inner(a=5))
    assert outer.but(inner={"b": 7}).inner == Inner(a=5, b=7)
    assert outer.inner == Inner(a=5)


@pytest.mark.parametrize(
    ("value", "share"), [(0, 0.0), (0.5, 0.5), ("5 %", 0.05), (" 99.5% ", 0.995)]
)
def test_shares(value: object, share: float) -> None:
    """Numbers from 0 to below 1, or per cent."""
    assert written(share=value).share == pytest.approx(share)


@pytest.mark.parametrize("value", [1, -0.1, True, "5", "x %", "100 %", None])
def test_what_is_no_share(value: object) -> None:
    """1 is not below 1, true is no number, and a text needs its sign."""
    with pytest.raises(ValidationError, match="a share from 0 to below 1"):
        written(share=value)


def test_quantities_have_units_where_people_write_them() -> None:
    """And are numbers in the base unit elsewhere; both ends of the range are in it."""
    assert written(time="1000 ms").time_s == 1.0
    assert written(time="1 h").time_s == 3600
    assert written(whole_bytes="2.5 B").whole_bytes == 2
    assert Outer(time_s=0.5).time_s == 0.5
    for outside in ("999 ms", "3601 s"):
        with pytest.raises(ValidationError, match="at least 1 s and at most 1 h"):
            written(time=outside)
    with pytest.raises(ValidationError, match=r"such as 2 s \(units: s, ms, us, ns, min, h\)"):
        written(time=3)


def test_one_value_or_several_different_ones() -> None:
    """An empty list and a value twice are refused."""
    assert (written(sizes=4).sizes, written(sizes=[4, 2]).sizes) == ((4,), (4, 2))
    for wrong, message in (([], "at least one value"), ([2, 3, 2], "2 twice")):
        with pytest.raises(ValidationError, match=message):
            written(sizes=wrong)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "nothing"),
        (True, "true"),
        ({}, "an empty mapping"),
        ({"a": 1}, "a mapping"),
        ([1, 2], "a list of 2"),
        ((), "an empty list"),
        (1 << 300, "a number of 301 bits"),
        ("x" * 70, "'" + "x" * 56 + "..."),
    ],
)
def test_values_in_messages_are_short(value: object, text: str) -> None:
    """What is long is cut or counted."""
    assert shown(value) == text


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("40 Gbit/s", True),
        ("230 GB/s", True),
        ("1e9 B/s", True),
        (" 12.5GiB/s ", True),
        ("40", False),
        ("40 GHz", False),
        ("GB/s", False),
    ],
)
def test_pattern_of_quantities_is_the_parser(text: str, fits: bool) -> None:
    """The schema's pattern takes a text exactly if the parser does."""
    pattern = SCHEMA["$defs"]["LinkFile"]["properties"]["bandwidth"]["pattern"]
    assert bool(re.search(pattern, text)) is fits
    try:
        parse_quantity(text, "bandwidth")
    except ValueError:
        assert not fits
    else:
        assert fits


def test_bare_value_or_list() -> None:
    """Search fields take one value or a list of different ones."""
    field = SCHEMA["$defs"]["SearchFile"]["properties"]["recompute"]
    bare, several = field["anyOf"]
    assert bare["enum"] == ["none", "selective", "full"]
    assert (several["type"], several["items"], several["uniqueItems"]) == ("array", bare, True)
