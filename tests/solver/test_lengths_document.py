"""Promises of solver.lengths_document: the figures that follow from a problem and a tour."""

from formulations.lengths.problem import Atom, Mixed, Strategy, Switching
from formulations.lengths.tour import Group, GroupFigures, Hop, Single, Tour
from solver.lengths_document import step_figures

MIXED = Mixed(
    (Atom(1, 2), Atom(4, 1)),
    (Strategy("short", (), 3, 10, (5, None)), Strategy("all", (), 0, 20, (50, 60))),
    Switching(((0, 1000), (1000, 0)), ((0, 100), (100, 0))),
)


def test_figures_of_a_step_by_hand() -> None:
    """Rows 5 and 60 ns, a visit of 3, parameters out 1000 and gradients back 100, optimizer 20."""
    figures = step_figures(MIXED, Tour(1, (Group(0, (0,)), Group(1, (1,)))))
    assert figures == {
        "groups": (
            GroupFigures(0, (0,), ((0, 1),), 2, 2, (), 8),
            GroupFigures(1, (1,), ((1, 4),), 1, 4, (), 60),
        ),
        "switches": (Hop(1, 0, "parameters", 1000), Hop(0, 1, "gradients", 100)),
        "step_time_s": (5 + 3 + 60 + 1000 + 100 + 20) / 1e9,
        "single": Single(1, 50 + 60 + 20),
    }


def test_a_step_that_cannot_be_has_none() -> None:
    """A strategy that does not take a length."""
    assert step_figures(MIXED, Tour(0, (Group(0, (0, 1)),))) is None
