"""Splits of one node order whose most loaded stage has little work, by dynamic programming.

What a configuration allows is the same for every order: prefix sums over layers and farthest ends.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from formulations.costs.intervals import sums_before
from formulations.costs.placement import Placer
from formulations.costs.plan_costs import PlanCosts, split_costs
from formulations.costs.stage_costs import NEVER, StageCosts
from formulations.costs.tables import Array, CostTables
from formulations.decisions import even_shares, least_ends
from formulations.space.slots import runs_order
from solver.graph.placements import Columns, chunk_memory, group_columns
from solver.graph.problem import ChunkMemory, Intervals, Mask, distinct
from solver.simulate import Times

#: Boundaries of a split: pp + 1 layer indices from 0 to the number of layers.
Split = tuple[int, ...]
Order = tuple[int, ...]  #: node groups, node by node
Shares = tuple[int, ...]  #: micro-batches of every replica


class SplitSpace:
    """What all orders, splits and shares of a configuration have in common.

    Prefix sums [n, J] of times and farthest ends of stages; n = L + 1 layer boundaries, J node
    groups.
    """

    def __init__(self, tables: CostTables) -> None:
        self.tables, self.stages = tables, StageCosts(tables)
        self.forward = sums_before(tables.forward_ns, axis=0)
        self.backward = sums_before(tables.backward_ns, axis=0)
        self.work = self.forward + self.backward
        self.optimizer = sums_before(tables.optimizer_ns, axis=0)
        self.least_ends = np.array(least_ends(tables))
        self._farthest: dict[tuple[int, int, int], Array] = {}

    @cached_property
    def placer(self) -> Placer:
        """Costs of node orders."""
        return Placer(self.tables)

    @cached_property
    def even(self) -> Shares:
        """Equal shares, as far as the micro-batches divide."""
        return even_shares(self.tables)

    def runs(self, order: Order) -> bool:
        """Whether the target runs the configuration in this order of nodes."""
        return runs_order(self.tables.instance, self.tables.config, order)

    def balance(self, order: Sequence[int], shares: Shares | None = None) -> "Balance":
        """The stages of a split of a node order with these shares, or even ones."""
        config, sizes = self.tables.config, [self.tables.slots_per_node[j] for j in order]
        groups = np.repeat(np.array(order, np.int64), sizes).reshape(config.pp, -1)  # [pp, dp]
        return Balance(self, np.tile(groups, (config.vpp, 1)), shares or self.even)

    def costs(self, order: Order, split: Split, shares: Shares | None = None) -> PlanCosts:
        """All costs of a plan, with even shares if none are given."""
        return split_costs(self.tables, self.placer.costs(order), split, shares or self.even)

    @cached_property
    def intervals(self) -> Intervals:
        """The same as sums over intervals of layers."""
        return Intervals(self.tables, self.stages)

    @cached_property
    def passes(self) -> tuple[Array, ...]:
        """[n, J] times of each kind of operation."""
        return tuple(sums_before(table, axis=0) for table in self.tables.passes)

    @cached_property
    def columns(self) -> Columns:
        """Times by group and place."""
        return group_columns(self.intervals)

    def stage_times(self, share: int, groups: Array, start: Array, end: Array) -> list[Array]:
        """Times of each kind of operation of stages [S, ..] on these groups, by first axis.

        Of replicas with so many micro-batches.
        """
        stages = self.stages
        if not stages.has_choice or stages.shares_memory:
            times = [table[end, groups] - table[start, groups] for table in self.passes]
            if stages.has_choice:  # what stages beside others on a device recompute for
                splits = np.concatenate([start[:, 0], end[-1:, 0]]).T
                devices = groups[: self.tables.config.pp, :, 0]
                times[1] = times[1] + self.intervals.stages.extra_of_devices(devices, share, splits)
            return times
        first = [self.columns.first(k, share) for k in range(len(start))]
        columns = groups + np.array(first).reshape(-1, *(1,) * (groups.ndim - 1))
        tables = [table for table in self.columns.times() if table is not None]
        return [table[columns, start, end] for table in tables]

    def times(self, share: int, groups: Array, splits: Array, send: Array) -> Times:
        """Of replicas of groups [S, C, 1 or N], whose messages take `send` [S - 1, C * N] ns."""
        start, end = splits[:, :-1].T[:, None], splits[:, 1:].T[:, None]
        forward, backward, *weight = (
            table.reshape(len(groups), -1) for table in self.stage_times(share, groups, start, end)
        )
        blocking = self.tables.instance.search.blocking_sends
        return Times(forward, backward, send, blocking, weight=weight[0] if weight else None)

    def farthest_ends(self, group: int, stage: int, share: int) -> Array:
        """[n] last end with which a stage from each layer fits a GPU of the group.

        Of a replica with so many micro-batches. The start itself where not one layer fits: memory
        grows with the layers, so every end up to the last fits.
        """
        kind = group, stage, share
        if kind not in self._farthest:
            fits = self.intervals.stages.extra(*kind) < NEVER
            ends = np.arange(len(fits))
            self._farthest[kind] = ends + (fits & (ends[None, :] > ends[:, None])).sum(axis=1)
        return self._farthest[kind]


#: Per stage, distinct (node group, micro-batches) of its replicas.
Kinds = list[tuple[tuple[int, int], ...]]

#: Larger than any time in ns, small enough that a few add up without overflow.
UNREACHED = np.int64(1) << 60
#: Limits tried at once while the least one is searched, and relative width at which that ends.
LIMITS = 16
WIDTH = 1e-4


class Balance:
    """What the stages of one node order can take; n = L + 1 layer boundaries.

    groups: [S, dp] node group of every replica of a virtual stage. Work of a stage: forward +
    backward of all its micro-batches on its slowest replica. What follows its last backward counts
    too where `after` is given, [S, n] sums before each boundary, ns.
    """

    def __init__(
        self, space: SplitSpace, groups: Array, shares: Sequence[int], after: Array | None = None
    ) -> None:
        self.space, self.groups, self.shares = space, groups, tuple(shares)
        self.after = after
        counts, index = np.unique(np.array(shares), return_inverse=True)
        present = np.zeros((len(groups), space.work.shape[1], len(counts)), dtype=bool)
        present[np.arange(len(groups))[:, None], groups, index] = True
        self.kinds: Kinds = [
            tuple((int(j), int(counts[i])) for j, i in np.argwhere(stage_kinds))
            for stage_kinds in present
        ]

    @cached_property
    def farthest(self) -> Array:
        """[S, n] last end of every stage from each first layer that fits memory."""
        rows = []
        for k, kinds in enumerate(self.kinds):
            rows.append(np.min([self.space.farthest_ends(j, k, m) for j, m in kinds], axis=0))
        return np.array(rows)

    def fits(self, splits: Array) -> Mask:
        """Which of the splits [N, S + 1] keep memory and the least number of blocks."""
        start, end = splits[:, :-1], splits[:, 1:]
        stages = np.arange(start.shape[1])
        fits = (end >= self.space.least_ends[start]) & (end <= self.farthest[stages, start])
        fitting: Mask = np.all(fits, axis=1)
        return fitting if self._chunks is None else fitting & self._chunks.fit(splits)

    @cached_property
    def _chunks(self) -> ChunkMemory | None:
        """Memory of devices with several chunks; None if each has one."""
        pp = self.space.tables.config.pp
        return chunk_memory(self.space.intervals, self.groups[:pp], self.shares)

    def ends(self, k: int, start: int) -> range:
        """All ends of stage k from `start` with enough blocks, and memory on every GPU."""
        return range(int(self.space.least_ends[start]), int(self.farthest[k, start]) + 1)

    def takes(self, split: Split) -> bool:
        """Whether `fits` holds of one split."""
        return bool(self.fits(np.array([split]))[0])

    def kind_times_ns(self, split: Split) -> list[dict[tuple[int, int], int]]:
        """Forward and backward of one micro-batch on every stage, by kind of its replicas."""
        work, extra = self.space.work, self.space.intervals.stages.extra
        times: list[dict[tuple[int, int], int]] = []
        for k, (start, end) in enumerate(pairwise(split)):
            again = {kind: int(extra(kind[0], k, kind[1])[start, end]) for kind in self.kinds[k]}
            stage = (work[end] - work[start]).tolist()
            times.append({(j, m): stage[j] + ns * (ns < NEVER) for (j, m), ns in again.items()})
        return times

    def times_ns(self, split: Split) -> list[int]:
        """Forward and backward of one micro-batch on the slowest replica of every stage."""
        return [max(times.values()) for times in self.kind_times_ns(split)]

    def work(self, split: Split) -> int:
        """Work of the most loaded stage, in ns."""
        sums = self.space.work
        return max(
            m * int(sums[end, j] - sums[start, j])
            for kinds, (start, end) in zip(self.kinds, pairwise(split), strict=True)
            for j, m in kinds
        )

    def _reach(self, limits: Array) -> list[Array]:
        """Per stage, [limits, n] last end that fits memory and keeps each limit on the work."""
        ends: dict[tuple[int, int, int | None], Array] = {}
        reach = []
        for k, kinds in enumerate(self.kinds):
            after, place = (0, None) if self.after is None else (self.after[k], k)
            for j, m in kinds:
                if (j, m, place) not in ends:
                    load = m * self.space.work[:, j] + after
                    last = np.searchsorted(load, (load + limits[:, None]).ravel(), "right") - 1
                    ends[j, m, place] = last.reshape(len(limits), -1)
            within = np.min([ends[j, m, place] for j, m in kinds], axis=0)
            reach.append(np.minimum(within, self.farthest[k]))
        return reach

    def feasible(self, limits: Array) -> Mask:
        """Which limits [N] on the work of every stage, in ns, some split keeps.

        Ends grow with the first layer, so boundary e can follow stage k iff the last possible
        start that leaves the stage its least number of blocks reaches it.
        """
        size = len(self.space.work)
        boundaries = np.arange(size)
        latest = np.searchsorted(self.space.least_ends, boundaries, "right") - 1
        starts = np.zeros((len(limits), size), dtype=bool)
        starts[:, 0] = True
        rows = np.arange(len(limits))[:, None]
        for reach in self._reach(limits):
            last = np.maximum.accumulate(np.where(starts, boundaries, -1), axis=1)
            before = np.where(latest >= 0, last[:, latest], -1)
            starts = (before >= 0) & (reach[rows, before] >= boundaries)
        return starts[:, -1]

    def least_limit(self, longest_ns: int) -> int | None:
        """Least work, to `WIDTH`, that some split keeps on every stage; None above `longest_ns`."""
        longest = 0 if self.after is None else int(self.after[:, -1].max())
        longest_ns = min(longest_ns, max(self.shares) * int(self.space.work[-1].max()) + longest)
        if not self.feasible(np.array([longest_ns]))[0]:
            return None
        low, high = 0, longest_ns
        while high - low > max(1.0, WIDTH * high):
            limits = distinct(np.linspace(low, high, LIMITS + 1).astype(np.int64)[1:])
            first = int(self.feasible(limits).argmax())
            low, high = (int(limits[first - 1]) if first else low), int(limits[first])
        return high

    def split(self, limit: int) -> Array | None:
        """Split [p + 1] of least latency whose stages keep the limit on the work; None: none."""
        work, size = self.space.work, len(self.space.work)
        boundaries = np.arange(size)
        stage = {
            kinds: np.max([work[None, :, j] - work[:, None, j] for j, _ in kinds], axis=0)
            for kinds in set(self.kinds)
        }
        best = np.full(size, UNREACHED)
        best[-1] = 0
        choices = []
        for k, reach in reversed(list(enumerate(self._reach(np.array([limit]))))):
            inside = (boundaries >= self.space.least_ends[:, None]) & (
                boundaries <= reach[0][:, None]
            )
            latency = np.where(inside, stage[self.kinds[k]] + best, UNREACHED)
            choices.append(latency.argmin(axis=1))
            best = np.minimum(latency[boundaries, choices[-1]], UNREACHED)
        if best[0] >= UNREACHED:
            return None
        split = [0]
        for choice in reversed(choices):
            split.append(int(choice[split[-1]]))
        return np.array(split)
