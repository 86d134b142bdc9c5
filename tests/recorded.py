"""Cases of drawn problems as they are stored in tests/data/figures: how sharp a bound is, too.

A bound that got weaker stays sound, and no property sees it; a stored figure does.
`python -m tests.recorded [TESTS]` writes anew what these tests compare, and its diff is to be read:
an optimum never moves, a lower bound only rises, a count of work only falls.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from zlib import crc32

import numpy as np
import pytest
from pydantic_core import to_jsonable_python

from tests.conftest import ROOT

Cases = Iterator[tuple[str, object]]  #: each with its case
FOLDER = ROOT / "tests" / "data" / "figures"
_ANEW = "HETPLAN_RECORD_FIGURES"


def as_recorded(name: str, figures: Mapping[str, object]) -> None:
    """Whether each figure is the stored one, floats within 1e-9 of it.

    name: of the file; the figures are numbers, text, None or lists of them, each under its case.
    Tests that share a file have cases of their own.
    """
    path = FOLDER / f"{name}.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    given = json.loads(json.dumps(figures, default=lambda number: number.item()))
    if os.environ.get(_ANEW):
        lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted((stored | given).items()))
        path.parent.mkdir(exist_ok=True)
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        return
    for case, figure in given.items():
        assert case in stored, f"{path.name} has no {case!r}: python -m tests.recorded"
        assert _near(figure, stored[case]), f"{case}: {figure}, stored is {stored[case]}"


def recorded(name: str) -> Callable[[Callable[..., Cases]], Callable[..., None]]:
    """A test that the figures which it yields, each with its case, are those stored."""

    def of_figures(test: Callable[..., Cases]) -> Callable[..., None]:
        @wraps(test)
        def run(**fixtures: object) -> None:
            as_recorded(name, dict(test(**fixtures)))

        return run

    return of_figures


def summary(value: object) -> object:
    """An array of integers as its sum and its sum by position; lists and fields; all else as is."""
    if is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, np.ndarray):
        flat = value.ravel().astype(np.int64)
        return [int(flat.sum()), int(flat @ (1 + np.arange(flat.size) % 97))]
    return list(map(summary, value)) if isinstance(value, list | tuple) else value


def digest(value: object) -> str:
    """Eight letters that change with any figure or word of a value; floats count to nine digits.

    Names of classes and the order of fields do not count.
    """
    text = json.dumps(to_jsonable_python(value), sort_keys=True)
    text = re.sub(r"\d+\.\d+(e[-+]\d+)?|\d+e-\d+", lambda m: f"{float(m[0]):.9g}", text)
    return f"{crc32(text.encode()):08x}"


def _near(figure: object, stored: object) -> bool:
    if isinstance(figure, list) and isinstance(stored, list):
        return len(figure) == len(stored) and all(map(_near, figure, stored))
    if isinstance(figure, float) and isinstance(stored, float):
        return figure == pytest.approx(stored, rel=1e-9)
    return type(figure) is type(stored) and figure == stored


if __name__ == "__main__":
    os.environ[_ANEW] = "1"
    sys.exit(pytest.main(["-q", *(sys.argv[1:] or ["tests"])]))
