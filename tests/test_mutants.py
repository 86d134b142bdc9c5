"""Faults that `tests.mutants` puts into modules."""

from pathlib import Path

from tests.mutants import mutant, places

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
