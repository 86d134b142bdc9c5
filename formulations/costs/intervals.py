"""Sums and maxima over all runs of layers [a, b)."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]
Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]
Values = TypeVar("Values", Array, Numbers)


def sums_before(values: Values, axis: int = -1) -> Values:
    """[.., n] sum of all `values` [.., L] along an axis before each boundary; n = L + 1."""
    none = np.zeros_like(values.swapaxes(0, axis)[:1].swapaxes(0, axis))
    return np.concatenate([none, np.cumsum(values, axis)], axis)


def interval_sums(values: Array) -> Array:
    """[.., n, n] sum of `values` [.., L] over [a, b); negative where b < a."""
    before = sums_before(values)
    sums: Array = before[..., None, :] - before[..., :, None]
    return sums


def interval_maxima(values: Array) -> Array:
    """[n, n] largest of `values` [L] over [start, end), 0 if there are none; n = L + 1."""
    size = len(values) + 1
    maxima = np.zeros((size, size), dtype=np.int64)
    for start in range(len(values)):
        maxima[start, start + 1 :] = np.maximum.accumulate(values[start:])
    return maxima
