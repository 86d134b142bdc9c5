"""Lower bounds of the step time of every plan of a config, in closed form, many configs at once.

Paths: the work of one device, of any schedule; and its latency paths. Weighted sums of them over
all slots are surrogates (Glover 1968) in which node orders and splits cancel out.

They need no cost tables: layers of one run are alike, and configurations of equal tp, micro-batch
size and recomputation have the same layer times. M micro-batches, t = forward + backward of a layer
or a stage, s = what it adds to the tail of its stage (gradient sync, optimizer, gather), a = the
start of that; see `placement_independent` for s, a, and transfers. The step time is T.

Work. The slot of stage i of replica r is busy for m_r t, and its tail follows: T >= m_r t + s + a.
Take weights w_j > 0 for the node groups and add up over all slots. Every replica passes each layer
once, so T sum_slots w >= sum_l sum_r w_j (m_r t_lj + s_lj) + a sum_slots w, with the group j where
replica r has layer l. If all m_r = M / dp, each term is M / dp t + s at least for the best j; else
sum_r m_r = M and the two parts are so, one by one. The weights here make both parts, over all
layers, equal for all groups.

Filling, if all replicas have m micro-batches and devices one chunk. (If these may be unlike, look
at the replica with the most: it has M / dp or more, m that rounded up, and what follows only grows
with them; see Unlike.) By the latency paths of stage i of replica r
(`formulations.schedules.registry.Missed`), the last backward of stage 0 ends no earlier than
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
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from formulations.costs.compute import LayerTimes
from formulations.costs.intervals import sums_before
from formulations.instance import Instance
from formulations.plan import Configuration
from formulations.schedules.registry import SCHEDULES, forwards_before_return
from solver.bounds.placement_independent import ConfigColumns, send_ns, tails, tied_ns
from solver.graph.problem import Array, Mask, Numbers


class ClosedForm(NamedTuple):
    """Lower bound of the step time of every plan of a configuration, and which one that is."""

    bound_ns: int
    proof: Literal["work", "filling"]


def closed_forms(
    instance: Instance, configs: Sequence[Configuration], times: Sequence[LayerTimes]
) -> list[ClosedForm]:
    """The larger of the work and the filling bound of configurations with these layer times."""
    bounds = ClosedForms(instance, configs, times)
    return [
        ClosedForm(filling, "filling") if filling > work else ClosedForm(work, "work")
        for work, filling in np.stack([bounds.work_ns(), bounds.filling_ns()], axis=1).tolist()
    ]


#: Taken off every bound, relative: more than float noise.
MARGIN = 1e-12


def whole_ns(bound: Numbers) -> Array:
    """Rounded up, as times are whole, after a margin for float noise."""
    return np.ceil(bound * (1 - MARGIN)).astype(np.int64)


def least_over(values: Numbers, among: Mask) -> Numbers:
    """[N, U] least of [N, U, J] over the groups of `among` [N, J]."""
    minima: Numbers = np.where(among[:, None, :], values, np.inf).min(axis=2)
    return minima


class ClosedForms:
    """The bounds of N configurations with their layer times. U runs of equal layers, J node groups.

    counts: [U] layers of a run. kinds: [3, N, U, J] forward, backward, and of the latter weight
    gradients of one layer a run. work: [N, U, J] forward + backward. weight: [N, U, J] weight
    gradients that are operations of their own. micro_batches: [N] m of every replica, or where they
    may be unlike of that with the most, at least. alike: whether all replicas have as many.
    fastest_first: [N, J] groups by the work of all layers. chunked, splits: [N] whether devices
    have several chunks, and weight gradients are operations of their own.
    """

    def __init__(
        self, instance: Instance, configs: Sequence[Configuration], times: Sequence[LayerTimes]
    ) -> None:
        self.columns = ConfigColumns(instance, configs)
        runs = instance.workload.layer_runs
        self.counts = np.array([run.count for run in runs], dtype=np.int64)
        self.is_block: Mask = np.array([run.layer.is_block for run in runs])
        starts = np.cumsum(self.counts) - self.counts
        # Configurations share layer times: each of them is read once.
        distinct = {id(layer_times): layer_times for layer_times in times}
        number = {key: i for i, key in enumerate(distinct)}
        values = [
            [t.forward_ns[starts], t.backward_ns[starts], t.weight_ns[starts]]
            for t in distinct.values()
        ]
        which = [number[id(layer_times)] for layer_times in times]
        self.kinds: Numbers = np.array(values, dtype=np.float64).swapaxes(0, 1)[:, which]
        self.work: Numbers = self.kinds[0] + self.kinds[1]
        self.tail_layers, self.tail_start = tails(self.columns)
        self.chunked: Mask = np.array([config.vpp > 1 for config in configs])
        self.splits: Mask = np.array(
            [SCHEDULES[config.schedule].splits_backward for config in configs]
        )
        self.weight: Numbers = self.kinds[2] * self.splits[:, None, None]
        self.micro_batches: Array = -(-self.columns.total // self.columns.dp)
        self.alike = instance.search.micro_batches == "even"
        self._whole_work: Numbers = np.maximum((self.work * self.counts[:, None]).sum(axis=1), 1)
        self.fastest_first: Array = np.argsort(self._whole_work, axis=1, kind="stable")

    def work_ns(self) -> Array:
        """[N] the work bound."""
        columns, used = self.columns, self.columns.used
        tail = self.tail_layers * columns.dp[:, None, None]
        work = self.work * columns.total[:, None, None]
        # w_j that make both parts, over all layers, equal for all groups.
        weights = 1 / np.maximum(((work + tail) * self.counts[:, None]).sum(axis=1), 1)
        scale = weights[:, None, :]
        if self.alike:
            layer_work = least_over(scale * (work + tail), used)
        else:
            layer_work = least_over(scale * work, used) + least_over(scale * tail, used)
        speed = (weights * columns.slots).sum(axis=1)
        return whole_ns((layer_work * self.counts).sum(axis=1) / speed + self.tail_start)

    def most_on(self, inside: Mask) -> Array:
        """[N] most stages on these groups [N, J]: of the mean replica, or if unlike of any."""
        columns = self.columns
        if self.alike:
            mean: Array = (columns.slots * inside).sum(axis=1) // columns.dp
            return mean
        low = columns.per_node // columns.dp[:, None]
        high = -(-columns.per_node // columns.dp[:, None])
        others = columns.pp - (columns.nodes * low * ~inside).sum(axis=1)
        num_stages: Array = np.minimum((columns.nodes * high * inside).sum(axis=1), others)
        return num_stages

    @cached_property
    def _ends(self) -> Numbers:
        """[N, J] stages of one replica on its 1, 2, .. fastest groups, if these are used first."""
        columns, order = self.columns, self.fastest_first
        if not self.alike:
            rank = np.argsort(order, axis=1, kind="stable")
            num_stages = [self.most_on(rank <= k) for k in range(order.shape[1])]
            return np.stack(num_stages, axis=1).astype(np.float64)
        slots = np.take_along_axis(columns.slots, order, axis=1)
        ends: Numbers = np.cumsum(slots, axis=1) / columns.dp[:, None]
        two = (columns.used.sum(axis=1) == 2)[:, None]
        return np.where(two, np.floor(ends), ends)

    @cached_property
    def among(self) -> Mask:
        """[N, J] groups that the replica may stand on."""
        if not self.alike:
            return self.columns.used
        among = np.empty(self._ends.shape, dtype=bool)
        taken = np.diff(self._ends, axis=1, prepend=0.0) > 0
        np.put_along_axis(among, self.fastest_first, taken, axis=1)
        return among

    @cached_property
    def factors(self) -> Numbers:
        """[N, P] c_i of a stage; inf beyond the last."""
        columns, configs = self.columns, self.columns.configs
        # [kinds, N] phi: the largest share of a kind of operation in the work of a layer.
        kinds = np.stack([self.kinds[0], self.kinds[1] - self.weight, self.weight])
        counted = columns.used[:, None, :] & (self.work > 0)
        shares = np.where(counted, kinds / np.maximum(self.work, 1), 0.0).max(axis=(2, 3))
        stage = np.arange(int(columns.pp.max()))
        factors = np.full((len(configs), len(stage)), -np.inf)
        for schedule in {config.schedule for config in configs}:
            rows = np.flatnonzero([config.schedule == schedule for config in configs])
            pp, m = columns.pp[rows, None], self.micro_batches[rows, None]
            phi = shares[:, rows, None]
            for path in SCHEDULES[schedule].missed(pp, np.minimum(stage, pp - 1), m, 0 * m + 1):
                kept = m - 1 - sum(part * count for part, count in zip(phi, path, strict=True))
                factors[rows] = np.maximum(factors[rows], kept)
        # Several chunks: c_i = m - phi u of forwards.
        for n in np.flatnonzero(self.chunked).tolist():
            config, share = configs[n], int(self.micro_batches[n])
            device = np.minimum(stage, config.pp - 1)
            before = forwards_before_return(config.pp, device, share, *config.chunking)
            factors[n] = share - shares[0, n] * before
        return np.where(stage < columns.pp[:, None], factors, np.inf)

    @cached_property
    def per_weight(self) -> Numbers:
        """[N, P] loads 1 / c_i per weight, the largest first; 0 beyond the last, or if a c <= 0."""
        ranked = np.sort(self.factors, axis=1)
        positive = ranked[:, :1] > 0
        return np.where(positive, 1 / np.where(positive, ranked, 1.0), 0.0)

    @cached_property
    def _loads(self) -> Numbers:
        """[N, J] load per weight of the 1, 2, .. fastest groups, if these take the stages first."""
        ends = np.minimum(self._ends, self.columns.pp[:, None])
        before = sums_before(self.per_weight)
        rate = np.concatenate([self.per_weight, np.zeros((len(ends), 1))], axis=1)
        stage = ends.astype(np.int64)
        rows = np.arange(len(stage))[:, None]
        loads: Numbers = before[rows, stage] + (ends - stage) * rate[rows, stage]
        return loads

    def weights(self, capacity: Numbers) -> Numbers:
        """[N, J] v of all groups that load the stages to `capacity` [N] at most.

        level / (work of all layers) - 1 for the fastest groups, the first k of them for the
        largest k for which none of them is negative; 0 for the others.
        """
        chain_work = np.take_along_axis(self._whole_work, self.fastest_first, axis=1)
        spread = np.cumsum(np.diff(self._loads, axis=1, prepend=0.0) / chain_work, axis=1)
        loaded = spread > 0
        level = (capacity[:, None] + self._loads) / np.where(loaded, spread, 1.0)
        fast = loaded & (level >= chain_work)
        last = fast.shape[1] - 1 - np.argmax(fast[:, ::-1], axis=1)
        level = np.where(fast.any(axis=1), level[np.arange(len(last)), last], 0.0)
        return np.maximum(level[:, None] / self._whole_work - 1, 0.0)

    @cached_property
    def places(self) -> tuple[Array, Array]:
        """[U] layers of a run that are surely on stage 0; surely not, if there are more."""
        instance = self.columns.instance
        layers = instance.workload.layers
        blocks = [i for i, layer in enumerate(layers) if layer.is_block]
        if instance.search.embedding_only_stages or not blocks:
            blocks = [0, len(layers) - 1]
        ends = np.cumsum(self.counts)
        first = np.clip(blocks[0] + 1 - (ends - self.counts), 0, self.counts)
        later = np.clip(ends - max(blocks[-1], blocks[0] + 1), 0, self.counts)
        return first, later

    def _filled(self, weights: Numbers, less: Numbers) -> Numbers:
        """[N] the filling bound of these weights [N, J], on stage 0 less by [N]."""
        first, later = self.places
        # [N, U, J] of a layer that count in the latency, and with its weight.
        passed = np.where(self.chunked[:, None, None], self.kinds[0], self.work - self.weight)
        usual = weights[:, None, :] * self.work + passed
        elsewhere = least_over(usual, self.among)
        zeroth = usual - less[:, None, None] * self.work + self.tail_layers
        zeroth = least_over(zeroth, self.among)
        # Layers that may be on stage 0 or not count the lesser.
        either = np.minimum(zeroth, elsewhere) * (self.counts - first - later)
        several = zeroth * first + elsewhere * later + either
        single = (self.columns.pp == 1)[:, None]
        bound: Numbers = np.where(single, zeroth * self.counts, several).sum(axis=1)
        return bound

    @cached_property
    def after(self) -> Numbers:
        """[N] start of the tail, tied embeddings, transfers of one micro-batch both ways.

        With several chunks there and no more, and a block's backward on all devices but one.
        """
        ways = np.where(self.chunked, 1, 2)
        after: Numbers = self.tail_start + tied_ns(self.columns) + ways * send_ns(self.columns)
        if self.chunked.any() and not self.columns.instance.search.embedding_only_stages:
            backward = least_over(self.kinds[1], self.columns.used)[:, self.is_block].min(axis=1)
            after = after + self.chunked * (self.columns.pp - 1) * backward
        return after

    def filling_ns(self) -> Array:
        """[N] the filling bound; 0 where devices have several chunks."""
        ones = np.ones(len(self.columns.configs))
        weights = self.weights(ones)
        # d: no v_j - d negative, and a block of the longest run no cheaper on stage 0.
        run = int((self.counts * self.is_block).argmax())
        ratios = self.tail_layers[:, run] / np.maximum(self.work[:, run], 1)
        ratio, room = (np.where(self.among, x, np.inf).min(axis=1) for x in (ratios, weights))
        less = np.where(self.columns.pp > 1, np.minimum(ratio, room), 0.0)
        first = np.where(self.per_weight[:, 0] > 0, self.factors[:, 0], np.inf)
        more = self.weights(ones + less / first)
        bound = np.maximum(self._filled(weights, 0 * ones), self._filled(more, less))
        return whole_ns(bound + self.after)
