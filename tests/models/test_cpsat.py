"""CP-SAT's own: objectives with constants, and products."""

from formulations.models.cpsat import CpSat
from formulations.models.model import weighted
from tests.twins import CPSAT, check_alternatives, solved


def test_constants_count_in_what_is_minimised() -> None:
    """7 as it is; of x from 3 on and y from 2 on, 2 x + 5 and x y."""
    model = CpSat()
    model.minimize(7)
    assert solved(model).objective == 7
    x, y = model.integer("x", 9), model.integer("y", 9)
    model.at_most(0, 3, x)
    model.at_most(0, 2, y)
    for term, least in ((weighted([2, 5], [x, 1]), 11), (model.product("xy", 81, x, y), 6)):
        model.minimize(term)
        assert solved(model).objective == least
    model.within(0, x, None, 4)
    model.minimize(weighted([-1], [x]))
    assert solved(model).objective == -4


def test_models_of_alternatives_are_the_recorded_ones() -> None:
    check_alternatives(CPSAT)
