"""Whether a file is for a given instance."""

from collections.abc import Iterator
from typing import Any

from formulations.instance import Instance


def instance_differences(found: Instance, expected: Instance) -> tuple[str, ...]:
    """One line per field in which two instances differ: field, found, expected."""
    pair = (one.model_dump(mode="json") for one in (found, expected))
    return tuple(differences("instance", *pair))


def differences(field: str, found: Any, expected: Any) -> Iterator[str]:
    """One line per field in which two documents differ."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for name in sorted(found.keys() | expected.keys()):
            yield from differences(f"{field}.{name}", found.get(name), expected.get(name))
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from differences(f"{field}[{i}]", one, other)
    elif found != expected:
        yield f"{field}: found {_shown(found)}, expected {_shown(expected)}"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} entries"
    return "a mapping" if isinstance(value, dict) else repr(value)
