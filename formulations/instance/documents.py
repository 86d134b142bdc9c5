"""Files as values with positions: text, read whole or refused in one line, JSON and YAML.

An error names the line and column of the field that it is about. This is the one place where YAML
is read.
"""

import csv
import errno
import io
import json
import os
import re
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property, partial
from importlib import resources
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import yaml

from formulations.errors import InstanceError
from formulations.instance.record import (
    MOST_BYTES,
    MOST_TEXT,
    MOST_VALUES,
    MOST_WRITTEN_BYTES,
    MOST_WRITTEN_VALUES,
    check_extent,
    printable,
)

Entry = TypeVar("Entry")
Part = str | int | float | bool | None  #: key of a mapping, or index in a list
Route = tuple[Part, ...]  #: from the root of a file to a value


class Position(NamedTuple):
    """Where a value of a file stands, and the key before it, as LINE:COLUMN, both from 1."""

    path: Route
    mark: str
    key_mark: str | None = None
    is_list: bool = False


@dataclass(frozen=True)
class Document:
    """A parsed file: its name in messages, its plain values, and where they stand.

    positions: of all values, outer ones first; worked out when somebody asks for one.
    """

    name: str
    value: object
    positions: Callable[[], Iterable[Position]]

    @cached_property
    def _by_path(self) -> dict[Route, Position]:
        return {position.path: position for position in self.positions()}

    def where(self, path: Sequence[Part], *, key: bool = False) -> str:
        """`FILE:LINE:COLUMN PATH` of a field, its name (`key`), or of what would contain it."""
        position: Position | None = self._by_path[()]
        mark, text = self._by_path[()].mark, ""
        for i, part in enumerate(path):
            name = printable(str(part))
            text += f"[{name}]" if position and position.is_list else f".{name}"
            position = self._by_path.get(tuple(path[: i + 1]))
            if position:
                at_key = key and i == len(path) - 1 and position.key_mark
                mark = at_key or position.mark
        return f"{self.name}:{mark}{text and ' '}{text.removeprefix('.')}"

    def has(self, path: Sequence[Part]) -> bool:
        """Whether the file has a field at this path."""
        return tuple(path) in self._by_path


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

    def pick(self, kind: str, name: str, entries: Mapping[str, Entry]) -> Entry:
        """The entry of that name. Raises InstanceError without one."""
        if name not in entries:
            raise self.unknown(kind, name, entries)
        return entries[name]

    def unknown(self, kind: str, name: str, names: Iterable[str]) -> InstanceError:
        """The error for a name that is not among those that there are."""
        names = list(names)
        return self.error(f"unknown {kind} {name!r}{suggestion(name, names)}", ", ".join(names))


def suggestion(name: object, names: Sequence[str]) -> str:
    """` (did you mean ...?)` with up to three close names, or nothing."""
    by_lower = {name.lower(): name for name in names}
    close = [by_lower[low] for low in get_close_matches(str(name).lower(), by_lower, n=3)]
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def read_bytes(path: Path, allowed: str, place: Place | None = None) -> bytes:
    """What a file of at most 256 MiB holds.

    Raises InstanceError; a file that cannot be opened is reported at `place`, where another file
    names it, and `allowed` says which file is meant.
    """
    try:
        with open(path, "rb", opener=_opened) as file:
            data = file.read(MOST_BYTES + 1)
            if not data and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EPIPE, "a pipe that nobody writes to")
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        if place is None:
            raise InstanceError(str(path), reason, allowed) from None
        raise place.error(f"cannot read {printable(str(path))}: {reason}", allowed) from None
    if len(data) > MOST_BYTES:
        raise InstanceError(str(path), "more than 256 MiB", allowed)
    return data


def _opened(path: str, flags: int) -> int:
    """A file descriptor; a pipe that nobody writes to is not waited for, but found empty."""
    number = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(number, True)
    return number


