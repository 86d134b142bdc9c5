"""Local search over orders of whole stages: all nodes of a stage change places with another's.

Where a stage takes many nodes, those of a group are rarely enough for a whole number of stages: 171
nodes at 32 a stage are 5.34. Moves of single nodes do not lead from one good order to the next:
they leave the other nodes of their stages waiting, until all nodes of a stage have changed places.
So the nodes of every stage stay together here, and stages are those of two blocks of replicas: a
third of them may have the group on six stages, the others on five.

Nodes are whole and of one size, so what a stage costs depends on its nodes and layers alone, and
many orders and splits are tried at once. Links between zones are left out, until a plan is judged.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np

from formulations.costs.intervals import sums_before
from formulations.costs.tables import Array, CostTables
from solver.graph.problem import Mask
from solver.heuristics.balance import Order, SplitSpace
from solver.heuristics.config_search import (
    LONGEST_NS,
    TRIED_AT_ONCE,
    ConfigSearch,
    State,
    faster_of,
    near_splits,
)
from solver.heuristics.trial import Trial
from solver.interrupt import Stop
from solver.simulate import Times


@dataclass(frozen=True)
class StageOrders:
    """N plans: which stage stands in every place [N, p], and splits [N, p + 1]."""

    places: Array
    splits: Array

    def __len__(self) -> int:
        return len(self.splits)

    def take(self, chosen: Array | Mask) -> "StageOrders":
        """Those with these indices."""
        return StageOrders(self.places[chosen], self.splits[chosen])


class StageNodes:
    """What p stages cost on these nodes, wherever they stand; J node groups, n = L + 1.

    groups: [p, nodes] node groups of the nodes of every stage. kinds: [p, C] those of replicas that
    differ. outside: [J, K] messages, ns. farthest: [p, p, n] last end of a stage in a place that
    fits memory. sync, gather: [p, n] of all layers before each; sync_start, gather_start: [p].
    embedding: [2, p] tied embeddings of a stage in the first place, and in the last.
    """

    def __init__(self, space: SplitSpace, groups: Array) -> None:
        self.space, self.tables, self.groups = space, space.tables, groups
        config, sizes, placer = self.tables.config, self.tables.slots_per_node, space.placer
        self.micro_batches = self.tables.num_micro_batches // config.dp
        self.kinds = np.unique(groups, axis=1)
        self.outside = np.zeros((len(sizes), len(self.tables.tensors)), int)
        embedding = np.zeros((2, len(sizes)), int)
        for j in config.groups_used:
            for times in placer.terms(j, 0).send_ns.values():
                self.outside[j] = np.maximum(self.outside[j], times)
            ends = (0, config.slots - sizes[j])
            embedding[:, j] = [placer.terms(j, start).embedding_ns for start in ends]
        self.embedding = embedding[:, groups].max(axis=2)
        rings = [placer.stage(0, [placer.terms(j, 0) for j in row], row) for row in groups.tolist()]
        sync, sync_start, gather, gather_start = zip(*rings, strict=True)
        self.sync_start, self.gather_start = np.array(sync_start), np.array(gather_start)
        self.sync, self.gather = (sums_before(np.array(layers)) for layers in (sync, gather))
        share, different = self.micro_batches, [set(row) for row in groups.tolist()]
        farthest = [
            [np.min([space.farthest_ends(j, k, share) for j in row], axis=0) for row in different]
            for k in range(config.pp)
        ]
        self.farthest = np.array(farthest)

    def fits(self, orders: StageOrders) -> Mask:
        """[N] which of them keep memory and the least number of blocks."""
        start, end = orders.splits[:, :-1], orders.splits[:, 1:]
        last = self.farthest[np.arange(start.shape[1]), orders.places, start]
        fits = (end >= self.space.least_ends[start]) & (end <= last)
        fitting: Mask = np.all(fits, axis=1)
        return fitting

    def order(self, places: Array) -> Order:
        """The node order of stages in these places [p]."""
        return tuple(self.groups[places].ravel().tolist())


class StageTrial(Trial):
    """Judges one split [N, p + 1] for each of N orders of stages [N, p]."""

    def __init__(self, nodes: StageNodes, places: Array) -> None:
        super().__init__(nodes.space)
        self.nodes, self.places = nodes, places.T
        self.groups = nodes.kinds[self.places].transpose(0, 2, 1)  # [p, C, N]

    def runs(self, splits: Array) -> Iterator[tuple[int, Times]]:
        """Of a replica of each kind."""
        micro_batches, outside = self.nodes.micro_batches, self.nodes.outside
        kinds = self.tables.message_kind[splits[:, 1:-1].T][:, None]
        ends = (outside[groups, kinds] for groups in (self.groups[1:], self.groups[:-1]))
        send = np.maximum(*ends).reshape(len(kinds), -1)
        yield micro_batches, self.space.times(micro_batches, self.groups, splits, send)

    def tail_ns(self, splits: Array) -> Array:
        """[p, N] of these orders."""
        nodes, stage, start, end = self.nodes, self.places, splits[:, :-1].T, splits[:, 1:].T
        sync = nodes.sync[stage, end] - nodes.sync[stage, start] + nodes.sync_start[stage]
        gather = nodes.gather[stage, end] - nodes.gather[stage, start] + nodes.gather_start[stage]
        table = nodes.space.optimizer
        optimizer = table[end[:, None], self.groups] - table[start[:, None], self.groups]
        finish = optimizer.max(axis=1) + gather
        if self.tables.tied:
            embedding = np.maximum(nodes.embedding[0, stage[0]], nodes.embedding[1, stage[-1]])
            finish[[0, -1]] = finish[[0, -1]].max(axis=0) + embedding
        tail: Array = sync + finish
        return tail


#: Pairs of stages exchanged at once at most, and layers moved, to leave a local optimum.
EXCHANGES = 3
LAYERS = 4
#: Share of the exchanged stages whose layers go along.
WITH_LAYERS = 0.7


def near_orders(order: StageOrders) -> StageOrders:
    """One layer moved, or two stages exchanged, with or without their layers; N = 1."""
    places, split = order.places[0], order.splits[0]
    moved = near_splits(split)
    pairs = np.array(np.triu_indices(len(places), 1)).T
    rows = np.arange(len(pairs))[:, None]
    exchanged, counts = (np.repeat(x[None], len(pairs), 0) for x in (places, np.diff(split)))
    exchanged[rows, pairs], counts[rows, pairs] = places[pairs[:, ::-1]], counts[0, pairs[:, ::-1]]
    same = np.repeat(split[None], len(pairs), axis=0)
    return StageOrders(
        np.concatenate([np.repeat(order.places, len(moved), axis=0), exchanged, exchanged]),
        np.concatenate([moved, sums_before(counts), same]),
    )


def shaken(order: StageOrders, random: Random) -> StageOrders:
    """A few pairs of stages exchanged, and a few layers moved; at least two stages, N = 1."""
    places, counts = order.places.copy(), np.diff(order.splits[0])
    stages = range(len(counts))
    for _ in range(random.randint(1, EXCHANGES)):
        pair = random.sample(stages, 2)
        places[:, pair] = places[:, pair[::-1]]
        if random.random() < WITH_LAYERS:
            counts[pair] = counts[pair[::-1]]
    for _ in range(random.randint(0, LAYERS)):
        source, target = random.sample(stages, 2)
        if counts[source] > 1:
            counts[[source, target]] += [-1, 1]
    return StageOrders(places, sums_before(counts[None]))


#: In smaller stages, in nodes, moves of single nodes do.
FEWEST_NODES = 4
#: Descents in a row without a faster plan, from every set of stages.
PATIENCE = 20
#: A plan that is slower than the one before by a random part of this is gone on from.
WORSE = 0.002


def block_sizes(tables: CostTables) -> list[int]:
    """Nodes of the smaller block: what groups have beside whole stages, or lack to them."""
    config = tables.config
    per_stage = sum(config.nodes_used) // config.pp
    return sorted({min(n % per_stage, -n % per_stage) for n in config.nodes_used} - {0})


def in_blocks(tables: CostTables, speeds: Array, order: Order, size: int) -> Array:
    """[p, nodes] the nodes in stages of two blocks, one with so many nodes of each stage.

    Nodes of a block that belong to one stage are of one group, but for the last ones of a group.
    Each block has about as many stages of the r fastest groups, for every r, of which there are
    no nodes left for one stage more of a block. speeds: [J] the less the faster. Stages that had
    the faster nodes in the order have them again.
    """
    config = tables.config
    p, per_stage = config.pp, len(order) // config.pp
    ranked = sorted(config.groups_used, key=lambda j: int(speeds[j]))
    rank = np.full(len(speeds), len(speeds))
    rank[ranked] = range(len(ranked))
    sizes, nodes = (size, per_stage - size), np.array(config.nodes_used)[ranked]
    ends = [(0, 0)]  # stages of either block that the fastest groups take
    for available in np.cumsum(nodes).tolist():
        pairs = [(c, min((available - sizes[0] * c) // sizes[1], p)) for c in range(p + 1)]
        full = [
            (c, d)
            for c, d in pairs
            if d >= 0 and c == min((available - sizes[1] * d) // sizes[0], p)
        ]
        ends.append(min(full, key=lambda pair: abs(pair[0] - pair[1])))
    stages = np.diff(np.maximum.accumulate(ends), axis=0).T  # [2, used groups]
    fastest_first = np.argsort(rank[np.array(order)].reshape(p, -1).sum(axis=1), kind="stable")
    asked = np.empty((p, per_stage), dtype=np.int64)  # ranks of groups
    blocks = np.split(asked, [size], axis=1)
    for block, counts in zip(blocks, stages, strict=True):
        block[fastest_first] = np.repeat(range(len(ranked)), counts)[:, None]
    # Where nodes of a group lack, faster ones take their place.
    groups = np.empty(asked.size, dtype=np.int64)
    groups[np.argsort(asked, axis=None, kind="stable")] = np.repeat(ranked, nodes)
    return groups.reshape(p, per_stage)


def with_stage_orders(search: ConfigSearch, state: State, random: Random, stop: Stop) -> State:
    """The state, or a faster one with the same nodes and equal shares.

    The state where stages are small, or hold no whole nodes of one size.
    """
    config, tables, order = search.config, search.space.tables, state.order
    sizes = {tables.slots_per_node[j] for j in config.groups_used}
    whole_nodes = len(sizes) == 1 and config.dp % min(sizes) == 0
    if config.pp < 2 or not whole_nodes or len(order) < FEWEST_NODES * config.pp:
        return state
    speeds, best = search.space.work[-1], state
    for size in block_sizes(tables):
        groups = in_blocks(tables, speeds, order, size)
        walk = StageSearch(search, StageNodes(search.space, groups))
        judged = walk.best(state, random, stop)
        if judged.step_time_ns < best.step_time_ns:
            split = tuple(judged.order.splits[0].tolist())
            node_order = walk.nodes.order(judged.order.places[0])
            best = faster_of(best, search.judged(node_order, state.shares, split))
    return best


@dataclass(frozen=True)
class Judged:
    """One order of stages, N = 1, and its step time, that of `LONGEST_NS` if it is no plan."""

    order: StageOrders
    step_time_ns: int


@dataclass(frozen=True)
class StageSearch:
    """Orders of the stages of one configuration on these nodes."""

    search: ConfigSearch
    nodes: StageNodes

    def _faster(self, near: StageOrders, than_ns: int, stop: Stop) -> Judged | None:
        """One of the orders that takes less time than this; None if there is none."""
        untried = near.take(self.nodes.fits(near))
        while len(untried) and not stop():
            trial = StageTrial(self.nodes, untried.places)
            bound = self.search.pool.bound_ns(trial, untried.splits)
            hopeful = np.argsort(bound, kind="stable")[: (bound < than_ns).sum()]
            if not len(hopeful):
                break
            judged = self._best(untried.take(hopeful[:TRIED_AT_ONCE]))
            if judged.step_time_ns < than_ns:
                return judged
            untried = untried.take(hopeful[TRIED_AT_ONCE:])
        return None

    def _best(self, orders: StageOrders) -> Judged:
        times, paths = StageTrial(self.nodes, orders.places).simulated(orders.splits, True)
        self.search.pool.learn(paths)
        best = times.argsort(kind="stable")[:1]
        return Judged(orders.take(best), int(times[best[0]]))

    def descend(self, order: StageOrders, stop: Stop) -> Judged:
        """No exchange or change near the order is faster, unless stopped."""
        fits = self.nodes.fits(order)[0]
        best = self._best(order) if fits else Judged(order, LONGEST_NS)
        while faster := self._faster(near_orders(best.order), best.step_time_ns, stop):
            best = faster
        return best

    def best(self, state: State, random: Random, stop: Stop) -> Judged:
        """The fastest order met on a walk over local optima that begins with the state's split."""
        places = np.arange(len(state.split) - 1)[None]
        best = at = self.descend(StageOrders(places, np.array([state.split])), stop)
        failures = 0
        while failures < PATIENCE and not stop():
            judged = self.descend(shaken(at.order, random), stop)
            failures += 1
            if judged.step_time_ns < at.step_time_ns * (1 + WORSE * random.random()):
                at = judged
            if at.step_time_ns < best.step_time_ns:
                best, failures = at, 0
        return best
