"""Whether any plan of a shape can be faster than a claimed bound, over all node orders and shares.

Take a plan within D. In 1F1B, stage i of p and a lane (replicas on the same nodes) with m
micro-batches each; t = f + b forward and backward of one micro-batch on stage i; `latency` all
forwards, backwards and transfers of one micro-batch, there and back, and the tail of stage 0.

(1) latency + (m - 1) t - min(p - 1 - i, m - 1) min(f, b) <= D: proved as (1) of `pipeline`.
(2) latency + c C + r max(f, b) <= D, where m - 1 = c s + r, r < s = p - i, and C is what the
    latency has of stages i and later. Proof: after B_i(x) stage i runs F_i(x + s), which goes down
    to the last stage, is turned there and comes back to B_i(x + s): a round of length C. After
    micro-batch 0 came back to stage i, c rounds follow and r backwards; or r forwards before the
    first one goes down, and c rounds after it came back.
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
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.costs.memory import capacity_bytes
from formulations.plan import Shape
from formulations.units import ceil_div
from solver.verify.bounds import Prover, interval_sums
from solver.verify.orders import OrderGraph, Step

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: More than any time in ns or number of micro-batches; sums of a few stay within 64 bits.
NEVER = 1 << 59


def _quotient(room: Array, each: Array) -> Array:
    """How often `each` goes into `room`, rounded down; NEVER if it takes nothing."""
    return np.where(each > 0, room // np.maximum(each, 1), NEVER)


@dataclass(frozen=True)
class Costs:
    """One stage of a lane in each of A steps, ns: [A, n, n], and send [A, 1, 1].

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


def _ways(steps: Sequence[Step], costs: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Shortest ways from the start to every (state, layer), and from there to the end."""
    size = costs[0].shape[-1]
    start, end = np.full((1, size), NEVER), np.full((steps[-1].num_targets, size), NEVER)
    start[:, 0], end[:, -1] = 0, 0
    before, after = [start], [end]
    for step, cost in zip(steps, costs, strict=True):
        best = np.full((step.num_targets, size), NEVER)
        np.minimum.at(best, step.target, (before[-1][step.source][:, :, None] + cost).min(axis=1))
        before.append(best)
    for step, cost in zip(reversed(steps), reversed(costs), strict=True):
        best = np.full((int(step.source.max()) + 1, size), NEVER)
        np.minimum.at(best, step.source, (after[-1][step.target][:, None, :] + cost).min(axis=2))
        after.append(best)
    return before, after[::-1]


class Refutation:
    """The question for one shape; n = L + 1."""

    def __init__(self, prover: Prover, shape: Shape) -> None:
        self.shape, self.instance = shape, prover.instance
        self.graph = OrderGraph(prover.instance, shape)
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

    def refutes(self, below_ns: int) -> bool:
        """True only if no plan of the shape has a step time below this."""
        return self.graph.steps is not None and self.remaining(self.everything(), below_ns) is None

    def remaining(self, left: list[Mask], below_ns: int) -> list[Mask] | None:
        """What plans with a step time below this may use among `left`; None if there are none."""
        before = -1
        while before != (count := sum(int(mask.sum()) for mask in left)):
            if not all(mask.any() for mask in left):
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

    def everything(self) -> list[Mask]:
        """Per stage [A, n, n] layers with enough blocks; the first and the last in their place."""
        left = [np.repeat(self.blocks[None], len(step.source), axis=0) for step in self.steps]
        left[0][:, 1:] = False
        left[-1][:, :, :-1] = False
        return left

    def _kept(self, left: list[Mask], limit: int) -> list[Mask]:
        """What is not struck out for plans within `limit`."""
        whole = [np.zeros(mask.shape, dtype=np.int64) for mask in left]
        kept = [mask.copy() for mask in left]
        for r, count in self.lanes.items():
            for k, most in enumerate(self.most(left, r, limit)):
                kept[k] &= most >= self.least
                whole[k] += count * np.minimum(most, self.needed)
        return [mask & (total >= self.needed) for mask, total in zip(kept, whole, strict=True)]

    def _costs(self, k: int, r: int) -> Costs:
        steps = self.steps
        step = steps[k]
        groups, send = step.group[:, r], step.send[:, r, None, None]
        forward, backward = self.forward[groups], self.backward[groups]
        ahead, behind = forward, backward
        if self.instance.search.blocking_sends:
            behind = backward + send
            if k + 1 < len(steps):
                least = np.full(step.num_targets, NEVER)
                np.minimum.at(least, steps[k + 1].source, steps[k + 1].send[:, r])
                ahead = forward + least[step.target, None, None]
        tail = np.stack(self.graph.tails)[step.tail]
        return Costs(forward, backward, ahead, behind, send, tail)

    def most(self, left: list[Mask], r: int, limit: int) -> Iterator[Array]:
        """Per stage [A, n, n] most micro-batches of a replica of lane r within `limit`."""
        steps = self.steps
        costs = [self._costs(k, r) for k in range(len(steps))]
        latency = [one.work + 2 * one.send for one in costs]
        latency[0] = latency[0] + costs[0].tail
        masked = [np.where(m, cost, NEVER) for m, cost in zip(left, latency, strict=True)]
        down = [np.where(m, c.forward + c.send, NEVER) for m, c in zip(left, costs, strict=True)]
        before, after = _ways(steps, masked)
        arrival, _ = _ways(steps, down)
        for k, (step, one) in enumerate(zip(steps, costs, strict=True)):
            onward = after[k + 1][step.target][:, None, :]
            room = limit - before[k][step.source][:, :, None] - latency[k] - onward
            work = one.ahead + one.behind
            busy = limit - arrival[k][step.source][:, :, None] - one.send - one.tail
            most = np.minimum(self._by_bottleneck(one, k, room) + 1, _quotient(busy, work))
            if self.shape.schedule != "gpipe":
                most = np.minimum(most, self._by_rounds(one, k, room, onward) + 1)
            most = np.minimum(most, self._by_memory(k, self.held[step.group[:, r]]))
            yield np.where(left[k] & (room >= 0) & (busy >= 0), most, 0)

    def _by_bottleneck(self, one: Costs, k: int, room: Array) -> Array:
        """Largest m - 1 by (1), `room` above the latency."""
        work, least = one.ahead + one.behind, np.minimum(one.ahead, one.behind)
        warm = 0 if self.shape.schedule == "gpipe" else self.shape.pp - 1 - k
        few = _quotient(room, work - least)
        return np.where(few < warm, few, _quotient(room + warm * least, work))

    def _by_rounds(self, one: Costs, k: int, room: Array, onward: Array) -> Array:
        """Largest m - 1 by (2): in the first round after which s - 1 operations do not fit."""
        length, each = self.shape.pp - k, np.maximum(one.forward, one.backward)
        turn, room = one.work + onward, np.maximum(room, 0)
        slack = room - (length - 1) * each
        rounds = np.where(slack < 0, 0, _quotient(slack, turn) + 1)
        rounds = np.minimum(rounds, NEVER // length)
        spare = room - rounds * turn
        inside = np.minimum(_quotient(spare, each), length - 1)
        return rounds * length + np.where(spare < 0, -1, inside)

    def _by_memory(self, k: int, held: Array) -> Array:
        """Largest m by (4), with room for `held` micro-batches."""
        if self.shape.schedule == "gpipe":
            return held
        return np.where(held >= self.shape.pp - k, NEVER, held)
