"""Whether any plan of a shape can be faster than a claimed bound, over all node orders and shares.

Take a plan within D. In 1F1B, stage i of p and a lane (replicas on the same nodes) with m
micro-batches each; t = f + b forward and backward of one micro-batch on stage i; `latency` all
forwards, backwards and transfers of one micro-batch, there and back, and the tail of stage 0.

(1) latency + (m - 1) t - min(p - 1 - i, m - 1) min(f, b) <= D: proved as (1) of `pipeline`.
(2) latency + a C + (m - 1 - a s) t <= D for s = p - i and a >= 1 with a s <= m - 1, where C is
    what the latency has of stages i and later. Proof: after B_i(x) stage i runs F_i(x + s), then
    B_i(x + 1); and F_i(x + s) goes down to the last stage, is turned there and comes back to
    B_i(x + s): a round of length C. After micro-batch 0 came back to stage i, m - 1 - a s pairs of
    operations follow on stage i, then a rounds, the last of them with the last micro-batch.
(3) arrival at stage i + m t + tail of stage i <= D: a device does one thing at a time.
(4) memory holds m micro-batches, or with 1F1B p - i of them.

For GPipe (1) holds without the min, (2) does not, and (4) asks for m. With blocking sends the
transfers that a stage sends belong to its f and b in (1) and (3). A replica with m micro-batches is
no faster than with fewer of them, so what breaks a bound for some m is possible for none above it:
every (stage, layers, nodes, lane) has a largest m. Latency and arrival depend on the plan: a
shortest path among what is left stands for them. What cannot serve all M micro-batches is struck
out: with lanes of q replicas, if the sum of the largest m is below M / q, or, with even shares, one
of them below M / dp. Nothing of a plan within D is ever struck out, so if nothing is left there is
no such plan.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.costs.memory import capacity_bytes
from formulations.plan import Shape
from formulations.units import ceil_div
from solver.verify.bounds import Prover, interval_sums
from solver.verify.clock import Clock
from solver.verify.orders import OrderGraph, Step

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: More than any time in ns or number of micro-batches; sums of a few stay within 64 bits.
NEVER = 1 << 59


def _quotient(room: Array, each: Array) -> Array:
    """How often `each` goes into `room`, rounded down; NEVER if it takes nothing."""
    return np.where(each > 0, room // np.maximum(each, 1), NEVER)


@dataclass(frozen=True)
class Choices:
    """M ways to run one stage: by a step of the graph [M], layers [first, last) [M]."""

    step: Array
    first: Array
    last: Array

    def __len__(self) -> int:
        return len(self.step)

    def take(self, keep: Mask) -> "Choices":
        """Some of them."""
        return Choices(self.step[keep], self.first[keep], self.last[keep])


Left = list[Choices]


@dataclass(frozen=True)
class Costs:
    """The choices of one stage for one lane, ns [M].

    ahead, behind: forward and backward with what the stage sends, if sends are blocking.
    """

    forward: Array
    backward: Array
    ahead: Array
    behind: Array
    send: Array
    tail: Array

    @property
    def work(self) -> Array:
        """Forward and backward of one micro-batch."""
        return self.forward + self.backward


class Refutation:
    """The question for one shape, by the graph of all orders or another one; n = L + 1."""

    def __init__(
        self,
        prover: Prover,
        shape: Shape,
        graph: OrderGraph | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.shape, self.instance, self.clock = shape, prover.instance, clock or Clock()
        self.graph = graph or OrderGraph(prover.instance, shape)
        times = prover.times(shape.tp, shape.micro_batch, shape.recompute)
        self.forward = np.stack([interval_sums(column) for column in times.forward_ns.T])
        self.backward = np.stack([interval_sums(column) for column in times.backward_ns.T])
        self.blocks = prover.enough_blocks
        static, activation = prover.memory(shape)
        room = capacity_bytes(prover.instance)[:, None, None] - static
        self.held = np.where(room < 0, -1, _quotient(room, activation))  # [J, n, n]
        total = prover.instance.workload.global_batch // shape.micro_batch
        even = prover.instance.search.micro_batches == "even"
        self.least = total // shape.dp if even else 1
        self.needed = ceil_div(total, self.graph.width)

    def with_needed(self, micro_batches: int) -> "Refutation":
        """The same question where one replica per lane has to do so much in all."""
        other = copy(self)
        other.needed = micro_batches
        return other

    def refutes(self, below_ns: int) -> bool:
        """True only if no plan of the shape has a step time below this."""
        if self.graph.steps is None:
            return False
        return self.remaining(self.everything(below_ns), below_ns) is None

    def remaining(self, left: Left, below_ns: int) -> Left | None:
        """What plans with a step time below this may use of `left`; None if there are none."""
        before = -1
        while before != (count := sum(map(len, left))):
            self.clock.check()
            if not all(map(len, left)):
                return None
            before = count
            left = self._kept(left, below_ns - 1)
        return left

    @property
    def steps(self) -> tuple[Step, ...]:
        """The graph's, which exist."""
        assert self.graph.steps is not None
        return self.graph.steps

    @cached_property
    def alike(self) -> list[int]:
        """Of every lane of the graph: the first lane that has the same groups and transfers."""
        first: dict[bytes, int] = {}
        found = []
        for r in range(len(self.graph.lanes)):
            parts = (part[:, r].tobytes() for s in self.steps for part in (s.group, s.send))
            found.append(first.setdefault(b"".join(parts), r))
        return found

    @cached_property
    def lanes(self) -> dict[int, int]:
        """Lanes that differ, each with the number of those that are like it."""
        return Counter(self.alike)

    def everything(self, below_ns: int) -> Left:
        """All choices of every stage whose devices and memory alone leave the claim open."""
        return [self._choices(k, below_ns - 1) for k in range(self.shape.pp)]

    def _choices(self, k: int, limit: int) -> Choices:
        step, last = self.steps[k], self.shape.pp - 1
        most = np.minimum(
            _quotient(np.full((), limit), self.forward + self.backward),
            self._by_memory(k, self.held),
        )
        found: dict[bytes, Array] = {}
        once = np.ones(step.group.shape[1], dtype=np.int64)
        parts = []
        for x, groups in enumerate(step.group):
            key = groups.tobytes()
            if key not in found:
                mask = self.blocks & self.suffice(most[groups], once)
                mask[1 if k == 0 else len(mask) :] = False
                mask[:, : -1 if k == last else 0] = False
                found[key] = np.argwhere(mask)
            first, end = found[key].T
            parts.append((np.full(len(first), x), first, end))
        return Choices(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def suffice(self, most: Array, counts: Array) -> Mask:
        """[..] whether replicas with these most micro-batches [R, ..] do all.

        counts: [R] lanes that each row of `most` stands for.
        """
        whole = np.tensordot(counts, np.minimum(most, self.needed), axes=1)
        enough: Mask = (most >= self.least).all(axis=0) & (whole >= self.needed)
        return enough

    def _kept(self, left: Left, limit: int) -> Left:
        """What is not struck out for plans within `limit`."""
        lanes = zip(*(self.most(left, r, limit) for r in self.lanes), strict=True)
        counts = np.array(list(self.lanes.values()))
        return [
            choices.take(self.suffice(np.stack(most), counts))
            for choices, most in zip(left, lanes, strict=True)
        ]

    @cached_property
    def tails(self) -> Array:
        """[T, n, n] of the graph."""
        return np.stack(self.graph.tails)

    def _costs(self, left: Left, k: int, r: int) -> Costs:
        steps, choices = self.steps, left[k]
        step, layers = steps[k], (choices.first, choices.last)
        groups, kind = step.group[choices.step, r], self.graph.kind[choices.first]
        send = step.send[choices.step, r, kind]
        forward, backward = self.forward[groups, *layers], self.backward[groups, *layers]
        ahead, behind = forward, backward
        if self.instance.search.blocking_sends:
            behind = backward + send
            if k + 1 < len(steps):
                least = np.full(step.num_targets, NEVER)
                np.minimum.at(least, steps[k + 1].source, steps[k + 1].send[:, r, 0])
                ahead = forward + least[step.target[choices.step]]
        tail = self.tails[step.tail[choices.step], *layers]
        return Costs(forward, backward, ahead, behind, send, tail)

    def _nodes(self, left: Left) -> list[tuple[Array, Array]]:
        """Per stage the (state, layer) [M] before and after every choice, as numbers."""
        size = len(self.blocks)
        return [
            (step.source[c.step] * size + c.first, step.target[c.step] * size + c.last)
            for step, c in zip(self.steps, left, strict=True)
        ]

    def _before(self, nodes: Sequence[tuple[Array, Array]], costs: Sequence[Array]) -> list[Array]:
        """Shortest ways from the start to every (state, layer) before each stage."""
        size = len(self.blocks)
        found = [np.full(size, NEVER)]
        found[0][0] = 0
        for step, (source, target), cost in zip(self.steps, nodes, costs, strict=True):
            best = np.full(step.num_targets * size, NEVER)
            np.minimum.at(best, target, found[-1][source] + cost)
            found.append(best)
        return found

    def _after(self, nodes: Sequence[tuple[Array, Array]], costs: Sequence[Array]) -> list[Array]:
        """Shortest ways from every (state, layer) after each stage to the end."""
        size = len(self.blocks)
        found = [np.zeros(self.steps[-1].num_targets * size, dtype=np.int64)]
        for k in range(len(nodes) - 1, 0, -1):
            source, target = nodes[k]
            best = np.full(self.steps[k - 1].num_targets * size, NEVER)
            np.minimum.at(best, source, found[-1][target] + costs[k])
            found.append(best)
        return found[::-1]

    def most(self, left: Left, r: int, limit: int) -> Iterator[Array]:
        """Per stage [M] most micro-batches of a replica of lane r within `limit`."""
        costs = [self._costs(left, k, r) for k in range(len(left))]
        latency = [one.work + 2 * one.send for one in costs]
        latency[0] = latency[0] + costs[0].tail
        nodes = self._nodes(left)
        before, after = self._before(nodes, latency), self._after(nodes, latency)
        arrival = self._before(nodes, [one.forward + one.send for one in costs])
        for k, ((source, target), one) in enumerate(zip(nodes, costs, strict=True)):
            onward = after[k][target]
            room = limit - before[k][source] - latency[k] - onward
            work = one.ahead + one.behind
            busy = limit - arrival[k][source] - one.send - one.tail
            most = np.minimum(self._by_bottleneck(one, k, room) + 1, _quotient(busy, work))
            if self.shape.schedule != "gpipe":
                most = np.minimum(most, self._by_rounds(one, k, room, onward) + 1)
            step, choices = self.steps[k], left[k]
            held = self.held[step.group[choices.step, r], choices.first, choices.last]
            most = np.minimum(most, self._by_memory(k, held))
            yield np.where((room >= 0) & (busy >= 0), most, 0)

    def _by_bottleneck(self, one: Costs, k: int, room: Array) -> Array:
        """Largest m - 1 by (1), `room` above the latency."""
        work, least = one.ahead + one.behind, np.minimum(one.ahead, one.behind)
        warm = 0 if self.shape.schedule == "gpipe" else self.shape.pp - 1 - k
        few = _quotient(room, work - least)
        return np.where(few < warm, few, _quotient(room + warm * least, work))

    def _by_rounds(self, one: Costs, k: int, room: Array, onward: Array) -> Array:
        """Largest m - 1 by (2), with one round, and with as many as there are."""
        length, work = self.shape.pp - k, one.ahead + one.behind
        turn, room = one.work + onward, np.maximum(room, 0)
        single = np.where(room < turn, length - 1, length + _quotient(room - turn, work))
        slack = room - (length - 1) * work
        rounds = np.where(slack < turn, 1, _quotient(slack, turn) + 1)
        rounds = np.minimum(rounds, NEVER // length)
        spare = room - rounds * turn
        inside = np.where(spare < 0, -1, np.minimum(_quotient(spare, work), length - 1))
        most: Array = np.minimum(single, rounds * length + inside)
        return most

    def _by_memory(self, k: int, held: Array) -> Array:
        """Largest m by (4), with room for `held` micro-batches."""
        if self.shape.schedule == "gpipe":
            return held
        return np.where(held >= self.shape.pp - k, NEVER, held)
