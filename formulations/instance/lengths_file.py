"""Files of sequence lengths: .csv, .jsonl, .npy."""

import csv
import json
import re
import struct
from array import array
from ast import literal_eval
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from formulations.errors import InstanceError
from formulations.instance.documents import Place, read_bytes, read_text
from formulations.instance.input_limits import MOST_BATCH, MOST_VALUES, check_extent
from formulations.instance.record import shown

#: What a column or a field with lengths is called.
NAMES = ("length", "tokens", "num_tokens")
_A_PATH = "the path of a file of lengths from this file's folder"
_A_LENGTH = f"a whole number of tokens from 1 to {MOST_BATCH}"
_AN_ARRAY = "a .npy file of one dimension of integers"
_MAGIC = b"\x93NUMPY"
_NUMBER = re.compile(r"[-+]?[0-9][0-9._eE+-]*|")
#: Types of numpy's integers, without the byte order, as those of `array`.
_TYPES = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}


def read_lengths(path: Path, place: Place) -> Mapping[int, int]:
    """How many sequences of every length in tokens there are, by ascending length.

    Raises InstanceError; `place`: where the instance names the file.
    """
    readers = {".csv": _of_csv, ".jsonl": _of_jsonl, ".npy": _of_npy}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        found = f"a file of type {path.suffix}" if path.suffix else "a file without a type"
        raise place.error(found, "a .csv, .jsonl or .npy file of lengths")
    found_counts = reader(path, place)
    if not found_counts:
        raise InstanceError(str(path), "no lengths", "one at least")
    return dict(sorted(found_counts.items()))


def _lines(path: Path, place: Place) -> tuple[list[str], Counter[str]]:
    """All lines, and how often each stands in the file, but for blank ones."""
    lines = [line.strip() for line in read_text(path, _A_PATH, place).split("\n")]
    check_extent(str(path), len(lines), MOST_VALUES)
    counts = Counter(lines)
    counts.pop("", None)
    return lines, counts


def _of_csv(path: Path, place: Place) -> Counter[int]:
    lines, counts = _lines(path, place)
    header = next(iter(counts), "")
    names = _fields(header, path, lines)
    column = 0
    if len(names) > 1 or not _NUMBER.fullmatch(header):
        column = _column(names, _where(path, lines, header))
        counts -= Counter([header])
        lines[lines.index(header)] = ""
    found: Counter[int] = Counter()
    for line, count in counts.items():
        fields = _fields(line, path, lines)
        if len(fields) != len(names):
            found_fields, allowed = f"{len(fields)} fields", f"{len(names)}, as in the first line"
            raise InstanceError(_where(path, lines, line), found_fields, allowed)
        text = fields[column]
        value = int(text) if text.isdecimal() and len(text) < 20 else text
        found[_length(value, path, lines, line)] += count
    return found


def _fields(line: str, path: Path, lines: list[str]) -> list[str]:
    try:
        return [field.strip() for field in next(csv.reader([line]), [])]
    except csv.Error as error:
        raise InstanceError(_where(path, lines, line), str(error), "fields of a CSV file") from None


def _column(names: list[str], where: str) -> int:
    """Which column has the lengths: the only one, or the one that is called so."""
    known = [i for i, name in enumerate(names) if name.lower() in NAMES]
    if len(known) != 1 and len(names) > 1:
        found = f"the columns {', '.join(map(shown, names))}"
        raise InstanceError(where, found, f"one column, or one called {' or '.join(NAMES)}")
    return known[0] if known else 0


def _where(path: Path, lines: list[str], line: str) -> str:
    """Where a line stands for the first time."""
    return f"{path}:{1 + lines.index(line)}:1"


def _of_jsonl(path: Path, place: Place) -> Counter[int]:
    lines, counts = _lines(path, place)
    found: Counter[int] = Counter()
    for line, count in counts.items():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            where = _where(path, lines, line)
            raise InstanceError(where, shown(line), "a JSON value in every line") from None
        if isinstance(value, dict):
            named = [name for name in NAMES if name in value]
            if len(named) != 1:
                found_fields = f"a mapping with {' and '.join(named) or 'none of these fields'}"
                allowed = f"a number, or a mapping with one of {', '.join(NAMES)}"
                raise InstanceError(_where(path, lines, line), found_fields, allowed)
            value = value[named[0]]
        found[_length(value, path, lines, line)] += count
    return found


def _length(value: object, path: Path, lines: list[str], line: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_BATCH:
        raise InstanceError(_where(path, lines, line), shown(value), _A_LENGTH)
    return value


def _of_npy(path: Path, place: Place) -> Counter[int]:
    """By the format's specification (numpy.lib.format), without the library."""
    data = read_bytes(path, _A_PATH, place)
    kind, num_values, start = _header(data, path)
    values = array(_TYPES[kind[1:]], data[start:])
    check_extent(str(path), len(values), MOST_VALUES)
    if len(values) != num_values:
        found = f"{len(values)} values where its header says {num_values}"
        raise InstanceError(str(path), found, "a whole file")
    if kind[0] == ">":
        values.byteswap()
    counts = Counter(values)
    unfit = next((value for value in counts if not 1 <= value <= MOST_BATCH), None)
    if unfit is not None:
        raise InstanceError(f"{path} [{values.index(unfit)}]", str(unfit), _A_LENGTH)
    return counts


def _header(data: bytes, path: Path) -> tuple[str, int, int]:
    """Type of the values, how many there are, and where they begin."""
    if data[:6] != _MAGIC or len(data) < 12:
        raise InstanceError(str(path), "a file that is not numpy's", _AN_ARRAY)
    size, begin = struct.unpack("<H", data[8:10])[0], 10
    if data[6] > 1:
        size, begin = struct.unpack("<I", data[8:12])[0], 12
    text = data[begin : begin + min(size, 1000)].decode("latin-1").strip()
    try:
        header = literal_eval(text)
        kind, shape = str(header["descr"]), header["shape"]
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        raise InstanceError(str(path), "a header that is not numpy's", _AN_ARRAY) from None
    if kind[1:] not in _TYPES or not isinstance(shape, tuple) or len(shape) != 1:
        raise InstanceError(str(path), f"values of type {kind}, shape {shape}", _AN_ARRAY)
    width = int(kind[2:])
    if (len(data) - begin - size) % width:
        raise InstanceError(str(path), "a part of a value at its end", "a whole file")
    return kind, shape[0], begin + size
