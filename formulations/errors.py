"""Errors that a user can act on; each becomes one line on the terminal."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, ParamSpec, TypeVar, cast

Found = TypeVar("Found")
P = ParamSpec("P")

#: Lines for one file; what is wrong beyond them is counted.
MOST_LINES = 20


class PlannerError(Exception):
    """Base of every error that hetplan raises on purpose; `exit_code` is the process status."""

    exit_code = 2

    def __init__(self, text: str, exit_code: int | None = None) -> None:
        super().__init__(text)
        self.exit_code = exit_code or self.exit_code

    @property
    def lines(self) -> tuple[str, ...]:
        """What to tell, line by line."""
        return (str(self),)


def check_values(*rows: tuple[bool, str, object, str]) -> None:
    """Raises PlannerError for the first (holds, name, value, allowed) that does not hold."""
    for holds, name, value, allowed in rows:
        if not holds:
            raise PlannerError(f"{name}: {value!r}; allowed: {allowed}")


class NoPlanError(PlannerError):
    """There is none: no plan, fleet or template, or no step of the lengths that are asked for."""

    exit_code = 3


class InstanceError(PlannerError):
    """Bad input: where it stands, what was found, what is allowed (and so what to do)."""

    def __init__(self, where: str, found: str, allowed: str) -> None:
        super().__init__(f"{where}: {found}; allowed: {allowed}")
        self.where = where
        self.found = found
        self.allowed = allowed
        #: Itself, or all that were found at once.
        self.errors: tuple[InstanceError, ...] = (self,)


class PlanError(InstanceError):
    """A plan that cannot be used: where, what was found, what is allowed."""


class InstanceErrors(InstanceError):
    """Several at once, in the order of the file; where, found and allowed are the first one's."""

    def __init__(self, errors: Sequence[InstanceError]) -> None:
        first = errors[0]
        super().__init__(first.where, first.found, first.allowed)
        self.errors = tuple(errors)

    @property
    def lines(self) -> tuple[str, ...]:
        """One each; the last one counts those beyond `MOST_LINES`."""
        beyond = len(self.errors) - MOST_LINES
        more = [f"and {beyond} more"] if beyond > 0 else []
        return (*map(str, self.errors[:MOST_LINES]), *more)

    def __str__(self) -> str:
        """All lines."""
        return "\n".join(self.lines)


def joined(errors: Iterable[InstanceError]) -> InstanceError:
    """One error that tells them all, by line and column; those without follow."""

    def place(error: InstanceError) -> tuple[float, ...]:
        position = re.search(r":(\d+):(\d+)", error.where)
        return tuple(map(float, position.groups())) if position else (float("inf"),)

    by_text = {str(single): single for error in errors for single in error.errors}
    first, *further = sorted(by_text.values(), key=place)
    return InstanceErrors([first, *further]) if further else first


class Mistakes:
    """What is wrong with a file, noted check by check to be told at once."""

    def __init__(self) -> None:
        self.errors: list[InstanceError] = []

    def of(self, check: Callable[P, Found], *args: P.args, **kwargs: P.kwargs) -> Found | None:
        """What a check returns; None where it refuses."""
        try:
            return check(*args, **kwargs)
        except InstanceError as error:
            self.errors.append(error)
            return None

    def tell(self) -> None:
        """Raises InstanceError for all of them, if there are any."""
        if self.errors:
            raise joined(self.errors)


def all_of(checks: Iterable[Callable[[], Found]]) -> list[Found]:
    """What they return. Raises InstanceError for everything that any of them finds."""
    wrong = Mistakes()
    values = [wrong.of(check) for check in checks]
    wrong.tell()
    return cast(list[Found], values)


class Fault(NamedTuple):
    """What is wrong with a value, and which ones may be."""

    found: str
    allowed: str