def read_text(path: Path, allowed: str, place: Place | None = None) -> str:
    """Text of a UTF-8 file without its byte order mark. Raises InstanceError as `read_bytes`."""
    data = read_bytes(path, allowed, place)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", errors="replace")
        where = f"{path}:{line_and_column(before)}"
        raise InstanceError(where, f"byte 0x{data[error.start]:02x}", "text in UTF-8") from None


def line_and_column(before: str) -> str:
    """Position, from 1, of what follows the text `before`."""
    return f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


def csv_rows(path: Path, allowed: str) -> list[list[str]]:
    """Rows of a CSV file whose fields may be quoted. Raises InstanceError."""
    try:
        return list(csv.reader(io.StringIO(read_text(path, allowed))))
    except csv.Error as error:
        raise InstanceError(str(path), str(error), allowed) from None


def csv_fields(text: str) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Line number and (column, text) of the fields of every line of a CSV that is not blank."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        column, fields = 1, []
        for entry in line.split(","):
            fields.append((column + len(entry) - len(entry.lstrip()), entry.strip()))
            column += len(entry) + 1
        yield number, fields


def parse_json(text: str, name: str, allowed: str = "valid JSON") -> object:
    """Plain values of JSON text; `name`, and `allowed` of no JSON, are for InstanceError."""

    def each_once(fields: Sequence[tuple[str, object]]) -> dict[str, object]:
        by_name = dict(fields)
        if len(by_name) < len(fields):  # readers would choose one, each in its own way
            firsts: dict[Route, Position] = {}
            for position in _json_positions(text):
                first = firsts.setdefault(position.path, position)
                if position.key_mark and first is not position:
                    key = str(position.path[-1])
                    raise _repeated(name, position.key_mark, key, first.key_mark)
        return by_name

    check_extent(name, sum(map(text.count, ",[{")), MOST_VALUES)
    try:
        return json.loads(text, object_pairs_hook=each_once)
    except json.JSONDecodeError as error:
        where = f"{name}:{error.lineno}:{error.colno}"
        raise InstanceError(where, error.msg, allowed) from None
    except RecursionError:
        raise _nested(name) from None
    except ValueError as error:  # a number of thousands of digits
        problem = str(error).partition(";")[0]
        raise InstanceError(f"{name}:1:1", problem, "numbers of usual size") from None


def json_document(text: str, name: str) -> Document:
    """Values and positions of JSON text. Raises InstanceError as `parse_json`."""
    return Document(name, parse_json(text, name), partial(_json_positions, text))


