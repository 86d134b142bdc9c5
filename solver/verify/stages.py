"""The stages of one shape over some node orders: what they cost, how much they can do at most."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from formulations.plan import Shape
from formulations.schedules import SCHEDULES, in_flight
from solver.verify.bounds import Prover
from solver.verify.families import Member, families
from solver.verify.lengths import NEVER, Costs, StageLengths
from solver.verify.orders import OrderGraph
from solver.verify.ways import Left, Ways

Array = NDArray[np.int64]


@dataclass(frozen=True)
class LaneWays:
    """Ways of one lane through what is left; per stage costs, and in ns [M] what a way adds.

    through: there and back. latency: the same, with all that follows the last backward of stage 0.
    """

    costs: list[Costs]
    ways: Ways
    through: list[Array]
    latency: list[Array]

    def lengths(self, limit: int) -> Iterator[StageLengths]:
        """The choices of every stage, with shortest ways through the others."""
        after = self.ways.after(self.through)
        there = self.ways.before([one.forward + one.send for one in self.costs])
        back = self.ways.before(self.latency)
        for k, ((source, target), one) in enumerate(zip(self.ways.nodes, self.costs, strict=True)):
            yield StageLengths(
                own=one,
                back=back[k][source],
                there=there[k][source],
                after=after[k][target],
                is_first=k == 0,
                is_last=k + 1 == len(self.costs),
                limit=limit,
            )


class Stages:
    """What all questions about one shape share, by a graph of orders; n = L + 1.

    even: whether shares are, `least` the micro-batches of a replica then, and 1 else.
    """

    def __init__(self, prover: Prover, shape: Shape, graph: OrderGraph) -> None:
        self.prover, self.shape, self.instance = prover, shape, prover.instance
        self.graph = graph
        self.total = prover.instance.workload.global_batch // shape.micro_batch
        self.even = shape.dp == 1 or prover.instance.search.micro_batches == "even"
        self.least = self.total // shape.dp if self.even else 1
        self._forward, _, self._weight = prover.stage_times(shape)
        self.able = lru_cache(maxsize=None)(self._able)

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
        """Per stage, for the m of even shares."""
        return families(self.shape.schedule, self.shape.pp, self.least)

    @cached_property
    def rest(self) -> int:
        """Weight gradients at the end on stage 0, on all ways that come back there.

        If they are split off, those of the last micro-batch at least.
        """
        if not self.even:
            return int(SCHEDULES[self.shape.schedule].splits_backward)
        return min((one.rest for own in self.members[1:] for one in own if one.back), default=0)

    @cached_property
    def held(self) -> list[Array]:
        """Per stage [J, n, n] largest number of micro-batches that memory holds."""
        shape, prover = self.shape, self.prover
        held = None if self.even else prover.recomputation(shape).most_held
        found = []
        for k in range(shape.pp):
            if held is None:
                found.append(np.where(prover.extra(shape, k, self.least) < NEVER, NEVER, 0))
                continue
            prefixes = SCHEDULES[shape.schedule].prefixes
            most = in_flight(shape.schedule, shape.pp, k, NEVER) if prefixes else 1
            found.append(np.where(held >= most, NEVER, held))
        return found

    @cached_property
    def _backward(self) -> list[Array]:
        """Per stage [J, n, n] ns, at least."""
        return [self.prover.backward_ns(self.shape, k, self.least) for k in range(self.shape.pp)]

    def _able(self, k: int, limit: int) -> Array:
        """[J, n, n] most micro-batches of stage k, by memory and by what is busy within the limit.

        0 where layers may not be a stage.
        """
        work = self._forward + self._backward[k] + self._weight
        busy = np.where(work > 0, limit // np.maximum(work, 1), NEVER)
        mask = self.prover.enough_blocks.copy()
        mask[1 if k == 0 else self.size :] = False
        mask[:, : -1 if k == self.shape.pp - 1 else 0] = False
        able: Array = np.minimum(busy, self.held[k]) * mask
        return able

    @cached_property
    def _tails(self) -> Array:
        """[T, n, n] of the graph."""
        return np.stack(self.graph.tails.whole)

    def lane(self, left: Left, r: int) -> LaneWays:
        """Lane r on what is left."""
        costs = [self.costs(left, k, r) for k in range(len(left))]
        through = [one.through for one in costs]
        first = through[0] + costs[0].tail + self.rest * costs[0].weight
        ways = Ways(self.graph.built, left, self.size)
        return LaneWays(costs, ways, through, [first, *through[1:]])

    def costs(self, left: Left, k: int, r: int) -> Costs:
        """What the choices of stage k cost lane r."""
        steps, choices = self.graph.built, left[k]
        step, layers = steps[k], (choices.first, choices.last)
        groups = step.group[choices.step, r]
        kinds, blocking = self.graph.messages.kind, self.instance.search.blocking_sends
        send = step.send[choices.step, r, kinds[choices.first]]
        onward = np.zeros((step.num_targets, step.send.shape[-1]), dtype=np.int64)
        if blocking and k + 1 < len(steps):
            onward += NEVER
            np.minimum.at(onward, steps[k + 1].source, steps[k + 1].send[:, r])
        return Costs(
            forward=self._forward[groups, *layers],
            backward=self._backward[k][groups, *layers],
            weight=self._weight[groups, *layers],
            send=send,
            onward=onward[step.target[choices.step], kinds[choices.last] * (k + 1 < len(steps))],
            behind=send * blocking,
            tail=self._tails[step.tail[choices.step], *layers] + self._waits(left, k),
        )

    def _waits(self, left: Left, k: int) -> Array | int:
        """[M] what the choices of an outer stage wait for the links of the other one."""
        if not any(self.graph.tails.tied) or k % (len(left) - 1 or 1):
            return 0
        steps = self.graph.built
        own, others = (steps[i].tail[left[i].step] for i in (k, len(left) - 1 - k))
        return self.graph.tails.waits_ns(own, others)
