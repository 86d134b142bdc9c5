"""Both backends tell outcomes in the project's words."""

from collections.abc import Callable

import pytest

from solver.backends import cpsat, highs
from solver.backends.outcome import Outcome
from solver.options import SolveOptions
from solver.result import Status, Termination
from tests.backends import test_cpsat as of_cpsat
from tests.backends import test_highs as of_highs

Solved = Callable[[int], Outcome]


@pytest.fixture(params=["cpsat", "highs"])
def solved(request: pytest.FixtureRequest) -> Solved:
    if request.param == "highs":
        return lambda bound: highs.run(of_highs.least(bound), SolveOptions())
    return lambda bound: cpsat.run(of_cpsat.least(bound), SolveOptions())


@pytest.mark.parametrize("found", [3, 0, None])
def test_closed_models(solved: Solved, found: int | None) -> None:
    """A solved model has objective, equal bound and values, else none; an optimum of 0 is one."""
    outcome = solved(11 if found is None else found)
    status = Status.INFEASIBLE if found is None else Status.OPTIMAL
    assert (outcome.status, outcome.termination) == (status, Termination.CLOSED)
    assert (outcome.objective, outcome.bound) == (found, found)
    assert (outcome.values and outcome.values[0]) == (found and pytest.approx(found))
