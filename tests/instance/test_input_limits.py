"""Limits of what is read: each just inside and just outside."""

import pytest
from pydantic import TypeAdapter, ValidationError

from formulations.instance import input_limits
from formulations.plan import Configuration, simulable
from tests.small_instances import plain_config, random_instance

NAMES: TypeAdapter[str] = TypeAdapter(input_limits.Name)


@pytest.mark.parametrize("name", ["x" * 200, "ü☃ 3"])
def test_names_are_one_printable_line(name: str) -> None:
    """Whatever can be printed is a name, up to 200 characters."""
    assert NAMES.validate_python(name) == name


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\x1b[31m", "\u202ea", "\ufffe"])
def test_bug_names_that_reach_the_terminal_are_refused(name: str) -> None:
    """Escapes, line breaks, what turns text round, and what XML does not allow."""
    with pytest.raises(ValidationError):
        NAMES.validate_python(name)


def test_unprintable_text_is_escaped_and_cut() -> None:
    """What a message quotes is one short line."""
    assert input_limits.printable("a\x1b\nb") == "a\\x1b\\nb"
    assert input_limits.printable("x" * 10, 8) == "xxxxx..."


def test_sum_beyond_a_limit_is_found_where_it_happens() -> None:
    """3 + 4 is within 7, one more is beyond it."""
    assert input_limits.first_beyond([3, 4], 7) is None
    assert input_limits.first_beyond([3, 4, 1], 7) == 2


def test_long_steps_are_not_simulated() -> None:
    """32,768 micro-batches of one stage, or 524,288 passes of all; one more is too many."""
    assert input_limits.can_be_simulated(8, 1 << 15, 1 << 15)
    assert not input_limits.can_be_simulated(8, (1 << 15) + 1, 1 << 15)
    assert not input_limits.can_be_simulated(1, 1 << 16, (1 << 15) + 1)


def test_steps_of_small_configs_are_simulated() -> None:
    """The configurations of tiny instances are far below the limits."""
    instance = random_instance(3)
    config: Configuration = plain_config(tuple(group.nodes for group in instance.cluster.groups))
    assert simulable(instance, config)
