"""The stages of one config over some node orders: what they cost, how much they can do at most.

Devices with several chunks. Virtual stage s lies on device s mod p, so along the layers the nodes
come v times over. Going through devices instead, each with the sizes of all its chunks, every node
comes once: a plan is a path through the graph of all node orders whose states also count the layers
placed so far. What is given up is where the layers of a chunk begin: it is charged the least of all
places where so many layers may be, which is exact where they are alike. Sizes of all chunks are a
split, so nothing but its times is given up; links between zones, and what the last device's node
adds to the transfer to the first, only lengthen a step.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np

from formulations.costs.intervals import Array, Mask, interval_maxima, interval_sums
from formulations.plan import Configuration
from formulations.schedules.registry import SCHEDULES, held
from solver.verify.bounds import Prover
from solver.verify.orders import OrderGraph
from solver.verify.path_lengths import (
    NEVER,
    Choices,
    Costs,
    LaneWays,
    Member,
    Remaining,
    families,
    members_of,
)


class Stages:
    """What all questions about one configuration share, by a graph of orders; n = L + 1.

    Of every device some rows: which layers it may have, here n * first + last. even: whether shares
    are, `least` the micro-batches of a replica then, and 1 else.
    """

    chunks = 1  #: of a device, v
    most_choices = sys.maxsize  #: with more for one device there is no question

    def __init__(self, prover: Prover, config: Configuration, graph: OrderGraph) -> None:
        self.prover, self.config, self.instance = prover, config, prover.instance
        self.graph = graph
        self.total = prover.instance.workload.global_batch // config.micro_batch
        self.even = config.dp == 1 or prover.instance.search.micro_batches == "even"
        self.least = self.total // config.dp if self.even else 1
        self._forward, _, self._weight = prover.stage_times(config)
        self.able = lru_cache(maxsize=None)(self._able)
        self.passes = lru_cache(maxsize=None)(self._passes)
        self.held = lru_cache(maxsize=None)(self._held)
        self.members = lru_cache(maxsize=None)(self._members)

    @property
    def size(self) -> int:
        """Boundaries of layers, n."""
        return len(self._forward[0])

    @cached_property
    def lanes(self) -> dict[int, int]:
        """Lanes that differ, each with the number of those that are like it."""
        return Counter(self.graph.alike)

    def _members(self, k: int) -> Sequence[Member]:
        """Of a device, for the m of even shares."""
        schedule, p = self.config.schedule, self.config.pp
        if self.chunks == 1:
            return members_of(schedule, p, k, np.array(self.least))
        return families(schedule, p, self.least, *self.config.chunking)[k]

    @cached_property
    def kind(self) -> Array:
        """[n] of which number of tensors K the message before a layer is."""
        return self.graph.tables.message_kind

    def send(self, k: int) -> Array:
        """[A, R, K] messages between a device and the one before, by step."""
        return self.graph.built[k].send

    def sizes(self, k: int) -> Array:
        """[v, rows] layers of every chunk of a device."""
        ends = np.arange(self.size)
        return (ends - ends[:, None]).reshape(1, -1)

    def placed(self, k: int, rows: Array) -> tuple[Array, Array, Array]:
        """Layers [first, last) of some rows of a device, and the rows, wherever they may begin."""
        return *np.divmod(rows, self.size), rows

    def _held(self, k: int) -> Array:
        """[J, rows] largest number of micro-batches that memory holds."""
        config, prover = self.config, self.prover
        if self.even:
            number = np.where(prover.extra(config, k, self.least) < NEVER, NEVER, 0)
        else:
            number = prover.held(config, k, self.total)
        return number.reshape(len(number), -1)

    def _passes(self, k: int) -> list[list[Array]]:
        """By chunk [J, rows] ns, at least: forward, backward, weight gradients."""
        backward = self.prover.backward_ns(self.config, k, self.least)
        times = (self._forward, backward, self._weight)
        return [[part.reshape(len(part), -1)] for part in times]

    def _able(self, k: int, limit: int) -> Array:
        """[J, rows] most micro-batches of a device, by memory and what is busy within the limit.

        0 where layers may not be a stage.
        """
        work = np.sum(self.passes(k), axis=(0, 1))
        busy = np.where(work > 0, limit // np.maximum(work, 1), NEVER)
        return np.asarray(np.minimum(busy, self.held(k)) * self.possible(k))

    def possible(self, k: int) -> Mask:
        """[rows] whether layers may be of a device."""
        mask = self.prover.enough_blocks.copy()
        mask[1 if k == 0 else self.size :] = False
        mask[:, : -1 if k == self.config.pp - 1 else 0] = False
        return mask.ravel()

    @cached_property
    def _tails(self) -> Array:
        """[T, n * n] of the graph."""
        return np.stack(self.graph.epilogues.all_ns).reshape(len(self.graph.epilogues.all_ns), -1)

    def tail_ns(self, k: int, tails: Array, rows: Array) -> Array:
        """[M] of a device on nodes with these rows of tails."""
        return self._tails[tails, rows]

    def lane(self, remaining: Remaining, r: int) -> LaneWays:
        """Lane r on what remains; all ways that come back put off one weight gradient at least."""
        costs = [self.costs(remaining, k, r) for k in range(len(remaining))]
        puts_off = SCHEDULES[self.config.schedule].splits_backward
        once = costs[0].tail + puts_off * costs[0].times[2 * self.chunks]
        return LaneWays(self.graph.built, remaining, costs, once, self.size)

    def costs(self, remaining: Remaining, k: int, r: int) -> Costs:
        """What the choices of a device cost lane r."""
        step, choices = self.graph.built[k], remaining[k]
        groups = step.group[choices.step, r]
        times = [by_row[groups, choices.row] for part in self.passes(k) for by_row in part]
        sends, back = self._sends(choices, k, r), step.send_back
        times += sends
        if self.instance.search.blocking_sends:
            times += self._onward(choices, k, r)
            times += sends if back is None else [back[choices.step, r]]
        tail = self.tail_ns(k, step.tail[choices.step], choices.row)
        return Costs(np.stack(times), tail + self._waits(remaining, k))

    def _sends(self, choices: Choices, k: int, r: int) -> list[Array]:
        """By chunk [M] messages from the stage before; to the first device from the last one.

        Where they take other times back, a way down and back has both: half of their sum bounds
        each of the two.
        """
        step = self.graph.built[k]
        ahead = around = self.send(k)[choices.step, r, self.kind[choices.first]]
        if not k:
            around = step.back[choices.step, r].min(axis=-1)
        if step.send_back is not None:
            ahead = np.minimum(ahead, (ahead + step.send_back[choices.step, r]) // 2)
        return [ahead, *[around] * (self.chunks - 1)]

    def _onward(self, choices: Choices, k: int, r: int) -> list[Array]:
        """By chunk [M] messages to the stage after, at least; none from the last one."""
        steps, none = self.graph.built, np.zeros_like(choices.first)
        if k + 1 == len(steps):
            return [*[none + steps[0].back[:, r].min()] * (self.chunks - 1), none]
        shortest = np.full((steps[k].num_targets, self.send(k).shape[-1]), NEVER)
        np.minimum.at(shortest, steps[k + 1].source, self.send(k + 1)[:, r])
        return [shortest[steps[k].target[choices.step], self.kind[choices.last]]] * self.chunks

    def _waits(self, remaining: Remaining, k: int) -> Array | int:
        """[M] what the choices of an outer device wait for the links of the other one."""
        if not self.graph.tables.tied or k % (len(remaining) - 1 or 1):
            return 0
        steps = self.graph.built
        rows, others = (steps[i].tail[remaining[i].step] for i in (k, len(remaining) - 1 - k))
        return self.graph.epilogues.waits_ns(rows, others)


class ChunkStages(Stages):
    """Devices that are busy within a limit, ns; S = p v, W ways to recompute, J node groups.

    Rows of a device: numbers of layers of its chunks.
    """

    most_choices = 400_000

    def __init__(
        self, prover: Prover, config: Configuration, graph: OrderGraph, limit: int
    ) -> None:
        super().__init__(prover, config, graph)
        self.limit, self.chunks, self.length = limit, config.vpp, self.size - 1
        self._tables = prover.tables(config)
        self._sizes = lru_cache(maxsize=None)(self._within)
        self._taken = lru_cache(maxsize=None)(self._first_way)

    def _stages(self, k: int) -> range:
        """Virtual stages of a device."""
        return range(k, self.config.num_stages, self.config.pp)

    @cached_property
    def _places(self) -> Mask:
        """[S, L, n] whether a virtual stage may have so many layers from this one on."""
        stages, ends = self.config.num_stages, np.arange(self.size)
        s, first, count = np.ogrid[:stages, : self.length, : self.size]
        last = first + count
        inside = (first >= s) & (last <= self.length - (stages - 1 - s))
        outer = ((s > 0) | (first == 0)) & ((s < stages - 1) | (last == self.length))
        enough = self.prover.enough_blocks[ends[:-1, None], np.minimum(last[0], self.length)]
        return np.asarray(np.logical_and(inside & outer, (last <= self.length) & enough))

    def _least(self, values: Array) -> Array:
        """[S, n] least of [n, n] over the places of so many layers, where there are any."""
        first = np.arange(self.length)[:, None]
        at_place = values[first, np.minimum(first + np.arange(self.size), self.length)]
        return np.asarray(np.where(self._places, at_place, NEVER).min(axis=1))

    @cached_property
    def _times(self) -> Array:
        """[2, W, J, S, n] forward, backward, by what is recomputed."""
        forward, backward, _ = self.prover.stage_times(self.config)
        ways = [interval_sums(extra.T) for extra in self._tables.recompute_ns]
        ahead = [np.stack([self._least(by_group) for by_group in forward])] * len(ways)
        late = [[self._least(by_group) for by_group in backward + extra] for extra in ways]
        return np.stack([ahead, late])

    def sizes(self, k: int) -> Array:
        """[v, rows] layers of every chunk of a device."""
        return self._sizes(k)

    def _within(self, k: int) -> Array:
        """The same where it may be busy within the limit on some group.

        Other devices have as many layers as they have chunks, at least.
        """
        used = self.config.groups_used
        work = self._times[:, 0].sum(axis=0)[used].min(axis=0)
        work = np.where(self._places.any(axis=1), self.least * work, self.limit + 1)
        most_layers = self.length - self.config.num_stages + self.chunks
        sizes, busy = np.zeros((0, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
        for s in self._stages(k):
            more = busy[:, None] + work[s]
            row, count = np.nonzero(
                (more <= self.limit) & (sizes.sum(axis=0)[:, None] <= most_layers)
            )
            sizes, busy = np.concatenate([sizes[:, row], count[None]]), more[row, count]
        return sizes[:, sizes.sum(axis=0) <= most_layers]

    def placed(self, k: int, rows: Array) -> tuple[Array, Array, Array]:
        """Layers [first, last) of some rows of a device, and the rows, wherever they may begin."""
        p, v, count = self.config.pp, self.chunks, self.sizes(k)[:, rows].sum(axis=0)
        before = np.arange(k * v, (self.length - (p - k) * v) * bool(k) + 1)
        rest = self.length - before[:, None] - count
        x, y = np.nonzero(rest == 0 if k == p - 1 else rest >= (p - 1 - k) * v)
        return before[x], before[x] + count[y], rows[y]

    def _first_way(self, k: int) -> Array:
        """[J, rows] the first way that a device may have room with, at its fullest; W: none."""
        config, tables, sizes = self.config, self._tables, self.sizes(k)
        stages = np.array(self._stages(k))[:, None]
        fullest = held(config.schedule, config.pp, k, self.least, *config.chunking)
        in_flight = np.array(fullest)[:, :-1]

        def at_least(values: Array) -> Array:
            """[v, rows] of [n, n]."""
            return np.asarray(self._least(values)[stages, sizes])

        ways = []
        for memory, capacity in zip(tables.memory, tables.capacity_bytes, strict=True):
            static = at_least(interval_sums(memory.static_bytes)).sum(axis=0) + memory.fixed_bytes
            kept = [
                (in_flight @ at_least(interval_sums(way.activation_bytes))).max(axis=0)
                + at_least(interval_maxima(way.workspace_bytes)).max(axis=0)
                for way in memory.kept
            ]
            short = static + np.stack(kept) > capacity
            ways.append(np.logical_and.accumulate(short).sum(axis=0))
        return np.stack(ways)

    def _held(self, k: int) -> Array:
        """[J, rows] whether memory holds even shares, as a number of micro-batches."""
        return np.where(self._taken(k) < len(self.config.recompute), NEVER, 0)

    def possible(self, k: int) -> Mask:
        """[rows] all."""
        return np.ones(self.sizes(k).shape[1], dtype=np.bool_)

    def _passes(self, k: int) -> list[list[Array]]:
        """By chunk [J, rows] ns, at least: forward, backward; no weight gradients are put off."""
        way = self._taken(k) % len(self.config.recompute)
        group = np.arange(len(way))[:, None]
        pairs = list(zip(self._stages(k), self.sizes(k), strict=True))
        times = [[kind[way, group, s, rows] for s, rows in pairs] for kind in self._times]
        return [*times, [0 * way] * self.chunks]

    @cached_property
    def kind(self) -> Array:
        """[n] all alike: messages have as many tensors as those with fewest."""
        return np.zeros(self.size, dtype=np.int64)

    def send(self, k: int) -> Array:
        """[A, R, 1] messages between a device and the one before, by step."""
        return np.asarray(self.graph.built[k].send.min(axis=-1, keepdims=True))

    @cached_property
    def _tails_of_chunks(self) -> tuple[Array, Array]:
        """[T, S, n] of the layers of one chunk; [T] once."""
        rows = self.graph.epilogues.all_ns
        each = np.stack([self._least(tail - tail[0, 0]) for tail in rows])
        return each, np.array([tail[0, 0] for tail in rows])

    def tail_ns(self, k: int, tails: Array, rows: Array) -> Array:
        """[M] of a device on nodes with these rows of tails."""
        each, once = self._tails_of_chunks
        parts = zip(self._stages(k), self.sizes(k)[:, rows], strict=True)
        return np.asarray(once[tails] + sum(each[tails, s, count] for s, count in parts))
