"""The CP-SAT backend: bounds as integers, and models that are none."""

import pytest
from ortools.sat.python import cp_model

from solver.backends import cpsat
from solver.options import SolveOptions
from solver.result import Status, Termination


def least(bound: int) -> cp_model.CpModel:
    model = cp_model.CpModel()
    x = model.new_int_var(0, 10, "x")
    model.add(x >= bound)
    model.minimize(x)
    return model


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
    model = cp_model.CpModel()
    x = model.new_int_var(0, 1 << 62, "x")
    model.add((1 << 40) * x <= 5)
    with pytest.raises(ValueError, match="CP-SAT refuses the model"):
        cpsat.run(model, SolveOptions())
