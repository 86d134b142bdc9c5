"""How much each stage counts in the filling bound, and the loads of the groups: c_i, v.

Terms are those of `work_and_filling`.
"""

from functools import cached_property

import numpy as np

from formulations.schedules import SCHEDULES
from formulations.schedules.interleaved import forwards_before_return
from solver.bounds.order_free_costs import Array, Mask, Numbers
from solver.bounds.work import WorkBounds


class StageLoads:
    """Of N shapes with P stages at most and J node groups."""

    def __init__(self, bounds: WorkBounds) -> None:
        self.bounds, self.columns = bounds, bounds.columns

    @cached_property
    def splits(self) -> Mask:
        """[N] whether weight gradients are operations of their own."""
        return np.array(
            [SCHEDULES[shape.schedule].splits_backward for shape in self.columns.shapes]
        )

    @cached_property
    def chunked(self) -> Mask:
        """[N] whether devices have several chunks."""
        return np.array([shape.vpp > 1 for shape in self.columns.shapes])

    @cached_property
    def weight(self) -> Numbers:
        """[N, U, J] ns of weight gradients that are operations of their own."""
        weight: Numbers = self.bounds.kinds[2] * self.splits[:, None, None]
        return weight

    @cached_property
    def micro_batches(self) -> Array:
        """[N] m of every replica, or where they may be unlike of that with the most, at least."""
        micro_batches: Array = -(-self.columns.total // self.columns.dp)
        return micro_batches

    @property
    def alike(self) -> bool:
        """Whether all replicas have as many micro-batches."""
        return self.columns.instance.search.micro_batches == "even"

    @cached_property
    def shares(self) -> Numbers:
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
            pp, m = columns.pp[rows, None], self.micro_batches[rows, None]
            phi = self.shares[:, rows, None]
            for path in SCHEDULES[schedule].missed(pp, np.minimum(stage, pp - 1), m, 0 * m + 1):
                kept = m - 1 - sum(part * own for part, own in zip(phi, path, strict=True))
                left[rows] = np.maximum(left[rows], kept)
        for n in np.flatnonzero(self.chunked).tolist():
            left[n] = self._left_of_chunks(n, stage)
        return np.where(stage < columns.pp[:, None], left, np.inf)

    def _left_of_chunks(self, n: int, device: Array) -> Numbers:
        """[P] c_i of the devices of a shape with several chunks each."""
        shape = self.columns.shapes[n]
        device = np.minimum(device, shape.pp - 1)
        most = forwards_before_return(shape.pp, device, int(self.micro_batches[n]), shape.vpp)
        left: Numbers = self.micro_batches[n] - self.shares[0, n] * most
        return left

    @cached_property
    def per_weight(self) -> Numbers:
        """[N, P] loads 1 / c_i per weight, the largest first; 0 beyond the last, or if a c <= 0."""
        ranked = np.sort(self.factors, axis=1)
        some = ranked[:, :1] > 0
        return np.where(some, 1 / np.where(some, ranked, 1.0), 0.0)

    @cached_property
    def whole_work(self) -> Numbers:
        """[N, J] work of all layers; 1 at least."""
        whole: Numbers = np.maximum((self.bounds.work * self.bounds.counts[:, None]).sum(axis=1), 1)
        return whole

    @cached_property
    def fastest_first(self) -> Array:
        """[N, J] groups by the work of all layers."""
        return np.argsort(self.whole_work, axis=1, kind="stable")

    def most_on(self, inside: Mask) -> Array:
        """[N] most stages on these groups [N, J]: of the mean replica, or if unlike of any."""
        columns = self.columns
        if self.alike:
            mean: Array = (columns.slots * inside).sum(axis=1) // columns.dp
            return mean
        low = columns.per_node // columns.dp[:, None]
        high = -(-columns.per_node // columns.dp[:, None])
        others = columns.pp - (columns.nodes * low * ~inside).sum(axis=1)
        most: Array = np.minimum((columns.nodes * high * inside).sum(axis=1), others)
        return most

    @cached_property
    def stages(self) -> Numbers:
        """[N, J] stages of one replica on a group, if the groups are used fastest first."""
        columns, order = self.columns, self.fastest_first
        if self.alike:
            slots = np.take_along_axis(columns.slots, order, axis=1)
            ends = np.cumsum(slots, axis=1) / columns.dp[:, None]
            two = (columns.used.sum(axis=1) == 2)[:, None]
            ends = np.where(two, np.floor(ends), ends)
        else:
            rank = np.argsort(order, axis=1, kind="stable")
            ends = np.stack([self.most_on(rank <= k) for k in range(order.shape[1])], axis=1)
        stages = np.empty(ends.shape)
        np.put_along_axis(stages, order, np.diff(ends, axis=1, prepend=0.0), axis=1)
        return stages

    @property
    def among(self) -> Mask:
        """[N, J] groups that the replica may stand on."""
        return self.stages > 0 if self.alike else self.columns.used

    @cached_property
    def loads(self) -> Numbers:
        """[N, J] load of a group per weight if the groups take the stages fastest first."""
        order = self.fastest_first
        ends = np.cumsum(np.take_along_axis(self.stages, order, axis=1), axis=1)
        ends = np.minimum(ends, self.columns.pp[:, None])
        none = np.zeros((len(ends), 1))
        before = np.concatenate([none, np.cumsum(self.per_weight, axis=1)], axis=1)
        rate = np.concatenate([self.per_weight, none], axis=1)
        stage = ends.astype(np.int64)
        rows = np.arange(len(stage))[:, None]
        until = before[rows, stage] + (ends - stage) * rate[rows, stage]
        loads: Numbers = np.empty_like(until)
        np.put_along_axis(loads, order, np.diff(until, axis=1, prepend=0.0), axis=1)
        return loads

    def weights(self, capacity: Numbers) -> Numbers:
        """[N, J] v of all groups that load the stages to `capacity` [N] at most.

        level / (work of all layers) - 1 for the fastest groups, the first k of them for the
        largest k for which none of them is negative; 0 for the others.
        """
        order = self.fastest_first
        loads = np.take_along_axis(self.loads, order, axis=1)
        whole = np.take_along_axis(self.whole_work, order, axis=1)
        spread = np.cumsum(loads / whole, axis=1)
        some = spread > 0
        level = (capacity[:, None] + np.cumsum(loads, axis=1)) / np.where(some, spread, 1.0)
        fast = some & (level >= whole)
        last = fast.shape[1] - 1 - np.argmax(fast[:, ::-1], axis=1)
        level = np.where(fast.any(axis=1), level[np.arange(len(last)), last], 0.0)
        above: Numbers = np.maximum(level[:, None] / self.whole_work - 1, 0.0)
        return above
