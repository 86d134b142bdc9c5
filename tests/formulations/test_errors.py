"""Promises of formulations.errors: one line each, in the order of the file."""

import pytest

from formulations.errors import MOST_LINES, InstanceError, Mistakes, all_of, joined


def at(line: int, column: int = 1) -> InstanceError:
    return InstanceError(f"f:{line}:{column} x", "a", "b")


def test_errors_are_told_once_by_line_and_column() -> None:
    """10 after 9; those without a place follow; those of errors that are several themselves too."""
    assert joined([at(1), at(1)]).lines == at(1).lines == ("f:1:1 x: a; allowed: b",)
    several = joined([InstanceError("--nodes", "a", "b"), at(10), joined([at(9, 20), at(9, 3)])])
    places = [error.where for error in several.errors]
    assert places == ["f:9:3 x", "f:9:20 x", "f:10:1 x", "--nodes"]
    assert several.where == "f:9:3 x"
    many = joined(at(line) for line in range(1, MOST_LINES + 3))
    assert len(joined(at(line) for line in range(MOST_LINES)).lines) == MOST_LINES
    assert (len(many.lines), many.lines[-1]) == (MOST_LINES + 1, "and 2 more")


def test_mistakes_are_noted_until_they_are_told() -> None:
    """What a check returns, or nothing where it refuses."""

    def check(number: int) -> int:
        if number > 1:
            raise at(number)
        return number

    wrong = Mistakes()
    wrong.tell()
    assert [wrong.of(check, number) for number in (1, 3, 2)] == [1, None, None]
    with pytest.raises(InstanceError, match=r"^f:2:1 x"):
        wrong.tell()
    assert all_of([lambda: check(1), lambda: check(0)]) == [1, 0]
    with pytest.raises(InstanceError) as caught:
        all_of([lambda: check(3), lambda: check(2)])
    assert len(caught.value.errors) == 2
