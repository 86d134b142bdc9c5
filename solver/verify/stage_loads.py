"""How much weighted stages load a replica: c_i and the weights of node groups, see `filling`."""

from functools import cached_property

import numpy as np

from formulations.schedules import SCHEDULES
from solver.verify.closed_forms import Array, ClosedForms, Mask, Numbers

#: Stages with c_i below this share of m are not used.
LEAST_SHARE = 1e-3


def _along(values: Numbers, order: Array) -> Numbers:
    return np.take_along_axis(values, order, axis=1)


class StageLoads:
    """The loads of some shapes: N shapes, J node groups, P stages at most."""

    def __init__(self, forms: ClosedForms) -> None:
        self.forms = forms

    @cached_property
    def micro_batches(self) -> Array:
        """[N] m, those of every replica where all have equally many, of one at least elsewhere."""
        micro_batches: Array = -(-self.forms.total // self.forms.column("dp"))
        return micro_batches

    @cached_property
    def c(self) -> Numbers:
        """[N, P] c_i; inf beyond the last stage."""
        counted = (self.forms.nodes > 0)[:, None, :] & (self.forms.work > 0)
        shares = np.where(counted, self.forms.layers / np.maximum(self.forms.work, 1), 0.0).max(
            axis=(2, 3)
        )
        stage = np.arange(int(self.forms.column("pp").max()))
        left = np.full((len(self.forms.shapes), len(stage)), -np.inf)
        for schedule in {shape.schedule for shape in self.forms.shapes}:
            rows = np.flatnonzero([shape.schedule == schedule for shape in self.forms.shapes])
            pp, m = self.forms.column("pp")[rows, None], self.micro_batches[rows, None]
            own = np.minimum(stage, pp - 1)
            for path in SCHEDULES[schedule].missed(pp, own, m, np.ones_like(m)):
                kinds = zip(shares[:, rows, None], path, strict=True)
                missed = sum((share * number for share, number in kinds), np.zeros(own.shape))
                left[rows] = np.maximum(left[rows], m - 1 - missed)
        return np.where(stage < self.forms.column("pp")[:, None], left, np.inf)

    @cached_property
    def _whole_work(self) -> Numbers:
        """[N, J] of all layers; 1 at least."""
        whole: Numbers = np.maximum((self.forms.work * self.forms.counts[:, None]).sum(axis=1), 1)
        return whole

    @cached_property
    def order(self) -> Array:
        """[N, J] groups used, fastest first, then the others."""
        return np.argsort(
            np.where(self.forms.nodes > 0, self._whole_work, np.inf), axis=1, kind="stable"
        )

    @cached_property
    def ends(self) -> Numbers:
        """[N, J] stages of a replica up to a group, along `order`."""
        if not self.forms.even:
            return self._most_ends
        ends = (
            np.cumsum(_along(self.forms.slots, self.order), axis=1)
            / self.forms.column("dp")[:, None]
        )
        two = ((self.forms.nodes > 0).sum(axis=1) == 2)[:, None]
        last = np.arange(ends.shape[1]) >= 1
        return np.where(two & ~last, np.floor(ends), ends)

    @property
    def _most_ends(self) -> Numbers:
        """[N, J] the same at most, of any replica."""
        dp = self.forms.column("dp")[:, None]
        each = self.forms.slots // np.maximum(self.forms.nodes, 1)
        up, down = (
            _along(self.forms.nodes * part, self.order) for part in (-(-each // dp), each // dp)
        )
        others = down.sum(axis=1, keepdims=True) - np.cumsum(down, axis=1)
        ends: Numbers = np.minimum(np.cumsum(up, axis=1), self.forms.column("pp")[:, None] - others)
        return ends

    @cached_property
    def _loads(self) -> Numbers:
        """[N, J] load of weight 1 on each group, along `order`."""
        ranked = np.sort(self.c, axis=1)
        usable = ranked[:, :1] > LEAST_SHARE * self.micro_batches[:, None]
        rate = np.where(usable, 1 / np.where(usable, ranked, 1.0), 0.0)
        none = np.zeros((len(rate), 1))
        before = np.concatenate([none, np.cumsum(rate, axis=1)], axis=1)
        rate = np.concatenate([rate, none], axis=1)
        ends = np.minimum(self.ends, self.forms.column("pp")[:, None])
        stage = ends.astype(np.int64)
        until = _along(before, stage) + (ends - stage) * _along(rate, stage)
        loads: Numbers = np.diff(until, axis=1, prepend=0.0)
        return loads

    def weights(self, capacity: Numbers) -> Numbers:
        """[N, J] weights that load the stages to `capacity` [N]."""
        whole = _along(self._whole_work, self.order)
        spread = np.cumsum(self._loads / whole, axis=1)
        some = spread > 0
        level = (capacity[:, None] + np.cumsum(self._loads, axis=1)) / np.where(some, spread, 1.0)
        fast = some & (level >= whole)
        last = fast.shape[1] - 1 - np.argmax(fast[:, ::-1], axis=1)
        chosen = np.where(fast.any(axis=1), level[np.arange(len(last)), last], 0.0)
        weights: Numbers = np.maximum(chosen[:, None] / self._whole_work - 1, 0.0)
        return weights

    @cached_property
    def counted(self) -> Mask:
        """[N, J] groups on which the replica may have stages."""
        if not self.forms.even:
            return self.forms.nodes > 0
        counted = np.zeros(self.forms.nodes.shape, dtype=bool)
        np.put_along_axis(counted, self.order, np.diff(self.ends, axis=1, prepend=0.0) > 0, 1)
        return counted & (self.forms.nodes > 0)