_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}:,]|[^][{}:,"\s]+')


def _json_positions(text: str) -> Iterator[Position]:
    """Positions of valid JSON text."""
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    path: list[Part] = []  # of the next value; its last part is None before a key
    key_mark: str | None = None
    for token in _TOKENS.finditer(text):
        line, sign = bisect_right(lines, token.start()), token[0]
        mark = f"{line}:{token.start() - lines[line - 1] + 1}"
        if sign in ("]", "}"):
            path.pop()
        elif sign == ",":
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
        elif path and path[-1] is None:
            path[-1], key_mark = json.loads(sign), mark
        elif sign != ":":
            yield Position(tuple(path), mark, key_mark, is_list=sign == "[")
            key_mark = None
            if sign in ("[", "{"):
                path.append(0 if sign == "[" else None)


def _nested(name: str) -> InstanceError:
    return InstanceError(f"{name}:1:1", "too many nested levels", "at most some 100")


def _repeated(name: str, mark: str, key: str, first: str | None) -> InstanceError:
    problem = f"repeated; it stands in line {str(first).partition(':')[0]} too"
    return InstanceError(f"{name}:{mark} {printable(key)}", problem, "every field once")


def resource(name: str) -> Document:
    """A parsed YAML file of the catalogue, such as workloads.yaml."""
    file = resources.files("formulations.instance").joinpath("catalogue", name)
    return parse_document(file.read_text(encoding="utf-8"), f"catalogue/{name}")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, where 1e9 is a number, as in YAML 1.2."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        """Value of a node; one such as the date 2001-99-99 or !!bool x is an error with a place."""
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, ValueError) as error:
            unfit = f"not a value of the kind {node.tag.rpartition(':')[2]}"
            problem = str(error).partition(";")[0] if isinstance(error, ValueError) else unfit
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)

if yaml.__with_libyaml__:

    class _FastLoader(yaml.CSafeLoader, _Loader):
        """The same, ten times as fast."""


def _composed(text: str) -> tuple[_Loader, yaml.Node | None]:
    """The root of YAML text; where libyaml refuses it, PyYAML says why in its own words."""
    if yaml.__with_libyaml__:
        with suppress(yaml.YAMLError, UnicodeError):
            fast = _FastLoader(text)
            return fast, fast.get_single_node()
    loader = _Loader(text)
    return loader, loader.get_single_node()


def parse_document(text: str, name: str) -> Document:
    """Values and positions of YAML text. Raises InstanceError for syntax and repeated keys."""
    if len(text) > MOST_WRITTEN_BYTES:
        raise InstanceError(name, "more than 1 MiB", "a YAML file of at most that size")
    try:
        loader, root = _composed(text)
        if root is None:
            raise InstanceError(f"{name}:1:1", "an empty file", "a mapping of fields")
        check_extent(name, _num_values(root, name, (), {}), MOST_WRITTEN_VALUES)
        value = loader.construct_document(root)
        return Document(name, value, partial(_yaml_positions, root, loader))
    except yaml.reader.ReaderError as error:
        where = f"{name}:{line_and_column(text[: error.position])}"
        problem = f"the character {chr(error.character)!r}"
        raise InstanceError(where, problem, "printable text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{_mark(mark)}" if mark else name
        problem = ", ".join(filter(None, [error.context, error.problem])) or "a syntax error"
        raise InstanceError(where, problem, "valid YAML") from None
    except RecursionError:
        raise _nested(name) from None


def _num_values(
    node: yaml.Node, name: str, above: tuple[yaml.Node, ...], counts: dict[yaml.Node, int]
) -> int:
    """Values in a node, with aliases and merge keys written out.

    Raises InstanceError for a repeated key, a text that is too long, and an alias of what contains
    it. `above`: the nodes that contain this one. `counts`: of nodes so far, which have aliases.
    """
    if node in above:
        where, problem = f"{name}:{_mark(node.start_mark)}", "a value that contains itself"
        raise InstanceError(where, problem, "aliases of other values")
    if node in counts:
        return counts[node]
    inner = node.value if isinstance(node, yaml.SequenceNode) else []
    if isinstance(node, yaml.MappingNode):
        first_marks: dict[str, str] = {}
        for key, value in node.value:
            mark = _mark(key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                raise InstanceError(f"{name}:{mark}", "a key of several parts", "a name or number")
            _num_values(key, name, (), {})
            if key.value in first_marks:
                raise _repeated(name, mark, key.value, first_marks[key.value])
            first_marks[key.value] = mark
            inner.append(value)
    elif isinstance(node, yaml.ScalarNode) and len(node.value) > MOST_TEXT:
        where, length = f"{name}:{_mark(node.start_mark)}", len(node.value)
        raise InstanceError(where, f"a text of {length:,} characters", f"at most {MOST_TEXT:,}")
    counts[node] = 1 + sum(_num_values(value, name, (*above, node), counts) for value in inner)
    return counts[node]


def _yaml_positions(
    node: yaml.Node, loader: _Loader, path: Route = (), key_mark: str | None = None
) -> Iterator[Position]:
    """Positions of a node and of all it contains; merge keys are already flattened."""
    is_list, is_empty = isinstance(node, yaml.SequenceNode), node.value == ""
    mark = key_mark if key_mark and is_empty else _mark(node.start_mark)
    yield Position(path, mark, key_mark, is_list)
    if is_list:
        for i, entry in enumerate(node.value):
            yield from _yaml_positions(entry, loader, (*path, i))
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = cast("Part", loader.construct_object(key, deep=True))
            yield from _yaml_positions(value, loader, (*path, name), _mark(key.start_mark))


def _mark(mark: yaml.Mark) -> str:
    return f"{mark.line + 1}:{mark.column + 1}"
