"""Every Big-M is valid, and none is larger than it must be."""

from formulations.models.model import weighted
from tests.twins import MILP, check_alternatives, size_of


def test_rows_and_variables_that_say_nothing_are_left_out() -> None:
    """Of an x up to 5: at most 5 is certain, at most 4 not; a sum is a value, a difference not."""
    for most, rows in ((5, 0), (4, 1)):
        model = MILP.model()
        x, condition = model.integer("x", 5), model.literal("condition")
        model.at_most(0, x, most, condition)
        assert size_of(model)[1] == rows
        for factor, is_value in ((3, True), (-3, False)):
            term = weighted([2, factor], [x, condition])
            assert (model.maximum(1, [((), term)], 13, f"of_{most}") is term) is is_value


def test_models_of_alternatives_are_the_recorded_ones() -> None:
    check_alternatives(MILP)
