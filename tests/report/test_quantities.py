"""Numbers read well."""

from solver.report import quantities
from tests.conftest import text_of


def test_numbers_read_well() -> None:
    """Four significant digits, thousands apart, runs joined, a unit behind."""
    for line in text_of("quantities.txt").splitlines():
        call, expected = line.split(" | ")
        assert eval(call, vars(quantities)) == expected, call
