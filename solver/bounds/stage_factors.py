"""How much each stage counts in the filling bound: c_i, see `work_and_filling`."""

from functools import cached_property

import numpy as np

from formulations.schedules import SCHEDULES
from formulations.schedules.interleaved import forwards_before_return
from solver.bounds.order_free_costs import Array, Mask, Numbers
from solver.bounds.work import WorkBounds


class StageFactors:
    """Of N shapes with P stages at most, U runs of layers and J node groups."""

    def __init__(self, bounds: WorkBounds) -> None:
        self.bounds, self.columns = bounds, bounds.columns

    @cached_property
    def chunked(self) -> Mask:
        """[N] whether devices have several chunks."""
        return np.array([shape.vpp > 1 for shape in self.columns.shapes])

    @cached_property
    def splits(self) -> Mask:
        """[N] whether weight gradients are operations of their own."""
        return np.array([SCHEDULES[one.schedule].splits_backward for one in self.columns.shapes])

    @cached_property
    def weight(self) -> Numbers:
        """[N, U, J] ns of weight gradients that are operations of their own."""
        weight: Numbers = self.bounds.kinds[2] * self.splits[:, None, None]
        return weight

    @cached_property
    def _micro_batches(self) -> Array:
        """[N] m of every replica, or where they may be unlike of that with the most, at least."""
        return -(-self.columns.total // self.columns.dp)

    @cached_property
    def _shares(self) -> Numbers:
        """[kinds, N] phi."""
        forward, backward, _ = self.bounds.kinds
        kinds = np.stack([forward, backward - self.weight, self.weight])
        counted = self.columns.used[:, None, :] & (self.bounds.work > 0)
        shares: Numbers = np.where(counted, kinds / np.maximum(self.bounds.work, 1), 0.0).max(
            axis=(2, 3)
        )
        return shares

    @cached_property
    def factors(self) -> Numbers:
        """[N, P] c_i of a stage; inf beyond the last."""
        columns, shapes = self.columns, self.columns.shapes
        stage = np.arange(int(columns.pp.max()))
        left = np.full((len(shapes), len(stage)), -np.inf)
        for schedule in {shape.schedule for shape in shapes}:
            rows = np.flatnonzero([shape.schedule == schedule for shape in shapes])
            pp, m = columns.pp[rows, None], self._micro_batches[rows, None]
            phi = self._shares[:, rows, None]
            for path in SCHEDULES[schedule].missed(pp, np.minimum(stage, pp - 1), m, 0 * m + 1):
                kept = m - 1 - sum(part * own for part, own in zip(phi, path, strict=True))
                left[rows] = np.maximum(left[rows], kept)
        for n in np.flatnonzero(self.chunked).tolist():
            left[n] = self._left_of_chunks(n, stage)
        return np.where(stage < columns.pp[:, None], left, np.inf)

    def _left_of_chunks(self, n: int, device: Array) -> Numbers:
        """[P] c_i of the devices of a shape with several chunks each."""
        shape, m = self.columns.shapes[n], int(self._micro_batches[n])
        device = np.minimum(device, shape.pp - 1)
        most = forwards_before_return(shape.pp, device, m, shape.vpp)
        left: Numbers = m - self._shares[0, n] * most
        return left

    @cached_property
    def per_weight(self) -> Numbers:
        """[N, P] loads 1 / c_i per weight, the largest first; 0 beyond the last, or if a c <= 0."""
        ranked = np.sort(self.factors, axis=1)
        some = ranked[:, :1] > 0
        return np.where(some, 1 / np.where(some, ranked, 1.0), 0.0)
