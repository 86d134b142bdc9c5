"""Lower bounds of the step time of every plan of a shape, in closed form, many shapes at once.

Paths: the work of one device, of any schedule; and its latency paths. Weighted sums of them over
all slots are surrogates (Glover 1968) in which node orders and splits cancel out.

They need no cost tables: layers of one run are alike, and shapes of equal tp, micro-batch size and
recomputation have the same layer times. M micro-batches, t = forward + backward of a layer or a
stage, s = what it adds to the tail of its stage (gradient sync, optimizer, gather), a = the start
of that; see `order_free_costs` for s, a, and transfers. The step time is T.

Work. The slot of stage i of replica r is busy for m_r t, and its tail follows: T >= m_r t + s + a.
Take weights w_j > 0 for the node groups and add up over all slots. Every replica passes each layer
once, so T sum_slots w >= sum_l sum_r w_j (m_r t_lj + s_lj) + a sum_slots w, with the group j where
replica r has layer l. If all m_r = M / dp, each term is M / dp t + s at least for the best j; else
sum_r m_r = M and the two parts are so, one by one. The weights here make both parts, over all
layers, equal for all groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from formulations.costs.compute import LayerTimes
from solver.bounds.order_free_costs import (
    Array,
    Mask,
    Numbers,
    ShapeColumns,
    Tails,
    tails,
)

#: Taken off every bound, relative: more than float noise.
MARGIN = 1e-12


def whole_ns(bound: Numbers) -> Array:
    """Rounded up, as times are whole, after a margin for float noise."""
    return np.ceil(bound * (1 - MARGIN)).astype(np.int64)


@dataclass(frozen=True)
class WorkBounds:
    """The work bounds of N shapes with their layer times. U runs of equal layers, J node groups."""

    columns: ShapeColumns
    times: Sequence[LayerTimes]

    @cached_property
    def counts(self) -> Array:
        """[U] layers of a run."""
        runs = self.columns.instance.workload.layer_runs
        return np.array([run.count for run in runs], dtype=np.int64)

    @cached_property
    def kinds(self) -> Numbers:
        """[3, N, U, J] forward, backward, and of the latter weight gradients of one layer a run."""
        starts = np.cumsum(self.counts) - self.counts
        known = {id(times): times for times in self.times}
        number = {key: i for i, key in enumerate(known)}
        values = [
            [t.forward_ns[starts], t.backward_ns[starts], t.weight_ns[starts]]
            for t in known.values()
        ]
        which = [number[id(times)] for times in self.times]
        return np.array(values, dtype=np.float64).swapaxes(0, 1)[:, which]

    @cached_property
    def work(self) -> Numbers:
        """[N, U, J] forward + backward."""
        work: Numbers = self.kinds[0] + self.kinds[1]
        return work

    @cached_property
    def tails(self) -> Tails:
        """What follows the last backward of a stage."""
        return tails(self.columns)

    def least(self, values: Numbers, among: Mask) -> Numbers:
        """[N, U] least of [N, U, J] over the groups of `among` [N, J]."""
        least: Numbers = np.where(among[:, None, :], values, np.inf).min(axis=2)
        return least

    def work_ns(self) -> Array:
        """[N] the work bound."""
        columns, used = self.columns, self.columns.used
        tail = self.tails.layers * columns.dp[:, None, None]
        work = self.work * columns.total[:, None, None]
        weights = 1 / np.maximum(((work + tail) * self.counts[:, None]).sum(axis=1), 1)
        scale = weights[:, None, :]
        if columns.instance.search.micro_batches == "even":
            least = self.least(scale * (work + tail), used)
        else:
            least = self.least(scale * work, used) + self.least(scale * tail, used)
        speed = (weights * columns.slots).sum(axis=1)
        return whole_ns((least * self.counts).sum(axis=1) / speed + self.tails.start)
