"""Where a field stands in a file: path of the field -> line and column."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from formulations.errors import InstanceError
from formulations.instance.input_limits import printable

Part = str | int | float | bool | None  #: key of a mapping, or index in a list


@dataclass(frozen=True)
class Mark:
    """Line and column, both from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Node:
    """Positions of one value of a file and of all that is in it."""

    mark: Mark
    is_list: bool = False
    children: Mapping[Part, "Node"] = field(default_factory=dict)
    key_marks: Mapping[Part, Mark] = field(default_factory=dict)


@dataclass(frozen=True)
class Document:
    """A parsed file: its name in messages, its plain values, and their positions."""

    name: str
    value: object
    root: Node

    def where(self, path: Sequence[Part], *, key: bool = False) -> str:
        """`FILE:LINE:COLUMN PATH` of a field, or of what would contain it if it is missing.

        With `key`, the position of the field's name instead of its value's.
        """
        mark, node, text = self.root.mark, self.root, ""
        known = True
        for i, part in enumerate(path):
            name = printable(str(part))
            text += f"[{name}]" if node.is_list and known else f".{name}"
            known = known and part in node.children
            if known:
                at_key = key and i == len(path) - 1 and part in node.key_marks
                mark = node.key_marks[part] if at_key else node.children[part].mark
                node = node.children[part]
        path_text = f" {text.removeprefix('.')}" if text else ""
        return f"{self.name}:{mark.line}:{mark.column}{path_text}"

    def has(self, path: Sequence[Part]) -> bool:
        """Whether the file has a field at this path."""
        node = self.root
        for part in path:
            if part not in node.children:
                return False
            node = node.children[part]
        return True


@dataclass(frozen=True)
class Place:
    """A field of a document, for the checks that look at several fields."""

    document: Document
    path: tuple[Part, ...] = ()

    def at(self, *parts: Part) -> "Place":
        """The field further down."""
        return replace(self, path=self.path + parts)

    def listed(self, index: int) -> "Place":
        """Entry `index` of a list, or the field itself where one bare value stands for a list."""
        entry = self.at(index)
        return entry if self.document.has(entry.path) else self

    def error(self, found: str, allowed: str) -> InstanceError:
        """The error to raise for this field."""
        return InstanceError(self.document.where(self.path), found, allowed)

    def unknown(self, kind: str, name: str, known: Iterable[str]) -> InstanceError:
        """The error for a name that is not among the known ones."""
        names = list(known)
        return self.error(f"unknown {kind} {name!r}{suggestion(name, names)}", ", ".join(names))


def suggestion(name: object, names: Sequence[str]) -> str:
    """` (did you mean ...?)` with up to three close names, or nothing."""
    by_lower = {known.lower(): known for known in names}
    close = [by_lower[low] for low in get_close_matches(str(name).lower(), by_lower, n=3)]
    return f" (did you mean {' or '.join(close)}?)" if close else ""
