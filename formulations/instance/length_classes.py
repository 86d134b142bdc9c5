"""From lengths in a file, or their distribution, to classes with so many sequences in a step.

Every length counts as the longest of its class, and where shares make no whole numbers, as one of
the next class: no step of as many sequences drawn evenly is judged shorter than it is. Files are
.csv, .jsonl and .npy.
"""

import csv
import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from io import BytesIO
from itertools import accumulate, pairwise
from math import ceil, exp, floor, log
from pathlib import Path
from tokenize import TokenError
from typing import Any

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

#: What a column or a field with lengths is called.
NAMES = ("length", "tokens", "num_tokens")
_A_PATH = "the path of a file of lengths from this file's folder"
_NUMBER = re.compile(r"[-+]?[0-9][0-9._eE+-]*|")


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

    counts: of every length, ascending. sequences: all of them if it is not given. Lengths in a
    class differ by one ratio at most, of which the classes make that of all lengths.
    """
    lengths = list(counts)
    below = list(accumulate(counts.values(), initial=0))
    uppers = lengths
    if len(lengths) > num_classes:
        ratio = (lengths[-1] / lengths[0]) ** (1 / num_classes)
        edges = [lengths[0] * ratio**i for i in range(1, num_classes)]
        longest = {lengths[bisect_right(lengths, edge) - 1] for edge in edges}
        uppers = sorted({*longest, lengths[-1]})
    shares = [below[bisect_left(lengths, upper) + 1] for upper in uppers]
    number = below[-1] if sequences is None else sequences
    return _classes(uppers, [number * share // below[-1] for share in shares])


def log_normal_classes(
    median: int, sigma: float, longest: int, sequences: int, num_classes: int
) -> tuple[LengthClass, ...]:
    """The same of a log-normal distribution that is cut off at the longest length."""
    from statistics import NormalDist  # which takes long to import, for few instances

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


def read_lengths(path: Path, place: Place) -> Mapping[int, int]:
    """Sequences of every length, ascending; `place`: where the instance names the file."""
    kind, counts, names = path.suffix.lower(), Counter[int](), list[str]()
    if kind not in (".csv", ".jsonl", ".npy"):
        problem = f"a file of type {path.suffix}" if path.suffix else "a file without a type"
        raise place.error(problem, "a .csv, .jsonl or .npy file of lengths")
    if kind == ".npy":
        entries: list[Any] = _array(path, place)
    else:
        entries = [line.strip() for line in read_text(path, _A_PATH, place).split("\n")]
    check_extent(str(path), len(entries), MOST_VALUES)

    def error(entry: object, problem: str, allowed: str) -> InstanceError:
        """At the place where an entry stands for the first time."""
        n = entries.index(entry)
        return InstanceError(
            f"{path} [{n}]" if kind == ".npy" else f"{path}:{n + 1}:1", problem, allowed
        )

    def parsed(line: str) -> Any:
        try:
            return next(csv.reader([line]), []) if kind == ".csv" else json.loads(line)
        except (csv.Error, ValueError, RecursionError) as fault:
            text = str(fault) if isinstance(fault, csv.Error) else shown(line)
            raise error(line, text, f"a line of a {kind} file") from None

    if kind == ".csv":  # a header, unless there is one column of numbers alone
        header = next(filter(None, entries), "")
        names = [name.strip().lower() for name in parsed(header)]
        if len(names) > 1 or not _NUMBER.fullmatch(header):
            entries[entries.index(header)] = ""
        names = names if len(names) > 1 else [NAMES[0]]
    for entry, count in Counter(entries).items():
        if entry == "":
            continue
        length = parsed(entry) if isinstance(entry, str) else entry
        if names or isinstance(length, dict):
            fields = names or list(length)
            named = [n for n, name in enumerate(fields) if name in NAMES]
            if len(named) != 1 or len(length) != len(fields):
                listed = ", ".join(map(shown, fields))
                problem = f"{len(length)} fields" if len(length) != len(fields) else listed
                raise error(
                    entry, problem, f"a number alone, or one field called {' or '.join(NAMES)}"
                )
            length = length[named[0]].strip() if names else length[fields[named[0]]]
            if names and length.isdecimal() and len(length) < 20:
                length = int(length)
        if type(length) is not int or not 1 <= length <= MOST_BATCH:
            allowed = f"a whole number of tokens from 1 to {MOST_BATCH}"
            raise error(entry, shown(length), allowed)
        counts[length] += count
    if not counts:
        raise InstanceError(str(path), "no lengths", "one at least")
    return dict(sorted(counts.items()))


def _array(path: Path, place: Place) -> list[int]:
    from numpy.lib.format import read_array  # instances without such files need no numerics

    allowed = "a .npy file of one dimension of integers"
    try:
        values = read_array(BytesIO(read_bytes(path, _A_PATH, place)), allow_pickle=False)
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError):
        raise InstanceError(str(path), "no whole array as numpy writes it", allowed) from None
    if values.dtype.kind not in "iu" or values.ndim != 1:
        problem = f"values of type {values.dtype.str}, shape {values.shape}"
        raise InstanceError(str(path), problem, allowed)
    lengths: list[int] = values.tolist()
    return lengths
