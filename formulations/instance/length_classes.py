"""From lengths in a file, or their distribution, to classes with so many sequences in a step.

Every length counts as the longest of its class, and where shares make no whole numbers, as one of
the next class: no step of as many sequences drawn evenly is judged shorter than it is. Files are
.csv, .jsonl and .npy.
"""

import csv
import json
import re
import struct
from array import array
from ast import literal_eval
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate
from math import ceil, exp, floor, log
from pathlib import Path
from statistics import NormalDist

from formulations.errors import InstanceError
from formulations.instance.documents import Place, read_bytes, read_text
from formulations.instance.input_limits import MOST_BATCH, MOST_VALUES, check_extent
from formulations.instance.lengths import LengthClass
from formulations.instance.record import shown

#: Halvings of the interval in which the least ratio of lengths in a class lies.
_HALVINGS = 50
#: What a column or a field with lengths is called.
NAMES = ("length", "tokens", "num_tokens")
_A_PATH = "the path of a file of lengths from this file's folder"
_A_LENGTH = f"a whole number of tokens from 1 to {MOST_BATCH}"
_AN_ARRAY = "a .npy file of one dimension of integers"
_MAGIC = b"\x93NUMPY"
_NUMBER = re.compile(r"[-+]?[0-9][0-9._eE+-]*|")
#: Types of numpy's integers, without the byte order, as those of `array`.
_TYPES = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}


def classes_of(
    counts: Mapping[int, int], num_classes: int, sequences: int | None = None
) -> tuple[LengthClass, ...]:
    """At most so many classes of `sequences` that are distributed as `counts`.

    counts: of every length, ascending. sequences: all of them if it is not given. The largest
    ratio of two lengths in a class is the least that there is.
    """
    lengths = list(counts)
    below = list(accumulate(counts.values(), initial=0))
    uppers = _uppers(lengths, num_classes)
    shares = [below[bisect_left(lengths, upper) + 1] for upper in uppers]
    number = below[-1] if sequences is None else sequences
    return _classes(uppers, [number * share // below[-1] for share in shares])


def log_normal_classes(
    median: int, sigma: float, longest: int, sequences: int, num_classes: int
) -> tuple[LengthClass, ...]:
    """The same of a log-normal distribution that is cut off at the longest length."""
    normal = NormalDist(log(median), sigma)
    shortest = min(longest, max(1, floor(exp(normal.inv_cdf(1 / (2 * sequences))))))
    ratio = (longest / shortest) ** (1 / num_classes)
    inner = {ceil(shortest * ratio**i) for i in range(1, num_classes)}
    uppers = [*sorted(upper for upper in inner if upper < longest), longest]
    below = [floor(sequences * normal.cdf(log(upper))) for upper in uppers[:-1]]
    return _classes(uppers, [*below, sequences])


def _classes(uppers: Iterable[int], below: Iterable[int]) -> tuple[LengthClass, ...]:
    """Of the sequences up to every upper length, those that are in no shorter class."""
    classes, before = list[LengthClass](), 0
    for upper, number in zip(uppers, below, strict=True):
        if number > before:
            classes.append(LengthClass(up_to=upper, count=number - before))
            before = number
    return tuple(classes)


def _uppers(lengths: list[int], num_classes: int) -> list[int]:
    """The longest length of every class, ascending."""
    if len(lengths) <= num_classes:
        return lengths
    low, high = 1.0, lengths[-1] / lengths[0] + 1
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if len(_greedy(lengths, middle)) > num_classes:
            low = middle
        else:
            high = middle
    return _greedy(lengths, high)[::-1]


def _greedy(lengths: list[int], ratio: float) -> list[int]:
    """The fewest uppers, descending, of classes whose lengths differ by less than the ratio."""
    uppers, end = [], len(lengths)
    while end:
        uppers.append(lengths[end - 1])
        end = bisect_left(lengths, floor(lengths[end - 1] / ratio) + 1, 0, end - 1)
    return uppers


def read_lengths(path: Path, place: Place) -> Mapping[int, int]:
    """How many sequences of every length in tokens there are, by ascending length.

    Raises InstanceError; `place`: where the instance names the file.
    """
    readers = {".csv": _of_csv, ".jsonl": _of_jsonl, ".npy": _of_npy}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        found = f"a file of type {path.suffix}" if path.suffix else "a file without a type"
        raise place.error(found, "a .csv, .jsonl or .npy file of lengths")
    counts = reader(path, place)
    if not counts:
        raise InstanceError(str(path), "no lengths", "one at least")
    return dict(sorted(counts.items()))


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
    lengths: Counter[int] = Counter()
    for line, count in counts.items():
        fields = _fields(line, path, lines)
        if len(fields) != len(names):
            found_fields, allowed = f"{len(fields)} fields", f"{len(names)}, as in the first line"
            raise InstanceError(_where(path, lines, line), found_fields, allowed)
        text = fields[column]
        value = int(text) if text.isdecimal() and len(text) < 20 else text
        lengths[_length(value, path, lines, line)] += count
    return lengths


def _fields(line: str, path: Path, lines: list[str]) -> list[str]:
    try:
        return [field.strip() for field in next(csv.reader([line]), [])]
    except csv.Error as error:
        raise InstanceError(_where(path, lines, line), str(error), "fields of a CSV file") from None


def _column(names: list[str], where: str) -> int:
    """Which column has the lengths: the only one, or the one that is called so."""
    named = [i for i, name in enumerate(names) if name.lower() in NAMES]
    if len(named) != 1 and len(names) > 1:
        found = f"the columns {', '.join(map(shown, names))}"
        raise InstanceError(where, found, f"one column, or one called {' or '.join(NAMES)}")
    return named[0] if named else 0


def _where(path: Path, lines: list[str], line: str) -> str:
    """Where a line stands for the first time."""
    return f"{path}:{1 + lines.index(line)}:1"


def _of_jsonl(path: Path, place: Place) -> Counter[int]:
    lines, counts = _lines(path, place)
    lengths: Counter[int] = Counter()
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
        lengths[_length(value, path, lines, line)] += count
    return lengths


def _length(value: object, path: Path, lines: list[str], line: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_BATCH:
        raise InstanceError(_where(path, lines, line), shown(value), _A_LENGTH)
    return value


def _of_npy(path: Path, place: Place) -> Counter[int]:
    """By the format's specification (numpy.lib.format), without the library."""
    data = read_bytes(path, _A_PATH, place)
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
    if (len(data) - begin - size) % int(kind[2:]):
        raise InstanceError(str(path), "a part of a value at its end", "a whole file")
    values = array(_TYPES[kind[1:]], data[begin + size :])
    check_extent(str(path), len(values), MOST_VALUES)
    if len(values) != shape[0]:
        found = f"{len(values)} values where its header says {shape[0]}"
        raise InstanceError(str(path), found, "a whole file")
    if kind[0] == ">":
        values.byteswap()
    counts = Counter(values)
    unfit = next((value for value in counts if not 1 <= value <= MOST_BATCH), None)
    if unfit is not None:
        raise InstanceError(f"{path} [{values.index(unfit)}]", str(unfit), _A_LENGTH)
    return counts
