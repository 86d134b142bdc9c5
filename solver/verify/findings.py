"""What a verification finds: problems, one line each, and what was checked."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from formulations.errors import InstanceError
from formulations.instance import Instance
from solver.files import Envelope, digest

#: Relative difference that is float noise, in figures that are products of others.
NOISE = 1e-12
#: The same for figures that may be 0, such as a gap.
NOISE_NEAR_ZERO = 1e-15


@dataclass(frozen=True)
class Verification:
    """Outcome of `verify_document`. A problem reads "FIELD: found X, expected Y".

    unproved: entries of the log of configurations that were not proved again. reservations: what
    else was not, in words.
    """

    problems: tuple[str, ...]
    checked: tuple[str, ...]
    unproved: tuple[int, ...] = ()
    reservations: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was found wrong."""
        return not self.problems

    @property
    def complete(self) -> bool:
        """Whether all that was claimed was found true."""
        return not (self.problems or self.unproved or self.reservations)


class Findings:
    """Collects problems while a document is checked."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._checked: list[str] = []
        self._reservations: list[str] = []
        self.num_figures = 0
        self.unproved: list[int] = []

    @property
    def num_problems(self) -> int:
        """Number of problems so far."""
        return len(self._problems)

    def refuse(self, field: str, found: object, expected: str) -> None:
        """Adds a problem; `expected` says in words what is allowed."""
        self._problems.append(f"{field}: found {found}, expected {expected}")

    def require(self, holds: bool, field: str, found: object, expected: str) -> bool:
        """Adds a problem unless `holds`, which it returns."""
        if not holds:
            self.refuse(field, found, expected)
        return holds

    def equal(self, field: str, found: object, expected: object) -> bool:
        """Whether a figure is exactly what was worked out again."""
        self.num_figures += 1
        return self.require(found == expected, field, repr(found), repr(expected))

    def close(self, field: str, found: float | None, expected: float | None) -> bool:
        """Whether a figure is what was worked out again, up to float noise."""
        self.num_figures += 1
        if found is None or expected is None:
            holds = found is expected
        else:
            holds = math.isclose(found, expected, rel_tol=NOISE, abs_tol=NOISE_NEAR_ZERO)
        return self.require(holds, field, repr(found), repr(expected))

    def note(self, text: str) -> None:
        """Adds a line to what was checked."""
        self._checked.append(text)

    def reserve(self, text: str) -> None:
        """Adds a claim that is not shown again."""
        self._reservations.append(text)

    def verification(self) -> Verification:
        """All that was found."""
        return Verification(
            tuple(self._problems),
            tuple(self._checked),
            tuple(self.unproved),
            tuple(self._reservations),
        )


def verification(document: Envelope, check: Callable[[Findings], None]) -> Verification:
    """The digest of a file and `check` of its content, which may fail on absurd figures."""
    findings = Findings()
    written, expected = document.digest, digest(document.model_dump(mode="json"))
    findings.require(
        written == expected, "digest", written, f"{expected}, that of the other fields"
    )
    findings.note("digest")
    try:
        check(findings)
    except (ArithmeticError, InstanceError, LookupError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        findings.refuse("instance", f"figures without a cost ({reason})", "usable figures")
    return findings.verification()


def instance_differences(stated: Instance, expected: Instance) -> tuple[str, ...]:
    """One line per field in which two instances differ: field, found, expected."""
    pair = (fields.model_dump(mode="json") for fields in (stated, expected))
    return tuple(differences("instance", *pair))


def differences(field: str, stated: Any, expected: Any) -> Iterator[str]:
    """One line per field in which two documents differ."""
    if isinstance(stated, dict) and isinstance(expected, dict):
        for name in sorted(stated.keys() | expected.keys()):
            yield from differences(f"{field}.{name}", stated.get(name), expected.get(name))
    elif isinstance(stated, list) and isinstance(expected, list) and len(stated) == len(expected):
        for i, (entry, wanted) in enumerate(zip(stated, expected, strict=True)):
            yield from differences(f"{field}[{i}]", entry, wanted)
    elif stated != expected:
        yield f"{field}: found {_shown(stated)}, expected {_shown(expected)}"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} entries"
    return "a mapping" if isinstance(value, dict) else repr(value)
