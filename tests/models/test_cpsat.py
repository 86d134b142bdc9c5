"""CP-SAT's own: objectives with constants."""

from formulations.models.cpsat import CpSat
from formulations.models.model import weighted
from tests.twins import CPSAT, check_alternatives, solved


def test_constants_count_in_what_is_minimised() -> None:
    """7 as it is; 2 x + 5 of x from 3 on."""
    model = CpSat()
    model.minimize(7)
    assert solved(model).objective == 7
    x = model.integer("x", 9)
    model.at_most(0, 3, x)
    model.minimize(weighted([2, 5], [x, 1]))
    assert solved(model).objective == 11
    model.within(0, x, None, 4)
    model.minimize(weighted([-1], [x]))
    assert solved(model).objective == -4


def test_models_of_alternatives_are_the_recorded_ones() -> None:
    check_alternatives(CPSAT)
