"""Numbers read well."""

import pytest

from solver.report.quantities import (
    counted,
    decimal_text,
    money,
    node_ranges,
    percent,
    ranges,
    round_time_text,
    significant,
    size_text,
    time_text,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (significant(1234.56), "1,235"),
        (significant(0.00123456), "0.001235"),
        (significant(0), "0"),
        (time_text(1.23456), "1.235 s"),
        (time_text(0.0123456), "12.35 ms"),
        (time_text(4e-7), "400.0 ns"),
        (time_text(0.0123456, like=2.0), "0.012 s"),
        (time_text(0.0, like=0.0123), "0 ms"),
        (round_time_text(0.3, like=0.9), "300 ms"),
        (size_text(40 << 30), "40.00 GiB"),
        (size_text(512 << 20, like=40 << 30), "0.50 GiB"),
        (decimal_text(312e12, "FLOP/s"), "312 TFLOP/s"),
        (percent(0.0), "0 %"),
        (percent(0.0123), "1.2 %"),
        (percent(0.00001234), "0.0012 %"),
        (money(0.0052954), "0.005295 USD"),
        (money(1234.5), "1,234.50 USD"),
        (counted(1, "stage"), "1 stage"),
        (counted(2048, "stage"), "2,048 stages"),
        (ranges([3, 0, 1, 2, 6]), "0-3, 6"),
        (node_ranges(["a10-1", "a10-0", "a100-0"]), "a10-0..1, a100-0"),
    ],
)
def test_numbers_read_well(text: str, expected: str) -> None:
    """Four significant digits, thousands apart, runs joined, a unit behind."""
    assert text == expected
