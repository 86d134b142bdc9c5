"""Lower bounds of the step time of every plan of a shape, in closed form, many shapes at once.

Paths: the work of one device, of any schedule; and its latency paths. Weighted sums of them over
all slots are surrogates (Glover 1968) in which node orders and splits cancel out.

They need no cost tables: layers of one run are alike, and shapes of equal tp, micro-batch size and
recomputation have the same layer times. M micro-batches, t = forward + backward of a layer or a
stage, s = what it adds to the tail of its stage (gradient sync, optimizer, gather), a = the start
of that; see `placement_independent` for s, a, and transfers. The step time is T.

Work. The slot of stage i of replica r is busy for m_r t, and its tail follows: T >= m_r t + s + a.
Take weights w_j > 0 for the node groups and add up over all slots. Every replica passes each layer
once, so T sum_slots w >= sum_l sum_r w_j (m_r t_lj + s_lj) + a sum_slots w, with the group j where
replica r has layer l. If all m_r = M / dp, each term is M / dp t + s at least for the best j; else
sum_r m_r = M and the two parts are so, one by one. The weights here make both parts, over all
layers, equal for all groups.

Filling, if all replicas have m micro-batches and devices one chunk. (If these may be unlike, look
at the replica with the most: it has M / dp or more, m that rounded up, and what follows only grows
with them; see Unlike.) By the latency paths of stage i of replica r
(`formulations.schedules.operations.Missed`), the last backward of stage 0 ends no earlier than
latency_r + (m - 1) t_ri less what the path misses of stage i. latency_r is the sum of its t_rk, but
for weight gradients split off, and of its transfers, both ways. Then follow the tail of stage 0,
and the all-reduce of tied embeddings. Let phi of each kind of operation be its largest share in the
work of any layer on any group used. Then stage i misses at most the sum over kinds of phi times
their number, times t_ri; with c_i = m - 1 less that sum, for the better path, if c_i > 0: T >=
latency_r + c_i t_ri + s_r0 + a, s_r0 that of stage 0.

Several chunks: micro-batch 0 goes through all of them, back to the last chunk of device i, which
then does what is left, and its last backward goes up to device 0. Before that first backward are u
forwards of some chunk at most, so the same holds with c_i = m - phi u of forwards, and a latency of
all forwards, their transfers, and a block's backward on each other device.

Take weights v_j >= 0 for the node groups, and v_j - d_j >= 0 on stage 0, such that the mean over
replicas of the sum over stages of v / c_i, less d / c_0 on stage 0, is at most 1. Some replica has
no more than the mean, so these are weights of its stages that add up to 1 at most, and

    T >= latency_r + sum_i v t_ri - d t_r0 + s_r0 + a = sum_i (1 + v) t_ri - d t_r0 + s_r0 + a
      >= transfers + a + sum_l min_j of (1 + v_j - d_j) t_lj + s_lj on stage 0, (1 + v_j) t_lj else.

The first block and what is before it are on stage 0, the last block and what follows on another
one; between them the lesser counts. Each stage has dp slots. So, whatever the node order, the mean
of v / c_i is largest when the groups of larger v take the stages whose 1 / c_i are largest, and
from it goes the least d_j / c_0 at least: v may be larger by what stage 0 does with less.

Unlike. The replica with the most micro-batches stands where it stands: instead of the mean replica
count its own stages. A node of c slots in a row has c / dp of any replica's stages, rounded up or
down; so on the k fastest groups it has no more than their nodes have rounded up, nor than the
others leave it of p, rounded down. Its load is the largest if it has so many, and v grows with the
speed.

The weights here make (1 + v_j) sum_l t_lj equal for all groups but those too slow for any. d is 0,
or the same for all groups: the most that leaves no v_j - d_j negative and a block of the longest
run no cheaper on stage 0 than elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from formulations.costs.compute import LayerTimes
from formulations.instance import Instance
from formulations.plan import Shape
from formulations.schedules import SCHEDULES
from formulations.schedules.interleaved import forwards_before_return
from solver.bounds.placement_independent import (
    Array,
    Mask,
    Numbers,
    ShapeColumns,
    Tails,
    send_ns,
    tails,
    tied_ns,
)


class ClosedForm(NamedTuple):
    """Lower bound of the step time of every plan of a shape, and which one that is."""

    bound_ns: int
    proof: Literal["work", "filling"]


def closed_forms(
    instance: Instance, shapes: Sequence[Shape], times: Sequence[LayerTimes]
) -> list[ClosedForm]:
    """The larger of the work and the filling bound of shapes with these layer times."""
    if not shapes:
        return []
    bounds = WorkBounds(ShapeColumns(instance, shapes), times)
    return [
        ClosedForm(filling, "filling") if filling > work else ClosedForm(work, "work")
        for work, filling in zip(
            bounds.work_ns().tolist(), Filling(bounds).filling_ns().tolist(), strict=True
        )
    ]


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


class Filling:
    """The filling bounds of the same shapes."""

    def __init__(self, bounds: WorkBounds) -> None:
        self.bounds, self.columns = bounds, bounds.columns
        self.loads = GroupLoads(bounds, self.per_weight)

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

    @cached_property
    def passed(self) -> Numbers:
        """[N, U, J] ns of a layer that count in the latency."""
        chunked = self.chunked[:, None, None]
        return np.where(chunked, self.bounds.kinds[0], self.bounds.work - self.weight)

    @cached_property
    def places(self) -> tuple[Array, Array]:
        """[U] layers of a run that are surely on stage 0; surely not, if there are more."""
        instance = self.columns.instance
        layers = instance.workload.layers
        blocks = [i for i, layer in enumerate(layers) if layer.is_block]
        if instance.search.embedding_only_stages or not blocks:
            blocks = [0, len(layers) - 1]
        ends = np.cumsum(self.bounds.counts)
        starts = ends - self.bounds.counts
        first = np.clip(blocks[0] + 1 - starts, 0, self.bounds.counts)
        later = np.clip(ends - max(blocks[-1], blocks[0] + 1), 0, self.bounds.counts)
        return first, later

    def _filled(self, weights: Numbers, less: Numbers) -> Numbers:
        """[N] the filling bound of these weights [N, J], on stage 0 less by [N]."""
        first, later = self.places
        among = self.loads.among
        single = (self.columns.pp == 1)[:, None]
        usual = weights[:, None, :] * self.bounds.work + self.passed
        other = self.bounds.least(usual, among)
        zeroth = self.bounds.least(
            usual - less[:, None, None] * self.bounds.work + self.bounds.tails.layers, among
        )
        between = (
            zeroth * first
            + other * later
            + np.minimum(zeroth, other) * (self.bounds.counts - first - later)
        )
        whole: Numbers = np.where(single, zeroth * self.bounds.counts, between).sum(axis=1)
        return whole

    @cached_property
    def after(self) -> Numbers:
        """[N] start of the tail, tied embeddings, transfers of one micro-batch both ways.

        With several chunks there and no more, and a block's backward on all devices but one.
        """
        ways = np.where(self.chunked, 1, 2)
        after: Numbers = (
            self.bounds.tails.start + tied_ns(self.columns) + ways * send_ns(self.columns)
        )
        if self.chunked.any() and not self.columns.instance.search.embedding_only_stages:
            blocks = [run.layer.is_block for run in self.columns.instance.workload.layer_runs]
            least = self.bounds.least(self.bounds.kinds[1], self.columns.used)[:, blocks].min(
                axis=1
            )
            after = after + self.chunked * (self.columns.pp - 1) * least
        return after

    def filling_ns(self) -> Array:
        """[N] the filling bound; 0 where devices have several chunks."""
        columns, among = self.columns, self.loads.among
        one = np.ones(len(columns.shapes))
        weights = self.loads.weights(one)
        blocks = [layers.layer.is_block for layers in columns.instance.workload.layer_runs]
        run = int((self.bounds.counts * blocks).argmax())
        ratios = self.bounds.tails.layers[:, run] / np.maximum(self.bounds.work[:, run], 1)
        ratio, room = (np.where(among, x, np.inf).min(axis=1) for x in (ratios, weights))
        less = np.where(columns.pp > 1, np.minimum(ratio, room), 0.0)
        first = np.where(self.per_weight[:, 0] > 0, self.factors[:, 0], np.inf)
        more = self.loads.weights(one + less / first)
        bound = np.maximum(self._filled(weights, 0 * one), self._filled(more, less))
        return whole_ns(bound + self.after)
