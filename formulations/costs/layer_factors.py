"""What measured layers say of layers of other sizes: a Gaussian process over kernel shapes.

A shape is a model's width w, a tensor-parallel degree t and the tokens n of a micro-batch. The log
factor of its blocks, measured over modelled time, is a common part of the GPU type and a part of
its own (Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, equations 2.25, 2.26
for mean and covariance given what was measured):
    cov(x, y) = COMMON^2 r(w) + OWN^2 r(w) [t_x = t_y] exp(-|ln n_x / n_y| / TOKENS)   (1)
    r(w) = exp(-|ln w_x / w_y| / WIDTH)
Between neighbours in tokens that is interpolation on their logarithm. Far from all that was
measured the mean is 0, the curve of `formulations.costs.compute`, and the deviation that of (1).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: Width -> tensor-parallel degree -> tokens of a micro-batch -> log factor of blocks.
Cells = Mapping[int, Mapping[int, Mapping[int, float]]]


class KernelShape(NamedTuple):
    """What decides the sizes of a block's kernels."""

    width: int
    tp: int
    tokens: int


#: Standard deviations of log factors: common to a GPU type, where its kernels were measured and
#: where they were not; of a shape; of a measured cell.
COMMON, ASSUMED, OWN, CELL = 0.08, 0.25, 0.11, 0.01
#: e-folding distances of the logarithms of width and tokens.
WIDTH, TOKENS = 1.0, 1.5


def prior(x: Sequence[KernelShape], y: Sequence[KernelShape], common: float = COMMON) -> Floats:
    """[x, y] equation (1)."""
    if not x or not y:
        return np.zeros((len(x), len(y)))
    (w_x, t_x, n_x), (w_y, t_y, n_y) = (np.array(shapes, dtype=float).T for shapes in (x, y))
    near = np.exp(-np.abs(np.log(w_x[:, None] / w_y)) / WIDTH)
    tokens = np.exp(-np.abs(np.log(n_x[:, None] / n_y)) / TOKENS)
    covariance: Floats = near * (common**2 + OWN**2 * (t_x[:, None] == t_y) * tokens)
    return covariance


def posterior(
    cells: Cells, shapes: Sequence[KernelShape], common: float = COMMON
) -> tuple[Floats, Floats]:
    """Mean [shapes] and covariance [shapes, shapes] of log factors, given measured cells."""
    known = [
        (KernelShape(width, tp, tokens), factor)
        for width, degrees in cells.items()
        for tp, sizes in degrees.items()
        for tokens, factor in sizes.items()
    ]
    covariance = prior(shapes, shapes, common)
    if not known:
        return np.zeros(len(shapes)), covariance
    at, factors = zip(*known, strict=True)
    between = prior(shapes, at, common)
    weights = np.linalg.solve(prior(at, at, common) + CELL**2 * np.eye(len(at)), between.T)
    return weights.T @ np.array(factors), covariance - between @ weights
