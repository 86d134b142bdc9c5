"""Quantities with units, and the one place where real numbers become integers.

Costs are rounded up and capacities down, so that a plan that fits in integers fits in truth
and no integer step time is below the real one.
"""

import math
import re

NANOSECONDS_PER_SECOND = 1_000_000_000
SECONDS_PER_HOUR = 3600
GIB = 1 << 30

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_PREFIX = _DECIMAL | _BINARY

#: Unit -> factor to the base unit, per dimension. Bases: B, B/s, s, FLOP/s, USD/h, /h, USD.
UNITS: dict[str, dict[str, float]] = {
    "size": {f"{p}B": f for p, f in _PREFIX.items()},
    "bandwidth": {f"{p}B/s": f for p, f in _PREFIX.items()}
    | {f"{p}{bit}": f / 8 for p, f in _DECIMAL.items() for bit in ("bit/s", "b/s", "bps")},
    "time": {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60, "h": 3600},
    "compute": {f"{p}FLOP/s": f for p, f in _DECIMAL.items()},
    "price": {"USD/h": 1},
    "rate": {"/h": 1, "/day": 1 / 24},
    "money": {"USD": 1},
}
_NUMBER_AND_UNIT = re.compile(r"\s*([-+]?[0-9][0-9_]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?)\s*(\S*)\s*")


def parse_quantity(text: object, dimension: str) -> float:
    """Value in the base unit of `dimension` of a text such as "40 Gbit/s".

    Raises ValueError, with the allowed units, for a missing or wrong unit.
    """
    units = UNITS[dimension]
    examples = ", ".join(list(units)[:12])
    match = _NUMBER_AND_UNIT.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2] not in units:
        raise ValueError(f"{text!r} is not a {dimension}; write a number and one of {examples}")
    return float(match[1]) * units[match[2]]


def ceil_ns(seconds: float) -> int:
    """Nanoseconds, rounded up; a relative error of 1e-12 in the float is not rounded up."""
    return ceil_count(seconds * NANOSECONDS_PER_SECOND)


def ceil_count(value: float) -> int:
    """Least integer >= value, forgiving float noise of one part in 10^12."""
    return math.ceil(value * (1 - 1e-12))


def ceil_div(numerator: int, denominator: int) -> int:
    """Exact integer quotient, rounded up."""
    return -(-numerator // denominator)


def seconds(time_ns: int) -> float:
    """Seconds of a time in nanoseconds."""
    return time_ns / NANOSECONDS_PER_SECOND


def powers_of_two(limit: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to `limit`."""
    return tuple(1 << i for i in range(limit.bit_length()))
