"""Faults that `tests.mutants` puts into modules."""

from pathlib import Path

from tests.mutants import ROOT, mutant, named_tests, places

TEXT = "def least(a, b):\n    return min(a, b) if a < b else a + b\n"


def test_every_place_gets_its_faults() -> None:
    """A comparison, a sum, min for max, and the condition negated; each changes one place."""
    faults = [mutant(Path("m.py"), TEXT, *place) for place in places(TEXT)]
    expected = {"a < b -> a <= b", "a + b -> a - b", "min(a, b) -> max(a, b)"}
    assert {fault.what for fault in faults} == {*expected, "if a < b -> if not"}
    for fault in faults:
        first, second = fault.text.splitlines()
        assert (fault.line, first) == (2, TEXT.splitlines()[0])
        assert second != TEXT.splitlines()[1]


def test_modules_have_their_tests() -> None:
    """In the room of their folder, or of one above; a package's file has tests of its name."""
    tour = named_tests(Path("formulations/lengths/tour.py"))
    assert tour == ROOT / "tests" / "lengths" / "test_tour.py"
    page = named_tests(Path("solver/report/html/page.py"))
    assert page == ROOT / "tests" / "report" / "test_page.py"
    assert named_tests(Path("hetplan.py")) == ROOT / "tests" / "test_hetplan.py"
    assert named_tests(Path("solver/none.py")) is None
