"""What measured layers say of layers of other sizes: a Gaussian process over kernel shapes.

A shape is a model's width w, a tensor-parallel degree t and the tokens n of a micro-batch. The log
factor of its blocks, or of embedding and head (the ends), is that of measured over modelled time
without traffic. It has a part common to the GPU type and a part of its own (Rasmussen and Williams
2006, Gaussian Processes for Machine Learning, equations 2.25 and 2.26, for mean and covariance
given what was measured):
    cov(x, y) = r(w) (common^2 + own^2 [t_x = t_y] exp(-|ln n_x / n_y| / TOKENS))   (1)
    r(w) = exp(-|ln w_x / w_y| / width)
Between neighbours in tokens that is interpolation on their logarithm. Far from all that was
measured the mean is 0, the curve of `formulations.costs.compute`, and the deviation that of (1).
"""

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.instance import GpuType, Instance
from formulations.instance.machines import Attention, MeasuredLayers

Floats = NDArray[np.float64]
#: Width -> tensor-parallel degree -> tokens of a micro-batch -> factor.
Cells = Mapping[int, Mapping[int, Mapping[int, float]]]


class KernelShape(NamedTuple):
    """What decides the sizes of a block's kernels."""

    width: int
    tp: int
    tokens: int


class Spread(NamedTuple):
    """Standard deviations of log factors in (1), and the e-folding distance of log widths."""

    common: float
    own: float
    width: float


#: Chosen on steps of A100 of seven widths, each predicted by those of the others
#: (`bench.layer_cells`); ends: cross entropy in 32 bit weighs less the wider the model is.
BLOCKS, ENDS = Spread(0.08, 0.11, 0.5), Spread(0.4, 0.1, 1.0)
#: Common deviation of blocks of types whose kernels no source has measured.
ASSUMED = 0.25
#: Of a measured cell; e-folding distance of the logarithm of tokens.
CELL, TOKENS = 0.01, 1.5
#: Layers at most so many times as wide or as narrow as measured ones are said something of.
REACH = 2.0
ModelOrigin = Literal["analytic", "measured_layers", "near_measured_layers"]


def prior(x: Sequence[KernelShape], y: Sequence[KernelShape], spread: Spread = BLOCKS) -> Floats:
    """[x, y] equation (1)."""
    if not x or not y:
        return np.zeros((len(x), len(y)))
    (w_x, t_x, n_x), (w_y, t_y, n_y) = (np.array(shapes, dtype=float).T for shapes in (x, y))
    near = np.exp(-np.abs(np.log(w_x[:, None] / w_y)) / spread.width)
    tokens = np.exp(-np.abs(np.log(n_x[:, None] / n_y)) / TOKENS)
    covariance: Floats = near * (spread.common**2 + spread.own**2 * (t_x[:, None] == t_y) * tokens)
    return covariance


def posterior(
    cells: Cells, shapes: Sequence[KernelShape], spread: Spread = BLOCKS
) -> tuple[Floats, Floats]:
    """Mean [shapes] and covariance [shapes, shapes] of log factors, given measured cells."""
    covariance = prior(shapes, shapes, spread)
    if not cells:
        return np.zeros(len(shapes)), covariance
    at = [KernelShape(w, tp, n) for w, tps in cells.items() for tp in tps for n in tps[tp]]
    factors: Floats = np.log(np.array([cells[w][tp][n] for w, tp, n in at]))
    between = prior(shapes, at, spread)
    weights = np.linalg.solve(prior(at, at, spread) + CELL**2 * np.eye(len(at)), between.T)
    mean: Floats = weights.T @ factors
    return mean, covariance - between @ weights


def measured_layers(instance: Instance, gpu: GpuType) -> MeasuredLayers | None:
    """Those of a GPU type that say something of an instance's layers.

    Of dense blocks, in its precision, with or without fused attention as here, within REACH.
    """
    workload = instance.workload
    if workload.experts:
        return None
    attention: Attention = "fused_attention" if workload.flash_attention else "plain_attention"
    measured = gpu.measured_layers.get(attention)
    if measured is None or workload.precision not in measured.precisions:
        return None
    away = min(abs(log(workload.hidden_size / width)) for width in measured.blocks)
    return measured if away <= log(REACH) + 1e-9 else None


def layer_factor(
    instance: Instance, gpu: GpuType, shape: KernelShape, is_block: bool
) -> tuple[float, ModelOrigin]:
    """What the modelled time of a block, or of embedding or head, is multiplied by; from what."""
    measured = measured_layers(instance, gpu)
    if measured is None:
        return 1.0, "analytic"
    cells, spread = (measured.blocks, BLOCKS) if is_block else (measured.ends, ENDS)
    at_shape = shape.tokens in cells.get(shape.width, {}).get(shape.tp, {})
    factor = exp(posterior(cells, [shape], spread)[0][0])
    return factor, "measured_layers" if at_shape else "near_measured_layers"
