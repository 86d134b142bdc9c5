"""The work bound of many shapes at once, and what that of `whole_blocks` is made of, too.

N shapes, U runs of equal layers, J node groups, P stages at most. All of a bound is sums, products
and quotients of positive numbers, a few hundred at most, in double precision: each is wrong by less
than 1e-13 of itself, and `MARGIN` is taken off. What would cancel (c_i below) is not used.

Work. The slot of stage i of replica r, on group j, is busy for t with each of m_r micro-batches,
one at a time, whatever the schedule, and then comes the tail of the stage: T >= m_r t + s + start.
Give the groups weights w_j > 0 and add this up over all slots, times w. A replica has each layer x
once, on some group: it adds w_j (m_r t_xj + s_xj), at least the least over j. If all have
m_r = M / dp that is so for all replicas alike; if not, sum_r m_r = M, and w_j m_r t_xj and w_j s_xj
are each at least their own least. Any weights are valid; these are 1 / sum_x (M t_xj + dp s_xj).
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.plan import GRADIENTS_SPLIT, Shape
from formulations.schedules import SCHEDULES
from solver.verify.bounds import Prover, shape_key
from solver.verify.least_costs import LeastCosts

Numbers = NDArray[np.float64]
Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Taken off every bound, relative.
MARGIN = 1e-12
#: No bound is above this, so that it stays within 64 bits.
LARGEST = float(1 << 60)


def whole_ns(bound: Numbers) -> Array:
    """Rounded up, as times are whole, less a margin for float noise."""
    rounded: Array = np.ceil(np.minimum(bound * (1 - MARGIN), LARGEST)).astype(np.int64)
    return rounded


def passes_left(shapes: Sequence[Shape], shares: Numbers, micro_batches: Array) -> Numbers:
    """[N, P] c_i of one chunk per device, see `whole_blocks`; inf beyond the last stage.

    shares: [3, N] most that a kind of operation has of t. micro_batches: [N].
    """
    pp = np.array([[shape.pp] for shape in shapes])
    stage = np.arange(int(pp.max()))
    left = np.full((len(shapes), len(stage)), -np.inf)
    for schedule in {shape.schedule for shape in shapes}:
        rows = np.flatnonzero([shape.schedule == schedule for shape in shapes])
        m, own = micro_batches[rows, None], np.minimum(stage, pp[rows] - 1)
        for path in SCHEDULES[schedule].missed(pp[rows], own, m, np.ones_like(m)):
            kinds = zip(shares[:, rows, None], path, strict=True)
            missed = sum((share * number for share, number in kinds), np.zeros(own.shape))
            left[rows] = np.maximum(left[rows], m - 1 - missed)
    return np.where(stage < pp, left, np.inf)


class ClosedForms:
    """What the bounds of some shapes of one instance are made of, and the work bound."""

    def __init__(self, prover: Prover, shapes: Sequence[Shape]) -> None:
        self.prover, self.shapes = prover, shapes
        runs = prover.instance.workload.layer_runs
        self.counts = np.array([run.count for run in runs])
        self.starts = np.cumsum(self.counts) - self.counts
        self.even = prover.instance.search.micro_batches == "even"

    def column(self, name: str) -> Array:
        """[N] a field of the shapes."""
        return np.array([getattr(shape, name) for shape in self.shapes], dtype=np.int64)

    @cached_property
    def costs(self) -> list[LeastCosts]:
        """[N] what communication and optimizer cost at least."""
        return [LeastCosts(self.prover.instance, shape) for shape in self.shapes]

    @cached_property
    def layers(self) -> Numbers:
        """[3, N, U, J] forward, backward, weight gradients split off, of one layer of each run."""
        found: dict[tuple[object, ...], int] = {}
        rows: list[tuple[Array, Array, Array]] = []
        index = []
        for shape in self.shapes:
            splits = SCHEDULES[shape.schedule].splits_backward
            exchanges = (shape.zero, shape.dp, shape.nodes_used)
            key = (
                *shape_key(self.prover.instance, shape),
                splits,
                *exchanges[: 3 * (shape.zero >= GRADIENTS_SPLIT)],
            )
            if key not in found:
                found[key] = len(rows)
                times = self.prover.times_of(shape)
                weight = times.weight_ns[self.starts] * splits
                backward = times.backward_ns[self.starts] - weight
                rows.append((times.forward_ns[self.starts], backward, weight))
            index.append(found[key])
        return np.array(rows, dtype=np.float64).swapaxes(0, 1)[:, index]

    @cached_property
    def work(self) -> Numbers:
        """[N, U, J] all that one layer takes per micro-batch."""
        work: Numbers = self.layers.sum(axis=0)
        return work

    @cached_property
    def _tails(self) -> tuple[Numbers, Numbers]:
        known: dict[tuple[object, ...], tuple[Array, int]] = {}
        tail, start = np.zeros(self.work.shape), np.zeros(len(self.shapes))
        for i, one in enumerate(self.costs):
            shape = one.shape
            experts = shape.ep, shape.etp
            key = (shape.degrees, shape.dp, shape.pp, shape.zero, shape.nodes_used, experts)
            if key not in known:
                known[key] = one.tail_ns()
            tail[i][:, list(one.used)], start[i] = known[key]
        return tail, start

    @property
    def tail(self) -> Numbers:
        """[N, U, J] what follows the last backward, of one layer; 0 for groups not used."""
        return self._tails[0]

    @property
    def start(self) -> Numbers:
        """[N] start-up of sync and gather."""
        return self._tails[1]

    @cached_property
    def nodes(self) -> Array:
        """[N, J] nodes used."""
        return self.column("nodes_used")

    @cached_property
    def slots(self) -> Numbers:
        """[N, J] slots of all nodes used of a group."""
        gpus = [group.gpus_per_node for group in self.prover.instance.cluster.groups]
        sizes = [
            [n // slot.width for n, slot in zip(gpus, shape.degrees, strict=True)]
            for shape in self.shapes
        ]
        slots: Numbers = (self.nodes * np.array(sizes)).astype(np.float64)
        return slots

    @cached_property
    def total(self) -> Array:
        """[N] micro-batches of a step."""
        whole: Array = self.prover.instance.workload.global_batch // self.column("micro_batch")
        return whole

    def least(self, values: Numbers, among: Mask) -> Numbers:
        """[N, U] least of [N, U, J] over the groups of `among` [N, J]."""
        least: Numbers = np.where(among[:, None, :], values, np.inf).min(axis=2)
        return least

    def work_ns(self) -> Array:
        """[N] the work bound."""
        used = self.nodes > 0
        work = self.work * self.total[:, None, None]
        tail = self.tail * self.column("dp")[:, None, None]
        weights = 1 / np.maximum(((work + tail) * self.counts[:, None]).sum(axis=1), 1)
        scale = weights[:, None, :]
        if self.even:
            least = self.least(scale * (work + tail), used)
        else:
            least = self.least(scale * work, used) + self.least(scale * tail, used)
        speed = (weights * self.slots).sum(axis=1)
        return whole_ns((least * self.counts).sum(axis=1) / speed + self.start)
