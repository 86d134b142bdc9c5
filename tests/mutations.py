"""Every way to change one field of a JSON object: leaves, and entries of lists."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from formulations.instance.instance import Minimize
from formulations.instance.search import ScheduleName
from formulations.instance.workload import Precision, Recompute
from solver.result import Proof, Reason, Status, Termination

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Mutation:
    """A changed copy of an object; `what` says how the field at `path` was changed."""

    path: Path
    what: str
    value: dict[str, Any]

    @property
    def field(self) -> str:
        """The path without list indices: config.tp, replicas.stages.layers, ..."""
        return ".".join(part for part in self.path if isinstance(part, str))

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {self.what}"


def _leaf_values(value: Any) -> list[Any]:
    """Other values of the same kind, near and far."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, 2 * value + 3, -value - 1]
    if isinstance(value, float):
        near = [value * (1 + 1e-6) + 1e-9, value * (1 - 1e-6)]
        return [*near, 2 * value + 1.0, 1000 * value, -value - 1.0]
    if isinstance(value, str):
        return [value + "x", ""]
    return [1, 0.5, "x"]  # null


#: Words that may replace each other, so that a changed word is still one that can be read.
WORDS: tuple[tuple[str, ...], ...] = (
    *(tuple(map(str, words)) for words in (Status, Termination)),
    *map(get_args, (Reason, Proof, Recompute, ScheduleName, Precision)),
    get_args(Minimize),
    ("even", "uneven"),
)


def _words(value: Any) -> list[str]:
    return [word for family in WORDS if value in family for word in family if word != value]


def _lists(value: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    for i in range(len(value)):
        yield f"entry {i} removed", value[:i] + value[i + 1 :]
        yield f"entry {i} twice", [*value[: i + 1], *value[i:]]
        if i and value[i] != value[i - 1]:
            yield (
                f"entries {i - 1}, {i} swapped",
                [
                    *value[: i - 1],
                    value[i],
                    value[i - 1],
                    *value[i + 1 :],
                ],
            )


def _changes(path: Path, value: Any) -> Iterator[tuple[Path, str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _changes((*path, key), inner)
    elif isinstance(value, list):
        for what, changed in _lists(value):
            yield path, what, changed
        for i, inner in enumerate(value):
            yield from _changes((*path, i), inner)
    else:
        for changed in [*_leaf_values(value), *_words(value), *([None] * (value is not None))]:
            yield path, f"{value!r} -> {changed!r}", changed


def _with(value: Any, path: Path, changed: Any) -> Any:
    """A copy along the path; the rest is shared."""
    if not path:
        return changed
    copied = copy.copy(value)
    copied[path[0]] = _with(value[path[0]], path[1:], changed)
    return copied


def mutations(value: dict[str, Any]) -> Iterator[Mutation]:
    """All changes of one field of `value`."""
    for path, what, changed in _changes((), value):
        yield Mutation(path, what, _with(value, path, changed))
