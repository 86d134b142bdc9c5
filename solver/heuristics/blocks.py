"""Local search over plans whose replicas form two blocks: whole blocks of nodes change places.

Where a stage takes many nodes, those of a group are rarely enough for a whole number of stages: 171
nodes at 32 a stage are 5.34. Then it may pay that a third of the replicas has the group on six
stages, and slower nodes than the others elsewhere. Moves of single nodes do not lead there: they
leave the other nodes of their stages waiting, until all nodes of a third of the replicas have
changed places on several stages.

All nodes of a block that belong to one stage are of one group. So the replicas of a block are
alike, and two of them are simulated, not all. Many patterns and splits are tried at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np

from formulations.costs.tables import Array, CostTables
from solver.heuristics.balance import Mask, Order, SplitSpace
from solver.heuristics.config_search import (
    LONGEST_NS,
    TRIED_AT_ONCE,
    ConfigSearch,
    State,
    Stop,
    faster_of,
)
from solver.heuristics.neighbours import near_splits
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

    def __init__(self, space: SplitSpace) -> None:
        self.space, self.tables, placer = space, space.tables, space.placer
        config, sizes = self.tables.config, self.tables.slots_per_node
        used = config.groups_used
        self.micro_batches = self.tables.num_micro_batches // config.dp
        every = range(len(sizes))
        self.farthest = np.array(
            [
                [space.farthest_ends(j, k, self.micro_batches) for j in every]
                for k in range(config.pp)
            ]
        )
        self.outside = np.zeros((len(sizes), len(self.tables.tensors)), int)
        self.embedding = np.zeros((2, len(sizes)), int)
        for j in used:
            for times in placer.terms(j, 0).send_ns.values():
                self.outside[j] = np.maximum(self.outside[j], times)
            last = config.slots - sizes[j]
            self.embedding[:, j] = [placer.terms(j, at).embedding_ns for at in (0, last)]
        square = (len(sizes), len(sizes))
        self.sync, self.gather = (np.zeros((*square, space.work.shape[0]), int) for _ in range(2))
        self.sync_start, self.gather_start = np.zeros(square, int), np.zeros(square, int)
        for i in used:
            for j in used:
                groups = [i] * (config.dp // sizes[i] - 1) + [j]
                sync, sync_start, gather, gather_start = placer.stage(
                    0, [placer.terms(group, 0) for group in groups], groups
                )
                self.sync[i, j, 1:], self.gather[i, j, 1:] = np.cumsum(sync), np.cumsum(gather)
                self.sync_start[i, j], self.gather_start[i, j] = sync_start, gather_start

    def fits(self, patterns: Patterns) -> Mask:
        """[N] which of them keep memory and the least number of blocks."""
        start, end = patterns.splits[:, :-1], patterns.splits[:, 1:]
        stages = np.arange(start.shape[1])
        last = self.farthest[stages, patterns.groups, start[:, None]].min(axis=1)
        fitting: Mask = ((end >= self.space.least_ends[start]) & (end <= last)).all(axis=1)
        return fitting


class BlockTrial(Trial):
    """Judges one split [N, p + 1] for each of N patterns; `groups`: those of `Patterns`."""

    def __init__(self, costs: BlockCosts, groups: Array) -> None:
        super().__init__(costs.space)
        self.costs, self.groups = costs, groups.transpose(2, 1, 0)

    def runs(self, splits: Array) -> Iterator[tuple[int, Times]]:
        """Of a replica of each block."""
        micro_batches = self.costs.micro_batches
        kinds = self.tables.message_kind[splits[:, 1:-1].T][:, None]
        ends = (self.costs.outside[groups, kinds] for groups in (self.groups[1:], self.groups[:-1]))
        send = np.maximum(*ends).reshape(len(kinds), -1)
        yield micro_batches, self._times(micro_batches, self.groups, splits, send)

    def tail_ns(self, splits: Array) -> Array:
        """[p, N] of these patterns."""
        costs, start, end = self.costs, splits[:, :-1].T, splits[:, 1:].T
        first, second = self.groups[:, 0], self.groups[:, 1]
        sync = costs.sync[first, second, end] - costs.sync[first, second, start]
        gather = costs.gather[first, second, end] - costs.gather[first, second, start]
        table = costs.space.optimizer
        optimizer = table[end[:, None], self.groups] - table[start[:, None], self.groups]
        finish = optimizer.max(axis=1) + gather + costs.gather_start[first, second]
        if costs.tables.tied:
            ends = [costs.embedding[i][self.groups[k]] for i, k in enumerate((0, -1))]
            finish[[0, -1]] = finish[[0, -1]].max(axis=0) + np.max(ends, axis=(0, 1))
        tail: Array = sync + costs.sync_start[first, second] + finish
        return tail


#: Pairs of stages exchanged at once at most, and layers moved, to leave a local optimum.
EXCHANGES = 3
LAYERS = 4
#: Share of the exchanged stages whose layers go along.
WITH_LAYERS = 0.7


def _splits(counts: Array) -> Array:
    """[N, p + 1] from the numbers of layers [N, p]."""
    return np.concatenate([np.zeros_like(counts[:, :1]), np.cumsum(counts, axis=1)], axis=1)


def near_patterns(pattern: Patterns) -> Patterns:
    """One layer moved, or two stages exchanged: both blocks, with or without layers, or one."""
    groups, split = pattern.groups[0], pattern.splits[0]
    moved = near_splits(split)
    parts = [Patterns(np.repeat(pattern.groups, len(moved), axis=0), moved)]
    first, second = np.triu_indices(len(split) - 1, 1)
    rows = np.arange(len(first))
    counts = np.repeat(np.diff(split)[None], len(rows), axis=0)
    counts[rows, first], counts[rows, second] = counts[rows, second], counts[rows, first]
    same = np.repeat(split[None], len(rows), axis=0)
    for blocks, splits in (
        ((0, 1), _splits(counts)),
        ((0, 1), same),
        ((0,), same),
        ((1,), same),
    ):
        near = np.repeat(groups[None], len(rows), axis=0)
        for b in blocks:
            near[rows, b, first], near[rows, b, second] = groups[b, second], groups[b, first]
        parts.append(Patterns(near, splits).take((near != groups).any(axis=(1, 2))))
    return Patterns.joined(parts)


def changed_patterns(pattern: Patterns, rank: Array) -> Patterns:
    """One block of a stage on faster nodes, alone or with another on slower ones.

    rank: [J] of the node groups by speed, 0 the fastest.
    """
    groups = pattern.groups[0]
    used = np.flatnonzero(rank < len(rank))
    cells = np.array([(b, k, j) for b, k in np.ndindex(*groups.shape) for j in used])
    change = rank[cells[:, 2]] - rank[groups[cells[:, 0], cells[:, 1]]]
    faster, slower = cells[change < 0], cells[change > 0]
    first = np.concatenate([faster, np.repeat(faster, len(slower), axis=0)])
    second = np.tile(slower, (len(faster), 1))
    near = np.repeat(pattern.groups, len(first), axis=0)
    rows = np.arange(len(first))
    near[rows[len(faster) :], second[:, 0], second[:, 1]] = second[:, 2]
    near[rows, first[:, 0], first[:, 1]] = first[:, 2]
    return Patterns(near, np.repeat(pattern.splits, len(near), axis=0))


def shaken(pattern: Patterns, random: Random) -> Patterns:
    """A few pairs of stages exchanged, and a few layers moved; at least two stages."""
    groups, counts = pattern.groups.copy(), np.diff(pattern.splits[0])
    stages = range(len(counts))
    for _ in range(random.randint(1, EXCHANGES)):
        pair = random.sample(stages, 2)
        groups[:, :, pair] = groups[:, :, pair[::-1]]
        if random.random() < WITH_LAYERS:
            counts[pair] = counts[pair[::-1]]
    for _ in range(random.randint(0, LAYERS)):
        source, target = random.sample(stages, 2)
        if counts[source] > 1:
            counts[[source, target]] += [-1, 1]
    return Patterns(groups, _splits(counts[None]))


#: In smaller stages, in nodes, moves of single nodes do.
FEWEST_NODES = 4
#: Descents in a row without a faster plan, for every size of the smaller block.
PATIENCE = 20
#: A plan that is slower than the one before by a random part of this is gone on from.
WORSE = 0.002


def block_sizes(tables: CostTables) -> list[int]:
    """Sizes of the smaller block, in nodes: what a group has beside whole stages, or lacks to them.

    None where stages are small, hold no whole nodes of one size, or every group fills whole ones.
    """
    config = tables.config
    used = [
        (n, size) for n, size in zip(config.nodes_used, tables.slots_per_node, strict=True) if n
    ]
    size = used[0][1]
    nodes_per_stage = config.dp // size
    cut = config.dp % size or any(node_slots != size for _, node_slots in used)
    if config.pp < 2 or cut or nodes_per_stage < FEWEST_NODES:
        return []
    return sorted({min(n % nodes_per_stage, -n % nodes_per_stage) for n, _ in used} - {0})


def with_blocks(search: ConfigSearch, state: State, random: Random, stop: Stop) -> State:
    """The state, or a faster one of two blocks with the same nodes and equal shares."""
    if not (sizes := block_sizes(search.space.tables)):
        return state
    costs, nodes = BlockCosts(search.space), search.nodes_per_stage
    for size in sizes:
        blocks = BlockSearch(search, costs, (size, nodes - size))
        state = blocks.better(blocks.best(state, random, stop), state)
    return state


@dataclass(frozen=True)
class Found:
    """One pattern, N = 1, and its step time, that of `LONGEST_NS` if it is no plan."""

    pattern: Patterns
    step_time_ns: int


class BlockSearch:
    """Patterns of one configuration with `sizes[b]` nodes of every stage in block b.

    They may ask for slower nodes than there are: faster ones take their place.
    """

    def __init__(self, search: ConfigSearch, costs: BlockCosts, sizes: tuple[int, int]) -> None:
        self.search, self.costs, self.sizes = search, costs, np.array(sizes)
        self.nodes = np.array(search.config.nodes_used)
        work = costs.space.work[-1]
        self.ranked = np.array(sorted(np.flatnonzero(self.nodes), key=lambda j: int(work[j])))
        self.rank = np.full(len(work), len(work))
        self.rank[self.ranked] = np.arange(len(self.ranked))
        self.most = np.cumsum(self.nodes[self.ranked])

    def counted(self, groups: Array) -> Mask:
        """[N] of which patterns [N, 2, p] there are nodes enough, as fast as asked or faster."""
        ranks = np.arange(len(self.ranked))[:, None, None, None]
        stages = (self.rank[groups] <= ranks).sum(axis=-1)
        kept: Mask = (stages @ self.sizes <= self.most[:, None]).all(axis=0)
        return kept

    def along(self, state: State) -> Patterns:
        """The slowest nodes of each block and stage, where fast ones make up the smaller block."""
        p = len(state.split) - 1
        rank = np.sort(self.rank[np.array(state.order)].reshape(p, -1), axis=1)
        last = np.cumsum(self.sizes) - 1
        return Patterns(self.ranked[rank[:, last]].T[None], np.array([state.split]))

    def _stages(self) -> Array:
        """[2, used groups] stages of every block, by rank: about as many in both.

        That holds of the r fastest groups for every r, which have no nodes left for one stage more
        of a block.
        """
        p, (first, second) = self.search.config.pp, self.sizes
        first_stages, ends = np.arange(p + 1), [(0, 0)]
        for num_nodes in self.most:
            second_stages = np.minimum((num_nodes - first * first_stages) // second, p)
            full = (second_stages >= 0) & (
                first_stages == np.minimum((num_nodes - second * second_stages) // first, p)
            )
            c = min(np.flatnonzero(full), key=lambda c: abs(int(c - second_stages[c])))
            ends.append((int(c), int(second_stages[c])))
        return np.diff(np.maximum.accumulate(ends), axis=0).T

    def balanced(self, pattern: Patterns, random: Random) -> Patterns:
        """The pattern with both blocks on about as many stages of each group."""
        groups = pattern.groups.copy()
        for block, stages in zip(groups[0], self._stages(), strict=True):
            spare = np.bincount(self.rank[block], minlength=len(stages)) - stages
            for missing in np.repeat(np.arange(len(spare)), np.maximum(-spare, 0)):
                k = random.choice(np.flatnonzero(spare[self.rank[block]] > 0).tolist())
                spare[[self.rank[block[k]], missing]] += [-1, 1]
                block[k] = self.ranked[missing]
        return Patterns(groups, pattern.splits)

    def order(self, pattern: Patterns) -> Order | None:
        """A node order with these blocks and exactly the nodes used; None if there is no room.

        Where nodes of a group lack, faster ones take their place, on the first stages whose layers
        these have memory for.
        """
        groups, split = pattern.groups[0], pattern.splits[0]
        grid = np.repeat(groups, self.sizes, axis=0)
        spare = self.nodes - np.bincount(grid.ravel(), minlength=len(self.nodes))
        stages = np.arange(len(split) - 1)
        for j in self.ranked[::-1]:
            for faster in self.ranked[: self.rank[j]][::-1]:
                room = self.costs.farthest[stages, faster, split[:-1]] >= split[1:]
                count = max(0, min(-spare[j], spare[faster]))
                stage, node = np.nonzero((grid == j).T & room[:, None])
                grid[node[:count], stage[:count]] = faster
                count = min(count, len(stage))
                spare[[j, faster]] += [count, -count]
        return None if spare.any() else tuple(grid.T.ravel().tolist())

    def better(self, judged: Found, state: State) -> State:
        """The plan of a pattern if there is one and it is faster, else the state."""
        order = self.order(judged.pattern) if judged.step_time_ns < state.step_time_ns else None
        if order is None:
            return state
        split = tuple(judged.pattern.splits[0].tolist())
        return faster_of(state, self.search.judged(order, state.shares, split))

    def _faster(self, near: Patterns, than_ns: int, stop: Stop) -> Found | None:
        """One of the patterns that takes less time than this; None if there is none."""
        untried = near.take(self.costs.fits(near) & self.counted(near.groups))
        while len(untried) and not stop():
            trial = BlockTrial(self.costs, untried.groups)
            bound = self.search.pool.bound_ns(trial, untried.splits)
            hopeful = np.argsort(bound, kind="stable")[: (bound < than_ns).sum()]
            if not len(hopeful):
                break
            judged = self._best(untried.take(hopeful[:TRIED_AT_ONCE]))
            if judged.step_time_ns < than_ns:
                return judged
            untried = untried.take(hopeful[TRIED_AT_ONCE:])
        return None

    def _best(self, patterns: Patterns) -> Found:
        times, paths = BlockTrial(self.costs, patterns.groups).simulated(patterns.splits, True)
        self.search.pool.learn(paths)
        best = times.argsort(kind="stable")[:1]
        return Found(patterns.take(best), int(times[best[0]]))

    def descend(self, pattern: Patterns, stop: Stop) -> Found:
        """No exchange or change near the pattern is faster, unless stopped."""
        valid = self.costs.fits(pattern) & self.counted(pattern.groups)
        best = self._best(pattern) if valid[0] else Found(pattern, LONGEST_NS)
        while True:
            time_ns = best.step_time_ns
            faster = self._faster(near_patterns(best.pattern), time_ns, stop)
            if faster is None:
                faster = self._faster(changed_patterns(best.pattern, self.rank), time_ns, stop)
            if faster is None:
                return best
            best = faster

    def best(self, state: State, random: Random, stop: Stop) -> Found:
        """The fastest pattern met on a walk over local optima that begins along the state."""
        best = at = self.descend(self.balanced(self.along(state), random), stop)
        failures = 0
        while failures < PATIENCE and not stop():
            judged = self.descend(shaken(at.pattern, random), stop)
            failures += 1
            if judged.step_time_ns < at.step_time_ns * (1 + WORSE * random.random()):
                at = judged
            if at.step_time_ns < best.step_time_ns:
                best, failures = at, 0
        return best
