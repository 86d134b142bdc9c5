"""Promises of formulations.units: costs round up, capacities down, texts need their units."""

import pytest

from formulations.units import ceil_count, ceil_div, ceil_ns, parse_quantity, seconds
from tests.recorded import as_recorded


def test_quantities() -> None:
    """A number and one of the dimension's units, in the base unit."""
    texts = {"1.5 GiB": "size", "8 Gbit/s": "bandwidth", "8 kbps": "bandwidth", "-2e3us": "time"}
    texts |= {" 1_000 TFLOP/s ": "compute", "2 /day": "rate"}
    as_recorded("units", {text: parse_quantity(text, unit) for text, unit in texts.items()})
    assert parse_quantity("8 Gbit/s", "bandwidth") == 1e9


@pytest.mark.parametrize("text", ["5", "GB", "5 GB/s", "5 gb", "1.2.3 GB", 5, None])
def test_texts_without_their_unit_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"is not a size; write a number and one of B, kB, MB"):
        parse_quantity(text, "size")


def test_rounding() -> None:
    """Up, but for a float's noise of one part in 10^12."""
    assert (ceil_count(2.0000001), ceil_count(2 + 1e-12), ceil_count(2.0)) == (3, 2, 2)
    assert (ceil_ns(1e-9), ceil_ns(1.1e-9), seconds(1_500_000_000)) == (1, 2, 1.5)
    assert [ceil_div(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
