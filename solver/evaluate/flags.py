"""An argument file of Megatron-LM, flag by flag with its line.

Flags stand as on a command line: several a line, `--flag=value`, a backslash at the end of a line,
remarks behind `#`. What a flag means is said elsewhere.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

from formulations.errors import PlanError
from solver.evaluate.known_flags import NOT_PLANNED, OTHERS, READ


class Flag(NamedTuple):
    """One flag: its values, and the line that it stands in."""

    values: tuple[str, ...]
    line: int


#: From how alike on, of 1, an unknown flag is taken for one that is read, misspelt.
_NEAR = 0.93


@dataclass(frozen=True)
class Flags:
    """The flags of a file that are read; `name`: of the file."""

    name: str
    found: Mapping[str, Flag]

    def place(self, flag: str) -> str:
        """File and line of a flag; of one that is missing, the file."""
        return f"{self.name}:{self.found[flag].line}" if flag in self.found else self.name

    def error(self, flag: str, allowed: str, because: str = "") -> PlanError:
        """A flag that cannot stand as it does."""
        known = self.found.get(flag)
        said = "no " + flag if known is None else " ".join((flag, *known.values))
        return PlanError(self.place(flag), said + because, allowed)

    def has(self, flag: str) -> bool:
        """Whether the file has a flag."""
        return flag in self.found

    def text(self, flag: str) -> str | None:
        """The value of a flag that has one."""
        return self.found[flag].values[0] if flag in self.found else None

    def number(self, flag: str, otherwise: int) -> int:
        """A whole number from 1 on; PlanError for another text."""
        text = self.text(flag)
        if text is None:
            return otherwise
        if not re.fullmatch(r"[1-9]\d{0,8}", text):
            raise self.error(flag, "a whole number from 1 on")
        return int(text)

    def optional(self, flag: str) -> int | None:
        """The same of a flag without a default."""
        return self.number(flag, 1) if flag in self.found else None

    def exclude(self, flag: str, *others: str) -> None:
        """Raises PlanError where flags stand beside one that excludes them."""
        for other in others:
            if flag in self.found and other in self.found:
                raise self.error(other, "one of the two", f", beside {flag} ({self.place(flag)})")


def read_flags(text: str, name: str) -> Flags:
    """The flags of an argument file. Raises PlanError for one that is unknown, or said twice."""
    found: dict[str, Flag] = {}
    for flag, one in _flags(text, name):
        where = f"{name}:{one.line}"
        if flag in found and found[flag].values != one.values:
            said = " ".join((flag, *one.values))
            raise PlanError(
                where, f"{said}, otherwise in line {found[flag].line}", "one of the two"
            )
        if _is_read(flag, where):
            number = READ[flag]
            if number is not None and len(one.values) != number:
                what = f"{flag} with {len(one.values)} values"
                raise PlanError(where, what, f"{number} value" if number else "no value")
            found[flag] = one
    return Flags(name, found)


def _flags(text: str, name: str) -> Iterator[tuple[str, Flag]]:
    flag, values, line = "", list[str](), 0
    for number, word in _words(text, name):
        if not word.startswith("--"):
            if not flag:
                raise PlanError(
                    f"{name}:{number}", f"the word {word}", "flags, which begin with --"
                )
            values.append(word)
            continue
        if flag:
            yield flag, Flag(tuple(values), line)
        flag, given, value = word.partition("=")
        values, line = [value] if given else [], number
    if flag:
        yield flag, Flag(tuple(values), line)


def _words(text: str, name: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line.rstrip().removesuffix("\\"), comments=True)
        except ValueError as error:
            raise PlanError(f"{name}:{number}", str(error).lower(), "quotes in pairs") from None
        yield from ((number, word) for word in words)


def _is_read(flag: str, where: str) -> bool:
    """Whether a flag decides something of a plan; PlanError for one that no plan can follow."""
    if flag in READ:
        return True
    for pattern, instead in NOT_PLANNED.items():
        if re.fullmatch(f"--({pattern})", flag):
            raise PlanError(where, f"{flag}, which no plan describes", instead)
    near = get_close_matches(flag, READ, n=1, cutoff=_NEAR)
    if near or not OTHERS.fullmatch(flag):
        others = "flags of Megatron-LM; leave out one that changes neither time nor memory"
        raise PlanError(where, f"the unknown flag {flag}", near[0] if near else others)
    return False
