"""Times of rows as a l^2 + b l + c: the least such curve that is nowhere below what is known.

Least: the sum over the points of what it is above them, each relative to its time. That is a linear
programme in a, b, c >= 0; its optimum lies where three of its constraints meet, and all of these
corners are tried. Two points have several such curves. The one with the least c, and a, is chosen:
a larger c makes rows of many short sequences faster than any that is known.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from formulations.lengths.problem import RowTime

#: Relative noise of the floats.
_NOISE = 1e-9


@dataclass(frozen=True, slots=True)
class Point:
    """A row that takes so long: the sum of the squares of its sequences' tokens, and their sum."""

    square: int
    tokens: int
    time_ns: int


def upper_fit(points: Sequence[Point]) -> tuple[RowTime, float]:
    """The curve, and by which share of its time it is above a point at most."""
    known = np.array([(p.square, p.tokens, 1) for p in points], dtype=np.float64)
    times = np.array([p.time_ns for p in points], dtype=np.float64)
    scale = known.max(axis=0)
    rows = known / scale / times[:, None]  # every point: rows @ (a, b, c) >= 1
    sides = np.vstack([rows, np.eye(3)])
    values = np.concatenate([np.ones(len(points)), np.zeros(3)])
    corners = np.array(list(combinations(range(len(sides)), 3)))
    regular = abs(np.linalg.det(sides[corners])) > _NOISE * np.prod(
        np.linalg.norm(sides[corners], axis=2), axis=1
    )
    corners = corners[regular]
    found = np.linalg.solve(sides[corners], values[corners][..., None])[..., 0]
    fits = (found @ sides.T >= values - _NOISE).all(axis=1)
    fitting = found[fits]
    total = (fitting @ rows.T).sum(axis=1)
    equal = fitting[total <= total.min() * (1 + _NOISE)]
    best = equal[np.lexsort(equal[:, [0, 2]].T)[0]]  # by c, then by a
    square, token, row = (max(0.0, float(one)) for one in best / scale)
    above = square * known[:, 0] + token * known[:, 1] + row - times
    curve = RowTime(square, token, math.ceil(row + max(0.0, -above.min())))
    over = max(
        (curve.per_square_ns * p.square + curve.per_token_ns * p.tokens + curve.per_row_ns)
        / p.time_ns
        for p in points
    )
    return curve, over - 1
