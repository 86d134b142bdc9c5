"""What a verification finds: problems, one line each, and what was checked."""

import math
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from typing import Any, Literal, Protocol, TypeVar

from formulations.errors import InstanceError
from formulations.instance import Instance
from formulations.instance.record import Record
from solver.files import Envelope, digest

#: Relative difference that is float noise, in figures that are products of others.
NOISE = 1e-12
#: The same for figures that may be 0, such as a gap.
NOISE_NEAR_ZERO = 1e-15


@dataclass(frozen=True)
class Effort:
    """How much is proved, and within what time.

    prove: all; or quick, which leaves what an exhaustive search closed at its word unless memory or
    work shows it; or nothing of the log. show: is told how many claims are settled, of how many.
    """

    time_limit_s: float | None = None
    prove: Literal["all", "quick", "nothing"] = "all"
    show: Callable[[int, int], None] = lambda done, total: None


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
    def complete(self) -> bool:
        """Whether all that was claimed was found true."""
        return not (self.problems or self.unproved or self.reservations)


class HaltError(Exception):
    """A part of the checks was left, as what follows needs what was found wrong."""


class Findings:
    """Collects problems while a document is checked."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.checked: list[str] = []
        self.reservations: list[str] = []
        self.unproved: list[int] = []
        self.num_figures = 0
        self._before_part = 0

    @contextmanager
    def part(self) -> Iterator[None]:
        """A part of the checks that is left where it halts."""
        outer, self._before_part = self._before_part, len(self.problems)
        with suppress(HaltError):
            yield
        self._before_part = outer

    def halt(self) -> None:
        """Leaves the part if it has found problems."""
        if len(self.problems) > self._before_part:
            raise HaltError

    def refuse(self, field: str, found: object, expected: str) -> None:
        """Adds a problem; `expected` says in words what is allowed."""
        self.problems.append(f"{field}: found {found}, expected {expected}")

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

    def one_of(self, field: str, found: object, allowed: Sequence[object]) -> bool:
        """Whether a value is one of these."""
        return self.require(found in allowed, field, found, f"one of {list(allowed)}")

    def at_least(self, field: str, found: float, lowest: float) -> bool:
        """Whether a value is not below this."""
        return self.require(found >= lowest, field, found, f"at least {lowest}")

    def at_most(self, field: str, found: float, highest: float) -> bool:
        """Whether a value is not above this."""
        return self.require(found <= highest, field, found, f"at most {highest}")

    def compare(self, field: str, stated: Any, expected: Any, but: Set[str] = frozenset()) -> None:
        """Compares values field by field and entry by entry, floats but for their noise.

        but: fields that are not looked at.
        """
        parts, stated_parts = _parts(expected), _parts(stated)
        if parts and parts.keys() == stated_parts.keys():
            for name in parts:
                if name.strip(".") not in but:
                    self.compare(f"{field}{name}", stated_parts[name], parts[name], but)
        elif isinstance(expected, float) and isinstance(stated, float):
            self.close(field, stated, expected)
        else:
            self.num_figures += 1
            found, wanted = (
                f"{len(value)} entries" if isinstance(value, tuple) and value else repr(value)
                for value in (stated, expected)
            )
            self.require(stated == expected, field, found, wanted)

    def note(self, text: str) -> None:
        """Adds a line to what was checked."""
        self.checked.append(text)

    def reserve(self, text: str) -> None:
        """Adds a claim that is not shown again."""
        self.reservations.append(text)

    def verification(self) -> Verification:
        """All that was found."""
        texts = (self.problems, self.checked, self.reservations)
        problems, checked, reservations = map(tuple, texts)
        return Verification(problems, checked, tuple(self.unproved), reservations)


Document = TypeVar("Document", bound=Envelope, contravariant=True)


class Verify(Protocol[Document]):
    """A check of all files of a kind."""

    def __call__(self, document: Document, effort: Effort = Effort(), /) -> Verification:
        """All that was found; all is proved unless less is asked."""


def verification(check: Callable[[Document, Findings, Effort], None]) -> Verify[Document]:
    """The digest of a file and `check` of its content, which may fail on absurd figures."""

    @wraps(check)
    def verify(document: Document, effort: Effort = Effort()) -> Verification:
        findings = Findings()
        written, expected = document.digest, digest(document.model_dump(mode="json"))
        findings.require(
            written == expected, "digest", written, f"{expected}, that of the other fields"
        )
        findings.note("digest")
        try:
            with findings.part():
                check(document, findings, effort)
        except (ArithmeticError, InstanceError, LookupError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            findings.refuse("instance", f"figures without a cost ({reason})", "usable figures")
        return findings.verification()

    return verify


def instance_differences(stated: Instance, expected: Instance) -> tuple[str, ...]:
    """One line per field in which two instances differ: field, found, expected."""
    findings = Findings()
    findings.compare("instance", stated, expected)
    return tuple(findings.problems)


def _parts(value: Any) -> dict[str, Any]:
    """Fields and entries of a value by name, in order; none of one without."""
    if isinstance(value, tuple | list):
        return {f"[{i}]": entry for i, entry in enumerate(value)}
    named = value if isinstance(value, dict) else {}
    if isinstance(value, Record):
        named = {name: getattr(value, name) for name in type(value).model_fields}
    elif is_dataclass(value):
        named = {part.name: getattr(value, part.name) for part in fields(value)}
    return {f".{name}": named[name] for name in sorted(named)}
