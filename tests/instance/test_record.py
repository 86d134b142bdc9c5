"""Promises of formulations.instance.record: what people write, and what a schema says of it."""

import re
from typing import Annotated

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from formulations.instance.load import instance_json_schema
from formulations.instance.record import (
    WRITTEN,
    Fraction,
    Name,
    OneOrMany,
    Quantity,
    Record,
    can_be_simulated,
    first_beyond,
    printable,
    shown,
)
from formulations.units import parse_quantity

SCHEMA = instance_json_schema()
NAMES: TypeAdapter[str] = TypeAdapter(Name)


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


def test_values_in_base_units() -> None:
    """Numbers or per cent; quantities with a unit; one value or several; both ends of a range."""
    shares = {0: 0.0, 0.5: 0.5, "5 %": 0.05, " 99.5% ": 0.995}
    assert [written(share=share).share for share in shares] == pytest.approx([*shares.values()])
    assert [written(time=text).time_s for text in ("1000 ms", "1 h")] == [1, 3600]
    assert written(whole_bytes="2.5 B").whole_bytes == 2
    assert Outer(time_s=0.5).time_s == 0.5  # not written by hand
    assert (written(sizes=4).sizes, written(sizes=[4, 2]).sizes) == ((4,), (4, 2))


@pytest.mark.parametrize(
    ("field", "values", "message"),
    [
        ("share", [1, -0.1, True, "5", "x %", "100 %", None], "a share from 0 to below 1"),
        ("time", ["999 ms", "3601 s"], "at least 1 s and at most 1 h"),
        ("time", [3], r"such as 2 s \(units: s, ms, us, ns, min, h\)"),
        ("sizes", [[]], "at least one value"),
        ("sizes", [[2, 3, 2]], "2 twice"),
    ],
)
def test_what_is_no_value(field: str, values: list[object], message: str) -> None:
    """1 is not below 1, true is no number, and a text needs its sign or unit."""
    for value in values:
        with pytest.raises(ValidationError, match=message):
            written(**{field: value})


def test_values_in_messages_are_short() -> None:
    """What is long is cut or counted."""
    values: list[object] = [None, True, {}, {"a": 1}, [1, 2], (), 1 << 300, "x" * 70]
    assert list(map(shown, values)) == [
        *("nothing", "true", "an empty mapping", "a mapping", "a list of 2", "an empty list"),
        *("a number of 301 bits", "'" + "x" * 56 + "..."),
    ]


@pytest.mark.parametrize(
    "text", ["40 Gbit/s", "230 GB/s", "1e9 B/s", " 12.5GiB/s ", "40", "40 GHz", "GB/s"]
)
def test_pattern_of_quantities_is_the_parser(text: str) -> None:
    """The schema's pattern takes a text exactly if the parser does."""
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


def test_sums_and_steps_beyond_a_limit() -> None:
    """3 + 4 is within 7; 32,768 micro-batches of one stage, or 524,288 passes of all, too."""
    assert first_beyond([3, 4], 7) is None
    assert first_beyond([3, 4, 1], 7) == 2
    assert can_be_simulated(8, 1 << 15, 1 << 15)
    assert not can_be_simulated(8, (1 << 15) + 1, 1 << 15)
    assert not can_be_simulated(1, 1 << 16, (1 << 15) + 1)
    # what a message quotes is one short line
    assert (printable("a\x1b\nb"), printable("x" * 10, 8)) == ("a\\x1b\\nb", "xxxxx...")
