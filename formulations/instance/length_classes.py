"""From lengths in a file, or their distribution, to classes with so many sequences in a step.

Every length counts as the longest of its class, and where shares make no whole numbers, as one of
the next class: no step of as many sequences drawn evenly is judged shorter than it is. Files are
.csv, .jsonl and .npy.
"""

import csv
import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from itertools import accumulate, pairwise
from math import ceil, exp, floor, log
from pathlib import Path
from statistics import NormalDist
from tokenize import TokenError

from formulations.errors import InstanceError
from formulations.instance.documents import Place, read_bytes, read_text
from formulations.instance.record import (
    MOST_BATCH,
    MOST_VALUES,
    Batch,
    Section,
    check_extent,
    shown,
)

#: Halvings of the interval in which the least ratio of lengths in a class lies.
_HALVINGS = 50
#: What a column or a field with lengths is called.
NAMES = ("length", "tokens", "num_tokens")
_A_PATH = "the path of a file of lengths from this file's folder"
_A_LENGTH = f"a whole number of tokens from 1 to {MOST_BATCH}"
_NUMBER = re.compile(r"[-+]?[0-9][0-9._eE+-]*|")
_AN_ARRAY = "a .npy file of one dimension of integers"


class LengthClass(Section):
    """`count` sequences of a step, of about one length, each of `up_to` tokens at most."""

    up_to: Batch
    """Tokens of the longest of them."""
    count: Batch
    """Sequences of a step."""


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
    steps = zip(uppers, pairwise((0, *below)), strict=True)
    return tuple(
        LengthClass(up_to=upper, count=number - before)
        for upper, (before, number) in steps
        if number > before
    )


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
    """Sequences of every length, ascending; `place`: where the instance names the file."""
    readers = {".csv": _of_csv, ".jsonl": _of_jsonl}
    kind, counts = path.suffix.lower(), Counter[int]()
    if kind == ".npy":
        counts = _of_npy(path, place)
    elif kind in readers:
        lines = [line.strip() for line in read_text(path, _A_PATH, place).split("\n")]
        check_extent(str(path), len(lines), MOST_VALUES)
        for line, count, value in readers[kind](path, lines):
            if type(value) is not int or not 1 <= value <= MOST_BATCH:
                raise _error(path, lines, line, shown(value), _A_LENGTH)
            counts[value] += count
    else:
        problem = f"a file of type {path.suffix}" if path.suffix else "a file without a type"
        raise place.error(problem, "a .csv, .jsonl or .npy file of lengths")
    if not counts:
        raise InstanceError(str(path), "no lengths", "one at least")
    return dict(sorted(counts.items()))


def _error(path: Path, lines: list[str], line: str, problem: str, allowed: str) -> InstanceError:
    """At the place where a line stands for the first time."""
    return InstanceError(f"{path}:{1 + lines.index(line)}:1", problem, allowed)


def _counted(lines: list[str]) -> Iterator[tuple[str, int]]:
    """Lines that are not blank, and how often each stands in the file."""
    return ((line, count) for line, count in Counter(lines).items() if line)


def _of_csv(path: Path, lines: list[str]) -> Iterator[tuple[str, int, object]]:
    """Of the only column, or of the one that is called so: lines, how often, values."""

    def fields(line: str) -> list[str]:
        try:
            return [field.strip() for field in next(csv.reader([line]), [])]
        except csv.Error as error:
            raise _error(path, lines, line, str(error), "fields of a CSV file") from None

    header, column = next(filter(None, lines), ""), 0
    names = fields(header)
    if len(names) > 1 or not _NUMBER.fullmatch(header):
        named = [i for i, name in enumerate(names) if name.lower() in NAMES]
        if len(named) != 1 and len(names) > 1:
            allowed = f"one column, or one called {' or '.join(NAMES)}"
            columns = f"the columns {', '.join(map(shown, names))}"
            raise _error(path, lines, header, columns, allowed)
        column = named[0] if named else 0
        lines[lines.index(header)] = ""
    for line, count in _counted(lines):
        values = fields(line)
        if len(values) != len(names):
            allowed = f"{len(names)}, as in the first line"
            raise _error(path, lines, line, f"{len(values)} fields", allowed)
        text = values[column]
        yield line, count, int(text) if text.isdecimal() and len(text) < 20 else text


def _of_jsonl(path: Path, lines: list[str]) -> Iterator[tuple[str, int, object]]:
    """The same of numbers, or of mappings with one."""
    for line, count in _counted(lines):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            allowed = "a JSON value in every line"
            raise _error(path, lines, line, shown(line), allowed) from None
        if isinstance(value, dict):
            named = [name for name in NAMES if name in value]
            if len(named) != 1:
                mapping = f"a mapping with {' and '.join(named) or 'none of these fields'}"
                allowed = f"a number, or a mapping with one of {', '.join(NAMES)}"
                raise _error(path, lines, line, mapping, allowed)
            value = value[named[0]]
        yield line, count, value


def _of_npy(path: Path, place: Place) -> Counter[int]:
    from numpy.lib.format import read_array  # instances without such files need no numerics

    try:
        values = read_array(BytesIO(read_bytes(path, _A_PATH, place)), allow_pickle=False)
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError):
        raise InstanceError(str(path), "no whole array as numpy writes it", _AN_ARRAY) from None
    check_extent(str(path), values.size, MOST_VALUES)
    if values.dtype.kind not in "iu" or values.ndim != 1:
        problem = f"values of type {values.dtype.str}, shape {values.shape}"
        raise InstanceError(str(path), problem, _AN_ARRAY)
    lengths = values.tolist()
    counts = Counter[int](lengths)
    unfit = next((length for length in counts if not 1 <= length <= MOST_BATCH), None)
    if unfit is not None:
        raise InstanceError(f"{path} [{lengths.index(unfit)}]", str(unfit), _A_LENGTH)
    return counts
