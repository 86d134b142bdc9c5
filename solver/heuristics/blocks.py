"""Local search over plans whose replicas form two blocks: whole blocks of nodes change places.

Where a stage takes many nodes, those of a group are rarely enough for a whole number of stages: 171
nodes at 32 a stage are 5.34. Then it may pay that a third of the replicas has the group on six
stages, and slower nodes than the others elsewhere. Moves of single nodes do not lead there: they
leave the other nodes of their stages waiting, until all nodes of a third of the replicas have
changed places on several stages.
"""

from dataclasses import dataclass
from random import Random

import numpy as np

from formulations.costs.tables import Array, CostTables
from solver.heuristics.balance import Mask
from solver.heuristics.block_moves import changed_patterns, near_patterns, shaken
from solver.heuristics.block_trial import BlockCosts, BlockTrial, Patterns
from solver.heuristics.node_orders import Order
from solver.heuristics.shape_search import TRIED_AT_ONCE, ShapeSearch, Stop
from solver.heuristics.shape_starts import LONGEST_NS, State

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
    shape = tables.shape
    used = [(n, size) for n, size in zip(shape.nodes_used, tables.slots_per_node, strict=True) if n]
    size = used[0][1]
    whole = shape.dp // size
    cut = shape.dp % size or any(other != size for _, other in used)
    if shape.pp < 2 or cut or whole < FEWEST_NODES:
        return []
    return sorted({min(n % whole, -n % whole) for n, _ in used} - {0})


def with_blocks(search: ShapeSearch, state: State, random: Random, stop: Stop) -> State:
    """The state, or a faster one of two blocks with the same nodes and equal shares."""
    if not (sizes := block_sizes(search.starts.tables)):
        return state
    costs, nodes = BlockCosts(search.starts.space, search.starts.placer), search.nodes_per_stage
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
    """Patterns of one shape with `sizes[b]` nodes of every stage in block b.

    They may ask for slower nodes than there are: faster ones take their place.
    """

    def __init__(self, search: ShapeSearch, costs: BlockCosts, sizes: tuple[int, int]) -> None:
        self.search, self.costs, self.sizes = search, costs, np.array(sizes)
        self.nodes = np.array(search.starts.tables.shape.nodes_used)
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
        p, (first, second) = self.search.starts.tables.shape.pp, self.sizes
        own, ends = np.arange(p + 1), [(0, 0)]
        for most in self.most:
            other = np.minimum((most - first * own) // second, p)
            full = (other >= 0) & (own == np.minimum((most - second * other) // first, p))
            c = min(np.flatnonzero(full), key=lambda c: abs(int(c - other[c])))
            ends.append((int(c), int(other[c])))
        return np.diff(np.maximum.accumulate(ends), axis=0).T

    def balanced(self, pattern: Patterns, random: Random) -> Patterns:
        """The pattern with both blocks on about as many stages of each group."""
        groups = pattern.groups.copy()
        for own, stages in zip(groups[0], self._stages(), strict=True):
            spare = np.bincount(self.rank[own], minlength=len(stages)) - stages
            for missing in np.repeat(np.arange(len(spare)), np.maximum(-spare, 0)):
                k = random.choice(np.flatnonzero(spare[self.rank[own]] > 0).tolist())
                spare[[self.rank[own[k]], missing]] += [-1, 1]
                own[k] = self.ranked[missing]
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

    def better(self, found: Found, state: State) -> State:
        """The plan of a pattern if there is one and it is faster, else the state."""
        order = self.order(found.pattern) if found.step_time_ns < state.step_time_ns else None
        if order is None:
            return state
        split = tuple(found.pattern.splits[0].tolist())
        plan = self.search.starts.judged(order, state.shares, split)
        return plan if plan is not None and plan.step_time_ns < state.step_time_ns else state

    def _faster(self, near: Patterns, than_ns: int, stop: Stop) -> Found | None:
        """One of the patterns that takes less time than this; None if there is none."""
        left = near.take(self.costs.fits(near) & self.counted(near.groups))
        while len(left) and not stop():
            bound = self.search.starts.pool.bound_ns(
                BlockTrial(self.costs, left.groups), left.splits
            )
            hopeful = np.argsort(bound, kind="stable")[: (bound < than_ns).sum()]
            if not len(hopeful):
                break
            found = self._best(left.take(hopeful[:TRIED_AT_ONCE]))
            if found.step_time_ns < than_ns:
                return found
            left = left.take(hopeful[TRIED_AT_ONCE:])
        return None

    def _best(self, patterns: Patterns) -> Found:
        times, paths = BlockTrial(self.costs, patterns.groups).simulated(patterns.splits, True)
        self.search.starts.pool.learn(paths)
        best = times.argsort(kind="stable")[:1]
        return Found(patterns.take(best), int(times[best[0]]))

    def descend(self, pattern: Patterns, stop: Stop) -> Found:
        """No exchange or change near the pattern is faster, unless stopped."""
        valid = self.costs.fits(pattern) & self.counted(pattern.groups)
        best = self._best(pattern) if valid[0] else Found(pattern, LONGEST_NS)
        while True:
            time_ns = best.step_time_ns
            found = self._faster(near_patterns(best.pattern), time_ns, stop)
            if found is None:
                found = self._faster(changed_patterns(best.pattern, self.rank), time_ns, stop)
            if found is None:
                return best
            best = found

    def best(self, state: State, random: Random, stop: Stop) -> Found:
        """The fastest pattern met on a walk over local optima that begins along the state."""
        best = at = self.descend(self.balanced(self.along(state), random), stop)
        failures = 0
        while failures < PATIENCE and not stop():
            found = self.descend(shaken(at.pattern, random), stop)
            failures += 1
            if found.step_time_ns < at.step_time_ns * (1 + WORSE * random.random()):
                at = found
            if at.step_time_ns < best.step_time_ns:
                best, failures = at, 0
        return best
