"""Terms that may be constants, and maxima under literals."""

import pytest
from ortools.sat.python import cp_model

from formulations.cpsat.terms import Literal, enforced_maximum, require_at_most, value_of, weighted
from solver.result import Status
from tests.twins import solved


def test_weighted_sum_of_constants_is_an_int() -> None:
    """2 x 1 + 3 x 0 + 5 x 1 = 7."""
    assert weighted([2, 3, 5], [1, 0, 1]) == 7


def test_weighted_sum_of_both() -> None:
    """A variable at 1 adds its value to the constant: 2 + 3."""
    model = cp_model.CpModel()
    literal = model.new_bool_var("literal")
    model.add(literal == 1)
    model.minimize(weighted([2, 3], [1, literal]))
    assert solved(model).objective == 5


def test_value_of_constant_and_variable() -> None:
    """A constant is its own value; a variable's stands at its index."""
    model = cp_model.CpModel()
    model.new_bool_var("first")
    assert value_of(1, [0, 0]) == 1
    assert value_of(model.new_bool_var("second"), [0, 1]) == 1


@pytest.mark.parametrize(("left", "status"), [(4, Status.OPTIMAL), (5, Status.INFEASIBLE)])
def test_constants_are_compared(left: int, status: Status) -> None:
    """4 <= 4 holds, 5 <= 4 does not."""
    model = cp_model.CpModel()
    require_at_most(model, left, 4)
    assert solved(model).status is status


def test_broken_constants_forbid_their_literal() -> None:
    """5 <= 4 under a literal makes the literal false."""
    model = cp_model.CpModel()
    literal = model.new_bool_var("literal")
    require_at_most(model, 5, 4, literal)
    model.minimize(-literal)
    assert solved(model).objective == 0


def test_false_literal_drops_the_row() -> None:
    """Under a literal that is 0 nothing is required."""
    model = cp_model.CpModel()
    require_at_most(model, 5, 4, 0)
    assert solved(model).status is Status.OPTIMAL


@pytest.mark.parametrize(("first", "second", "largest"), [(0, 0, 2), (1, 0, 7), (1, 1, 9)])
def test_enforced_maximum(first: int, second: int, largest: int) -> None:
    """The largest of 2, of 7 under the first and of 9 under both literals."""
    model = cp_model.CpModel()
    literals = [model.new_bool_var(name) for name in ("first", "second")]
    for literal, value in zip(literals, (first, second), strict=True):
        model.add(literal == value)
    terms: list[tuple[tuple[Literal, ...], int]] = [
        ((1,), 2),
        ((literals[0],), 7),
        ((literals[0], literals[1]), 9),
    ]
    model.minimize(enforced_maximum(model, terms, 9, "largest"))
    assert solved(model).objective == largest


def test_maximum_of_constants_needs_no_variable() -> None:
    """Terms that are all certain fold to an int, none at all to 0."""
    model = cp_model.CpModel()
    assert enforced_maximum(model, [((1,), 2), ((1,), 5), ((0,), 9)], 9, "largest") == 5
    assert enforced_maximum(model, [], 0, "none") == 0
    assert len(model.proto.variables) == 0
