"""Plans whose replicas form two blocks, on trial: many patterns and splits at once.

All nodes of a block that belong to one stage are of one group. So the replicas of a block are
alike, and two of them are simulated, not all.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from formulations.costs.placement import Placer
from formulations.costs.tables import Array
from solver.heuristics.balance import Mask
from solver.heuristics.split_space import SplitSpace
from solver.heuristics.trial import Trial
from solver.simulate import Times

#: Number of blocks.
BLOCKS = 2


@dataclass(frozen=True)
class Patterns:
    """N plans: node group of every block on every stage [N, 2, p], splits [N, p + 1]."""

    groups: Array
    splits: Array

    def __len__(self) -> int:
        return len(self.splits)

    def take(self, chosen: Array | Mask) -> "Patterns":
        """Those with these indices."""
        return Patterns(self.groups[chosen], self.splits[chosen])

    @staticmethod
    def joined(parts: list["Patterns"]) -> "Patterns":
        """All of them."""
        return Patterns(
            np.concatenate([part.groups for part in parts]),
            np.concatenate([part.splits for part in parts]),
        )


class BlockCosts:
    """What stages cost that hold whole nodes of one size; J node groups, n = L + 1.

    outside: [J, K] messages, ns. farthest: [p, J, n] last end that fits memory. sync, gather:
    [J, J, n] of all layers before each, on nodes of two groups, and start-up [J, J]. embedding:
    [2, J] on the first stage, and on the last. Links between zones are left out.
    """

    def __init__(self, space: SplitSpace, placer: Placer) -> None:
        self.space, self.tables = space, space.tables
        shape, sizes = self.tables.shape, self.tables.slots_per_node
        used = [j for j, count in enumerate(shape.nodes_used) if count]
        self.micro_batches = self.tables.num_micro_batches // shape.dp
        every = range(len(sizes))
        self.farthest = np.array(
            [
                [space.farthest_ends(j, k, self.micro_batches) for j in every]
                for k in range(shape.pp)
            ]
        )
        self.outside = np.zeros((len(sizes), len(self.tables.tensors)), int)
        self.embedding = np.zeros((2, len(sizes)), int)
        for j in used:
            for times in placer.terms(j, 0).send_ns.values():
                self.outside[j] = np.maximum(self.outside[j], times)
            last = shape.slots - sizes[j]
            self.embedding[:, j] = [placer.terms(j, at).embedding_ns for at in (0, last)]
        square = (len(sizes), len(sizes))
        self.sync, self.gather = (np.zeros((*square, space.work.shape[0]), int) for _ in range(2))
        self.sync_start, self.gather_start = np.zeros(square, int), np.zeros(square, int)
        for i in used:
            for j in used:
                groups = [i] * (shape.dp // sizes[i] - 1) + [j]
                sync, sync_start, gather, gather_start = placer.stage(
                    0, [placer.terms(one, 0) for one in groups], groups
                )
                self.sync[i, j, 1:], self.gather[i, j, 1:] = np.cumsum(sync), np.cumsum(gather)
                self.sync_start[i, j], self.gather_start[i, j] = sync_start, gather_start

    def fits(self, patterns: Patterns) -> Mask:
        """[N] which of them keep memory and the least number of blocks."""
        start, end = patterns.splits[:, :-1], patterns.splits[:, 1:]
        stages = np.arange(start.shape[1])
        last = self.farthest[stages, patterns.groups, start[:, None]].min(axis=1)
        whole: Mask = ((end >= self.space.least_ends[start]) & (end <= last)).all(axis=1)
        return whole


class BlockTrial(Trial):
    """Judges one split [N, p + 1] for each of N patterns; `groups`: those of `Patterns`."""

    def __init__(self, costs: BlockCosts, groups: Array) -> None:
        self.costs, self.groups = costs, groups.transpose(2, 1, 0)
        self.shape = costs.tables.shape

    def runs(self, splits: Array) -> Iterator[tuple[int, Times]]:
        """Of a replica of each block."""
        start, end = splits[:, :-1].T[:, None], splits[:, 1:].T[:, None]
        p, columns = len(start), BLOCKS * len(splits)
        forward, backward, *weight = (
            table.reshape(p, columns)
            for table in self.costs.space.stage_times(
                self.costs.micro_batches, self.groups, start, end
            )
        )
        tables = self.costs.tables
        kinds = tables.message_kind[splits[:, 1:-1].T][:, None]
        ends = (self.costs.outside[one, kinds] for one in (self.groups[1:], self.groups[:-1]))
        send = np.maximum(*ends).reshape(p - 1, columns)
        blocking = tables.instance.search.blocking_sends
        times = Times(forward, backward, send, blocking, weight=weight[0] if weight else None)
        yield self.costs.micro_batches, times

    def tail_ns(self, splits: Array) -> Array:
        """[p, N] of these patterns."""
        costs, start, end = self.costs, splits[:, :-1].T, splits[:, 1:].T
        one, other = self.groups[:, 0], self.groups[:, 1]
        sync = costs.sync[one, other, end] - costs.sync[one, other, start]
        gather = costs.gather[one, other, end] - costs.gather[one, other, start]
        table = costs.space.optimizer
        optimizer = table[end[:, None], self.groups] - table[start[:, None], self.groups]
        finish = optimizer.max(axis=1) + gather + costs.gather_start[one, other]
        if costs.tables.tied:
            ends = [costs.embedding[i][self.groups[k]] for i, k in enumerate((0, -1))]
            finish[[0, -1]] = finish[[0, -1]].max(axis=0) + np.max(ends, axis=(0, 1))
        whole: Array = sync + costs.sync_start[one, other] + finish
        return whole
