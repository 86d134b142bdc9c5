"""Faults that `tests.mutants` puts into modules."""

from pathlib import Path

from tests.mutants import ROOT, mutant, named_tests, places

TEXT = "def least(a, b):\n    return min(a, b) if a < b else a + b\n"


def test_every_place_gets_its_faults() -> None:
    """A comparison, a sum, min for max, and the condition negated; each changes one place."""
    changes = {mutant(Path("m.py"), TEXT, *place).what for place in places(TEXT)}
    expected = {"a < b -> a <= b", "a + b -> a - b", "min(a, b) -> max(a, b)"}
    assert changes == {*expected, "if a < b -> if not"}


def test_a_mutant_differs_in_its_line_alone() -> None:
    """The second of the two lines."""
    for place in places(TEXT):
        fault = mutant(Path("m.py"), TEXT, *place)
        assert fault.line == 2
        assert fault.text.splitlines()[0] == TEXT.splitlines()[0]
        assert fault.text.splitlines()[1] != TEXT.splitlines()[1]


def test_modules_have_their_tests() -> None:
    """In the room of their folder, or of one above; a package's file has tests of its name."""
    for module, tests in (
        ("formulations/lengths/tour.py", "lengths/test_tour.py"),
        ("solver/report/html/page.py", "report/test_page.py"),
        ("hetplan.py", "test_hetplan.py"),
    ):
        assert named_tests(Path(module)) == ROOT / "tests" / tests
    assert named_tests(Path("solver/none.py")) is None
