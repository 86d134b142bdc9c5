"""The CP-SAT backend speaks the project's words."""

import pytest
from ortools.sat.python import cp_model

from solver.backends import cpsat
from solver.options import SolveOptions
from solver.result import Status, Termination


def least(bound: int) -> cp_model.CpModel:
    """Minimise x, with bound <= x <= 10."""
    model = cp_model.CpModel()
    x = model.new_int_var(0, 10, "x")
    model.add(x >= bound)
    model.minimize(x)
    return model


def test_optimal() -> None:
    """A solved model has objective, equal bound and values by variable."""
    outcome = cpsat.run(least(3), SolveOptions())
    assert (outcome.status, outcome.termination) == (Status.OPTIMAL, Termination.CLOSED)
    assert (outcome.objective, outcome.bound) == (3, 3)
    assert list(outcome.values or ()) == [3]


def test_objective_zero_is_a_solution() -> None:
    """An optimum of 0 is not mistaken for none."""
    outcome = cpsat.run(least(0), SolveOptions())
    assert (outcome.status, outcome.objective, outcome.bound) == (Status.OPTIMAL, 0, 0)


def test_infeasible() -> None:
    """Without a solution there is neither objective nor bound nor values."""
    outcome = cpsat.run(least(11), SolveOptions())
    assert (outcome.status, outcome.termination) == (Status.INFEASIBLE, Termination.CLOSED)
    assert (outcome.objective, outcome.bound, outcome.values) == (None, None, None)


def test_unknown_is_not_infeasible() -> None:
    """Stopped before it began, the engine knows nothing but a valid bound."""
    outcome = cpsat.run(least(3), SolveOptions(time_limit_s=0.0))
    assert (outcome.status, outcome.termination) == (Status.UNKNOWN, Termination.TIME_LIMIT)
    assert outcome.values is None
    assert outcome.bound is None or outcome.bound <= 3


def test_bound_is_the_integer_that_was_proved() -> None:
    """Above 2^53 a float is rounded to even numbers: 2^53 + 1, and 7 that the model adds."""
    model = cp_model.CpModel()
    model.minimize(model.new_int_var(2**53 + 1, 2**54, "x") + 7)
    assert cpsat.run(model, SolveOptions()).bound == 2**53 + 8


def test_invalid_model_is_refused() -> None:
    """A model that CP-SAT does not accept raises, with its reason."""
    model = cp_model.CpModel()
    x = model.new_int_var(0, 1 << 62, "x")
    model.add((1 << 40) * x <= 5)
    with pytest.raises(ValueError, match="CP-SAT refuses the model"):
        cpsat.run(model, SolveOptions())
