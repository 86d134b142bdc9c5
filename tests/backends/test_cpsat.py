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
    """Minimise x, with bound <= x <= 10."""
    model = cp_model.CpModel()
    x = model.new_int_var(0, 10, "x")
    model.add(x >= bound)
    model.minimize(x)
    return model


Solved = Callable[[int], Outcome]


@pytest.fixture(params=["cpsat", "highs"])
def solved(request: pytest.FixtureRequest) -> Solved:
    """What an engine says of such a model."""
    if request.param == "highs":
        return lambda bound: highs.run(test_highs_backend.least(bound), SolveOptions())
    return lambda bound: cpsat.run(least(bound), SolveOptions())


def test_optimal(solved: Solved) -> None:
    """A solved model has objective, equal bound and values in the order of its variables."""
    outcome = solved(3)
    assert (outcome.status, outcome.termination) == (Status.OPTIMAL, Termination.CLOSED)
    assert (outcome.objective, outcome.bound) == (3, 3)
    assert (outcome.values or ())[0] == pytest.approx(3)


def test_objective_zero_is_a_solution(solved: Solved) -> None:
    """An optimum of 0 is not mistaken for none."""
    outcome = solved(0)
    assert (outcome.status, outcome.objective, outcome.bound) == (Status.OPTIMAL, 0, 0)


def test_infeasible(solved: Solved) -> None:
    """Without a solution there is neither objective nor bound nor values."""
    outcome = solved(11)
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
