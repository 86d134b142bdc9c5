"""Errors that a user can act on; each becomes one line on the terminal."""


class PlannerError(Exception):
    """Base of every error that hetplan raises on purpose; `exit_code` is the process status."""

    exit_code = 2


class InstanceError(PlannerError):
    """Bad input: where it stands, what was found, what is allowed (and so what to do)."""

    def __init__(self, where: str, found: str, allowed: str) -> None:
        super().__init__(f"{where}: {found}; allowed: {allowed}")
        self.where = where
        self.found = found
        self.allowed = allowed


class PlanError(InstanceError):
    """A plan that cannot be used: where, what was found, what is allowed."""
