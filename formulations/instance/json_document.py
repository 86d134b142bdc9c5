"""JSON text: its plain values, and the positions of its fields for errors about one of them."""

import json
import re
from bisect import bisect_right
from collections.abc import Sequence

from formulations.errors import InstanceError
from formulations.instance.input_limits import MOST_VALUES, check_extent, printable
from formulations.instance.positions import Document, Mark, Node, Part

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


class _RepeatedError(ValueError):
    """A field that stands twice in an object: its name, its mark, the line of the first."""


def _once(fields: Sequence[tuple[str, object]]) -> dict[str, object]:
    """An object; of what stands twice readers would choose, each in its own way."""
    found = dict(fields)
    if len(found) < len(fields):
        raise _RepeatedError
    return found


def parse_json(text: str, name: str, allowed: str = "valid JSON") -> object:
    """Plain values of JSON text; `name` stands for the file. Raises InstanceError.

    allowed: what errors say of text that is no JSON.
    """
    check_extent(name, sum(map(text.count, ",[{")), MOST_VALUES)
    try:
        return json.loads(text, object_pairs_hook=_once)
    except _RepeatedError:
        raise _repeated(text, name) from None
    except json.JSONDecodeError as error:
        where = f"{name}:{error.lineno}:{error.colno}"
        raise InstanceError(where, error.msg, allowed) from None
    except RecursionError:
        raise _nested(name) from None
    except ValueError as error:  # a number of thousands of digits
        found = str(error).partition(";")[0]
        raise InstanceError(f"{name}:1:1", found, "numbers of usual size") from None


def written_kind(fields: object) -> str | None:
    """Which kind of files that hetplan writes some JSON is; plans do not say so. None: none."""
    if not isinstance(fields, dict) or "schema_version" not in fields:
        return None
    kind = fields.get("kind", "plan")
    return kind if isinstance(kind, str) and kind.isidentifier() else None


def json_document(text: str, name: str) -> Document:
    """Values and positions of JSON text. Raises InstanceError as `parse_json`."""
    value = parse_json(text, name)
    try:
        return Document(name, value, _root(text))
    except RecursionError:
        raise _nested(name) from None


def _nested(name: str) -> InstanceError:
    return InstanceError(f"{name}:1:1", "too many nested levels", "at most some 100")


def _repeated(text: str, name: str) -> InstanceError:
    """The error for an object with a field twice."""
    try:
        _root(text)
    except _RepeatedError as error:
        field, mark, line = error.args
        where = f"{name}:{mark.line}:{mark.column} {printable(field)}"
        return InstanceError(where, f"repeated; it stands in line {line} too", "every field once")
    except RecursionError:
        return _nested(name)
    raise AssertionError("each field once")


def _root(text: str) -> Node:
    """Positions of valid JSON text."""
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    return _node(text, _skip(text, 0), lines)[0]


def _node(text: str, at: int, lines: list[int]) -> tuple[Node, int]:
    """The value that begins at offset `at`, and the offset behind it; the text is valid JSON."""
    mark = _mark(at, lines)
    if text[at] not in "[{":
        return Node(mark), _DECODER.raw_decode(text, at)[1]
    is_list = text[at] == "["
    children: dict[Part, Node] = {}
    key_marks: dict[Part, Mark] = {}
    at = _skip(text, at + 1)
    while text[at] not in "]}":
        key: Part = len(children)
        if not is_list:
            key_mark = _mark(at, lines)
            key, at = _DECODER.raw_decode(text, at)
            if key in key_marks:
                raise _RepeatedError(key, key_mark, key_marks[key].line)
            key_marks[key] = key_mark
            at = _skip(text, _skip(text, at) + len(":"))
        children[key], at = _node(text, at, lines)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return Node(mark, is_list, children, key_marks), at + 1


def _skip(text: str, at: int) -> int:
    """Offset of the first character from `at` on that is no white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _mark(at: int, lines: list[int]) -> Mark:
    line = bisect_right(lines, at)
    return Mark(line, at - lines[line - 1] + 1)
