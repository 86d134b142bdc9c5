"""Limits of what is read: each just inside and just outside."""

import pytest
from pydantic import TypeAdapter, ValidationError

from formulations.instance import input_limits

NAMES: TypeAdapter[str] = TypeAdapter(input_limits.Name)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\x1b[31m", "\u202ea", "\ufffe"])
def test_bug_names_that_reach_the_terminal_are_refused(name: str) -> None:
    """Escapes, line breaks, what turns text round, and what XML does not allow."""
    with pytest.raises(ValidationError):
        NAMES.validate_python(name)
    for printable in ("x" * 200, "ü☃ 3"):
        assert NAMES.validate_python(printable) == printable


def test_unprintable_text_is_escaped_and_cut() -> None:
    """What a message quotes is one short line."""
    assert input_limits.printable("a\x1b\nb") == "a\\x1b\\nb"
    assert input_limits.printable("x" * 10, 8) == "xxxxx..."


def test_sums_and_steps_beyond_a_limit() -> None:
    """3 + 4 is within 7; 32,768 micro-batches of one stage, or 524,288 passes of all, too."""
    assert input_limits.first_beyond([3, 4], 7) is None
    assert input_limits.first_beyond([3, 4, 1], 7) == 2
    assert input_limits.can_be_simulated(8, 1 << 15, 1 << 15)
    assert not input_limits.can_be_simulated(8, (1 << 15) + 1, 1 << 15)
    assert not input_limits.can_be_simulated(1, 1 << 16, (1 << 15) + 1)
