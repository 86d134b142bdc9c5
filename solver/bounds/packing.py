"""A lower bound of the step time of every plan of a configuration: stages hold whole blocks.

Paths: the latency paths, see `closed_forms`. A trial time leaves each stage room for so many
whole blocks; if all of them hold fewer than there are, no plan is as fast.

With the notation of `closed_forms`, a plan of step time T of a schedule that keeps backwards
whole, with one chunk per device, keeps, for every stage i of every replica r with m micro-batches
or more,

    latency_r + c_i t_ri + s_r0 + a <= T.                                                      (1)

Let A be some fastest groups of nodes, with n slots, B the others used. The replicas share the n
slots, so some replica has at most f = n / dp stages on A, rounded down; look at that one, at A only
if f > 0. (If their micro-batches may be unlike, look at that with the most, and f is what any
replica has on A at most, see there.) Its stages hold whole blocks, of at least t_A or t_B each. By
(1), stage i holds no more than (T - a - latency - s_r0) / (c_i t_A), or t_B, of them, rounded down;
and no more than leave one block to each other stage, if a stage needs one.

What latency and s_r0 are at least follows from how many blocks the stages can hold at most, and the
other way round: (2) all stages but f of them are on B, so no more blocks are on A than the largest
f stages hold there, and the rest add t_B each to the latency; all other layers add their least.
(3) Stage 0 holds the blocks that the others cannot, and what is surely on stage 0. Starting from
no limit, each step is a proof if the one before was. If in the end the stages cannot hold all
blocks, f of them on A, there is no such plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formulations.costs.compute import LayerTimes
from formulations.instance import Instance
from formulations.plan import Configuration
from solver.bounds.closed_forms import MARGIN, ClosedForms, least_over
from solver.graph.problem import Array, Mask, Numbers

#: More blocks than all stages can hold.
NEVER = 1 << 40
#: Times that the interval is halved in which a bound is searched.
HALVINGS = 5
#: Steps from blocks to latency and back.
STEPS = 6


@dataclass(frozen=True)
class _Replica:
    """What one replica of each configuration costs at least; `fast`: [N] stages on A, f.

    block_fast, block_slow: [N] t_A, t_B in ns. ends_fast, ends_slow: [N, 2] other layers that are
    surely on the first and on the last stage. fixed_ns: [N] all that (1) adds whatever the blocks.
    per_block_ns: [N] what a block adds to the tail of stage 0.
    """

    fast: Array
    block_fast: Numbers
    block_slow: Numbers
    ends_fast: Numbers
    ends_slow: Numbers
    fixed_ns: Numbers
    per_block_ns: Numbers


def refuted(
    instance: Instance,
    configs: Sequence[Configuration],
    times: Sequence[LayerTimes],
    below_ns: Sequence[int],
) -> list[bool]:
    """Whether no plan of each config, with these layer times, has a step time below these."""
    packing = Packing(ClosedForms(instance, configs, times))
    return [*map(bool, packing.refutes(np.array(below_ns, dtype=np.int64)))]


def packed_ns(
    instance: Instance,
    configs: Sequence[Configuration],
    times: Sequence[LayerTimes],
    known_ns: Sequence[int],
) -> list[int]:
    """Lower bounds of the step times of configs, from some that are known up to twice these."""
    packing = Packing(ClosedForms(instance, configs, times))
    low = np.array(known_ns, dtype=np.int64)
    high = 2 * low
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        closed = packing.refutes(middle)
        low, high = np.where(closed, middle, low), np.where(closed, high, middle)
    return [*map(int, low)]


class Packing:
    """Trial times for N configurations. P: most stages."""

    def __init__(self, bounds: ClosedForms) -> None:
        self.bounds, columns = bounds, bounds.columns
        self.blocks = int(bounds.counts[bounds.is_block].sum())
        self.least = 0 if columns.instance.search.embedding_only_stages else 1
        self.most = self.blocks - self.least * (columns.pp - 1)
        groups = columns.nodes.shape[1]
        self.replicas = [self._replica(k) for k in range(1, max(groups, 2))]

    def _replica(self, k: int) -> _Replica:
        """With the k fastest groups as A; without slots on A where B would be empty."""
        bounds, columns, is_block = self.bounds, self.bounds.columns, self.bounds.is_block
        # Which groups are A and B, and f.
        rank = np.argsort(bounds.fastest_first, axis=1, kind="stable")
        ranked = np.take_along_axis(columns.used, bounds.fastest_first, axis=1)
        rank = np.take_along_axis(np.cumsum(ranked, axis=1), rank, axis=1)
        size = np.minimum(k, columns.used.sum(axis=1) - 1)[:, None]
        inside = columns.used & (rank <= size)
        fast = bounds.most_on(inside)
        inside &= (fast > 0)[:, None]
        outside = columns.used & (rank > size)
        # Work on A, on B, and on the better of both.
        work_fast, work_slow = (least_over(bounds.work, among) for among in (inside, outside))
        others = np.minimum(work_fast, work_slow)[:, ~is_block]
        tails = least_over(bounds.tail_layers, inside | outside)
        return _Replica(
            fast=fast,
            block_fast=work_fast[:, is_block].min(axis=1),
            block_slow=work_slow[:, is_block].min(axis=1),
            ends_fast=self._ends(work_fast),
            ends_slow=self._ends(work_slow),
            fixed_ns=bounds.after
            + (others * bounds.counts[~is_block]).sum(axis=1)
            + (tails * bounds.places[0]).sum(axis=1),
            per_block_ns=tails[:, is_block].min(axis=1),
        )

    def _ends(self, work: Numbers) -> Numbers:
        """[N, 2] work [N, U] of the layers but blocks that are surely on the first, last stage."""
        not_block = ~self.bounds.is_block
        ends = [end * not_block for end in self.bounds.places]
        return np.stack([(work[:, end > 0] * end[end > 0]).sum(axis=1) for end in ends], axis=1)

    def refutes(self, below_ns: Array) -> Mask:
        """[N] whether no plan of the configuration has a step time below these [N]."""
        refuted = np.zeros(len(below_ns), dtype=bool)
        for replica in self.replicas:
            refuted |= self._refutes(replica, below_ns)
        keeps_backwards = ~self.bounds.splits & ~self.bounds.chunked
        return refuted & keeps_backwards & (self.blocks > 0)

    def _refutes(self, replica: _Replica, below_ns: Array) -> Mask:
        surely = int(self.bounds.places[0][self.bounds.is_block].sum())
        saved = np.maximum(replica.block_slow - np.minimum(replica.block_fast, 1e300), 0)
        on_fast = np.where(replica.fast > 0, self.blocks, 0)
        added = np.zeros(len(below_ns))
        refuted = np.zeros(len(below_ns), dtype=bool)
        for _ in range(STEPS):
            latency = self.blocks * replica.block_slow - on_fast * saved
            room = (below_ns - 1 - replica.fixed_ns - latency - added) * (1 + MARGIN)
            slow = self._blocks(room, replica.block_slow, replica.ends_slow)
            fast = self._blocks(room, replica.block_fast, replica.ends_fast)
            more = np.maximum(fast - slow, 0)
            num_blocks = slow.sum(axis=1) + _largest(more, replica.fast)
            refuted |= (room < 0) | (num_blocks < self.blocks)
            later = slow[:, 1:].sum(axis=1) + _largest(more[:, 1:], replica.fast)
            before = added, on_fast
            added = np.maximum(self.blocks - later - surely, 0) * replica.per_block_ns
            on_fast = np.minimum(_largest(np.maximum(fast, 0), replica.fast), self.blocks)
            if np.array_equal(before, (added, on_fast)):
                break
        return refuted

    def _blocks(self, room: Numbers, each: Numbers, ends: Numbers) -> Array:
        """[N, P] most blocks of every stage, -NEVER where too few fit; 0 beyond the last."""
        factors = self.bounds.factors
        with np.errstate(divide="ignore", invalid="ignore"):
            time = np.where(factors > 0, room[:, None] / factors, np.inf)
            time[:, 0] -= ends[:, 0]
            time[np.arange(len(time)), self.bounds.columns.pp - 1] -= ends[:, 1]
            num_blocks = np.floor(time / np.maximum(each, 1)[:, None])
        num_blocks = np.minimum(num_blocks, self.most[:, None])
        num_blocks = np.where(num_blocks >= self.least, num_blocks, -NEVER)
        return np.where(np.isinf(factors), 0, num_blocks).astype(np.int64)


def _largest(values: Array, count: Array) -> Array:
    """[N] sum of the `count` [N] largest of values [N, P]."""
    if not values.shape[1]:
        return np.zeros(len(values), dtype=np.int64)
    ordered = np.cumsum(np.sort(values, axis=1)[:, ::-1], axis=1)
    chosen = np.minimum(count, values.shape[1])
    sums = np.take_along_axis(ordered, np.maximum(chosen - 1, 0)[:, None], axis=1)[:, 0]
    return np.where(chosen > 0, sums, 0)
