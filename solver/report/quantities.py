"""Numbers as people read them: four significant digits, always with a unit."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def significant(value: float, digits: int = 4) -> str:
    """The value with this many significant digits, thousands apart; never in exponent form."""
    if not value:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    decimals = max(0, digits - 1 - exponent)
    return f"{value:,.{decimals}f}"


@dataclass(frozen=True)
class Unit:
    """A unit, and the decimals with which all numbers of a column are written in it."""

    name: str
    factor: float
    decimals: int

    def number(self, value: float) -> str:
        """The value in this unit, without its name."""
        return f"{value / self.factor:,.{self.decimals}f}" if value else "0"

    def text(self, value: float) -> str:
        """The value in this unit, with its name."""
        return f"{self.number(value)} {self.name}"


@dataclass(frozen=True)
class Scale:
    """Units of one quantity, largest first, each with its factor and name; significant digits."""

    units: Sequence[tuple[float, str]]
    digits: int = 4

    def unit(self, largest: float) -> Unit:
        """The unit of a column: it shows the largest value with as many digits."""
        factor, name = next((row for row in self.units if abs(largest) >= row[0]), self.units[-1])
        exponent = math.floor(math.log10(abs(largest) / factor)) if largest else self.digits
        return Unit(name, factor, max(0, self.digits - 1 - exponent))

    def text(self, value: float, like: float | None = None) -> str:
        """The value in a fitting unit; `like`: in the unit and with the decimals of that one."""
        return self.unit(value if like is None else like).text(value)


_SECONDS = Scale(((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")))
_BYTES = Scale(((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")))
time_unit, time_text = _SECONDS.unit, _SECONDS.text  #: of seconds
size_unit, size_text = _BYTES.unit, _BYTES.text  #: of bytes
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
work_unit = Scale([(factor, f"{prefix}FLOP") for factor, prefix in _PREFIXES]).unit


def work_text(flop: float) -> str:
    """Floating-point operations with a decimal prefix, such as "312 TFLOP"."""
    unit = work_unit(flop)
    return f"{flop / unit.factor:.4g} {unit.name}"


def percent(share: float) -> str:
    """A share as a percentage, such as "4.3 %"; two digits where it is below one per cent."""
    value = 100 * share
    return f"{value:.1f} %" if abs(value) >= 1 else f"{value:.2g} %"


def money(usd: float) -> str:
    """An amount of dollars; small ones keep four significant digits."""
    return f"{usd:,.2f} USD" if usd >= 100 or not usd else f"{significant(usd)} USD"


def counted(count: int, noun: str) -> str:
    """Number and noun, in the plural where it is due: "1 stage", "2,048 stages"."""
    plural = "es" if noun.endswith(("ch", "ss")) else "s"
    return f"{count:,} {noun}{plural * (count != 1)}"


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers in ascending order, runs joined: "0-3, 6"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{low}-{high}" if high > low else f"{low}" for low, high in runs)


def node_ranges(names: Iterable[str]) -> str:
    """Node names, numbers of one group joined: "a10-0..2, a100-0"."""
    groups: dict[str, list[int]] = {}
    for name in names:
        group, _, number = name.rpartition("-")
        groups.setdefault(group, []).append(int(number))
    return ", ".join(
        f"{group}-{run.replace('-', '..')}"
        for group, numbers in groups.items()
        for run in ranges(numbers).split(", ")
    )
