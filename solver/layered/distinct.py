"""Distinct values and rows, sorted. `np.unique` would do, but loads numpy's masked arrays."""

import numpy as np

from formulations.costs.tables import Array


def distinct(values: Array) -> Array:
    """[N] distinct values of an array, ascending."""
    ordered = np.sort(values, axis=None)
    kept = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=kept[1:])
    return ordered[kept]


def distinct_rows(rows: Array) -> Array:
    """[N, C] distinct rows of a matrix, in lexicographic order."""
    ordered = rows[np.lexsort(rows.T[::-1])]
    kept = np.ones(len(ordered), dtype=bool)
    kept[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return ordered[kept]
