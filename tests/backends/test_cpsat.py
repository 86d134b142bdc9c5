"""The CP-SAT backend speaks the project's words, as that of HiGHS does."""

from collections.abc import Callable

import pytest
from ortools.sat.python import cp_model

from solver.backends import cpsat, highs
from solver.backends.outcome import Outcome
from solver.options import SolveOptions
from solver.result import Status, Termination
from tests.backends import test_highs as test_highs_backend


def least(bound: int) -> cp_model.CpModel:
    model = cp_model.CpModel()
    x = model.new_int_var(0, 10, "x")
    model.add(x >= bound)
    model.minimize(x)
    return model


Solved = Callable[[int], Outcome]


@pytest.fixture(params=["cpsat", "highs"])
def solved(request: pytest.FixtureRequest) -> Solved:
    if request.param == "highs":
        return lambda bound: highs.run(test_highs_backend.least(bound), SolveOptions())
    return lambda bound: cpsat.run(least(bound), SolveOptions())


@pytest.mark.parametrize("found", [3, 0, None])
def test_closed_models(solved: Solved, found: int | None) -> None:
    """A solved model has objective, equal bound and values, else none; an optimum of 0 is one."""
    outcome = solved(11 if found is None else found)
    status = Status.INFEASIBLE if found is None else Status.OPTIMAL
    assert (outcome.status, outcome.termination) == (status, Termination.CLOSED)
    assert (outcome.objective, outcome.bound) == (found, found)
    assert (outcome.values and outcome.values[0]) == (found and pytest.approx(found))


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
