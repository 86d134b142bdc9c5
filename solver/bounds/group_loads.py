"""How the node groups share the stages in the filling bound, and what weights that allows: v.

Terms are those of `work_and_filling`.
"""

from functools import cached_property

import numpy as np

from solver.bounds.order_free_costs import Array, Mask, Numbers
from solver.bounds.work import WorkBounds


class GroupLoads:
    """Of N shapes and J node groups. per_weight: [N, P] load of a stage per weight, descending."""

    def __init__(self, bounds: WorkBounds, per_weight: Numbers) -> None:
        self.bounds, self.columns, self.per_weight = bounds, bounds.columns, per_weight

    @property
    def _alike(self) -> bool:
        """Whether all replicas have as many micro-batches."""
        return self.columns.instance.search.micro_batches == "even"

    @cached_property
    def _whole_work(self) -> Numbers:
        """[N, J] work of all layers; 1 at least."""
        whole: Numbers = np.maximum((self.bounds.work * self.bounds.counts[:, None]).sum(axis=1), 1)
        return whole

    @cached_property
    def fastest_first(self) -> Array:
        """[N, J] groups by the work of all layers."""
        return np.argsort(self._whole_work, axis=1, kind="stable")

    def most_on(self, inside: Mask) -> Array:
        """[N] most stages on these groups [N, J]: of the mean replica, or if unlike of any."""
        columns = self.columns
        if self._alike:
            mean: Array = (columns.slots * inside).sum(axis=1) // columns.dp
            return mean
        low = columns.per_node // columns.dp[:, None]
        high = -(-columns.per_node // columns.dp[:, None])
        others = columns.pp - (columns.nodes * low * ~inside).sum(axis=1)
        most: Array = np.minimum((columns.nodes * high * inside).sum(axis=1), others)
        return most

    @cached_property
    def _ends(self) -> Numbers:
        """[N, J] stages of one replica on its 1, 2, .. fastest groups, if these are used first."""
        columns, order = self.columns, self.fastest_first
        if not self._alike:
            rank = np.argsort(order, axis=1, kind="stable")
            most = [self.most_on(rank <= k) for k in range(order.shape[1])]
            return np.stack(most, axis=1).astype(np.float64)
        slots = np.take_along_axis(columns.slots, order, axis=1)
        ends: Numbers = np.cumsum(slots, axis=1) / columns.dp[:, None]
        two = (columns.used.sum(axis=1) == 2)[:, None]
        return np.where(two, np.floor(ends), ends)

    @cached_property
    def among(self) -> Mask:
        """[N, J] groups that the replica may stand on."""
        if not self._alike:
            return self.columns.used
        among = np.empty(self._ends.shape, dtype=bool)
        some = np.diff(self._ends, axis=1, prepend=0.0) > 0
        np.put_along_axis(among, self.fastest_first, some, axis=1)
        return among

    @cached_property
    def _loads(self) -> Numbers:
        """[N, J] load per weight of the 1, 2, .. fastest groups, if these take the stages first."""
        ends = np.minimum(self._ends, self.columns.pp[:, None])
        none = np.zeros((len(ends), 1))
        before = np.concatenate([none, np.cumsum(self.per_weight, axis=1)], axis=1)
        rate = np.concatenate([self.per_weight, none], axis=1)
        stage = ends.astype(np.int64)
        rows = np.arange(len(stage))[:, None]
        loads: Numbers = before[rows, stage] + (ends - stage) * rate[rows, stage]
        return loads

    def weights(self, capacity: Numbers) -> Numbers:
        """[N, J] v of all groups that load the stages to `capacity` [N] at most.

        level / (work of all layers) - 1 for the fastest groups, the first k of them for the
        largest k for which none of them is negative; 0 for the others.
        """
        whole = np.take_along_axis(self._whole_work, self.fastest_first, axis=1)
        spread = np.cumsum(np.diff(self._loads, axis=1, prepend=0.0) / whole, axis=1)
        some = spread > 0
        level = (capacity[:, None] + self._loads) / np.where(some, spread, 1.0)
        fast = some & (level >= whole)
        last = fast.shape[1] - 1 - np.argmax(fast[:, ::-1], axis=1)
        level = np.where(fast.any(axis=1), level[np.arange(len(last)), last], 0.0)
        return np.maximum(level[:, None] / self._whole_work - 1, 0.0)
