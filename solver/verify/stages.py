"""The stages of one shape over some node orders: what they cost, how much they can do at most."""

import sys
from collections import Counter
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from formulations.plan import Shape
from formulations.schedules import SCHEDULES
from solver.verify.bounds import Prover
from solver.verify.families import NEVER, Member, families
from solver.verify.lengths import Costs, LaneWays
from solver.verify.orders import OrderGraph
from solver.verify.ways import Choices, Left, Ways

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Stages:
    """What all questions about one shape share, by a graph of orders; n = L + 1.

    Of every device some rows: which layers it may have, here n * first + last. even: whether shares
    are, `least` the micro-batches of a replica then, and 1 else.
    """

    chunks = 1  #: of a device, v
    most_choices = sys.maxsize  #: with more for one device there is no question

    def __init__(self, prover: Prover, shape: Shape, graph: OrderGraph) -> None:
        self.prover, self.shape, self.instance = prover, shape, prover.instance
        self.graph = graph
        self.total = prover.instance.workload.global_batch // shape.micro_batch
        self.even = shape.dp == 1 or prover.instance.search.micro_batches == "even"
        self.least = self.total // shape.dp if self.even else 1
        self._forward, _, self._weight = prover.stage_times(shape)
        self.able = lru_cache(maxsize=None)(self._able)
        self.passes = lru_cache(maxsize=None)(self._passes)
        self.held = lru_cache(maxsize=None)(self._held)

    @property
    def size(self) -> int:
        """Boundaries of layers, n."""
        return len(self._forward[0])

    @cached_property
    def lanes(self) -> dict[int, int]:
        """Lanes that differ, each with the number of those that are like it."""
        return Counter(self.graph.alike)

    @cached_property
    def members(self) -> tuple[tuple[Member, ...], ...]:
        """Per device, for the m of even shares."""
        return families(self.shape.schedule, self.shape.pp, self.least, self.chunks)

    @cached_property
    def rest(self) -> int:
        """Weight gradients at the end on stage 0, on all ways that come back there.

        If they are split off, those of the last micro-batch at least.
        """
        if not self.even:
            return int(SCHEDULES[self.shape.schedule].splits_backward)
        return min((one.rest for own in self.members[1:] for one in own if one.back), default=0)

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

    def placed(self, k: int, own: Array) -> tuple[Array, Array, Array]:
        """Layers [first, last) of some rows of a device, and the rows, wherever they may begin."""
        return *np.divmod(own, self.size), own

    def _held(self, k: int) -> Array:
        """[J, rows] largest number of micro-batches that memory holds."""
        shape, prover = self.shape, self.prover
        if self.even:
            held = np.where(prover.extra(shape, k, self.least) < NEVER, NEVER, 0)
        else:
            held = prover.held(shape, k, self.total)
        return held.reshape(len(held), -1)

    def _passes(self, k: int) -> list[list[Array]]:
        """By chunk [J, rows] ns, at least: forward, backward, weight gradients."""
        backward = self.prover.backward_ns(self.shape, k, self.least)
        times = (self._forward, backward, self._weight)
        return [[own.reshape(len(own), -1)] for own in times]

    def _able(self, k: int, limit: int) -> Array:
        """[J, rows] most micro-batches of a device, by memory and what is busy within the limit.

        0 where layers may not be a stage.
        """
        work = np.sum(self.passes(k), axis=(0, 1))
        busy = np.where(work > 0, limit // np.maximum(work, 1), NEVER)
        able: Array = np.minimum(busy, self.held(k)) * self.possible(k)
        return able

    def possible(self, k: int) -> Mask:
        """[rows] whether layers may be of a device."""
        mask = self.prover.enough_blocks.copy()
        mask[1 if k == 0 else self.size :] = False
        mask[:, : -1 if k == self.shape.pp - 1 else 0] = False
        return mask.ravel()

    @cached_property
    def _tails(self) -> Array:
        """[T, n * n] of the graph."""
        return np.stack(self.graph.epilogues.all_ns).reshape(len(self.graph.epilogues.all_ns), -1)

    def tail_ns(self, k: int, tails: Array, own: Array) -> Array:
        """[M] of a device on nodes with these rows of tails."""
        return self._tails[tails, own]

    def lane(self, left: Left, r: int) -> LaneWays:
        """Lane r on what is left."""
        costs = [self.costs(left, k, r) for k in range(len(left))]
        once = costs[0].tail + self.rest * costs[0].times[2 * self.chunks]
        return LaneWays(costs, Ways(self.graph.built, left, self.size), once)

    def costs(self, left: Left, k: int, r: int) -> Costs:
        """What the choices of a device cost lane r."""
        step, choices = self.graph.built[k], left[k]
        groups = step.group[choices.step, r]
        times = [one[groups, choices.own] for part in self.passes(k) for one in part]
        times += self._sends(choices, k, r)
        if self.instance.search.blocking_sends:
            times += [*self._onward(choices, k, r), *self._backs(choices, k, r)]
        tail = self.tail_ns(k, step.tail[choices.step], choices.own)
        return Costs(np.stack(times), tail + self._waits(left, k))

    def _sends(self, choices: Choices, k: int, r: int) -> list[Array]:
        """By chunk [M] messages from the stage before; to the first device from the last one."""
        ahead = around = self.send(k)[choices.step, r, self.kind[choices.first]]
        if not k:
            around = self.graph.built[k].back[choices.step, r].min(axis=-1)
        return [ahead, *[around] * (self.chunks - 1)]

    def _backs(self, choices: Choices, k: int, r: int) -> list[Array]:
        """By chunk [M] messages back to the stage before."""
        return self._sends(choices, k, r)

    def _onward(self, choices: Choices, k: int, r: int) -> list[Array]:
        """By chunk [M] messages to the stage after, at least; none from the last one."""
        steps, none = self.graph.built, np.zeros_like(choices.first)
        if k + 1 == len(steps):
            return [*[none + steps[0].back[:, r].min()] * (self.chunks - 1), none]
        least = np.full((steps[k].num_targets, self.send(k).shape[-1]), NEVER)
        np.minimum.at(least, steps[k + 1].source, self.send(k + 1)[:, r])
        return [least[steps[k].target[choices.step], self.kind[choices.last]]] * self.chunks

    def _waits(self, left: Left, k: int) -> Array | int:
        """[M] what the choices of an outer device wait for the links of the other one."""
        if not self.graph.tables.tied or k % (len(left) - 1 or 1):
            return 0
        steps = self.graph.built
        own, others = (steps[i].tail[left[i].step] for i in (k, len(left) - 1 - k))
        return self.graph.epilogues.waits_ns(own, others)
