"""Shortest ways through the layered graph of choices, and the cuts that they are held against."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formulations.schedules import PathCounts
from solver.verify.lengths import NEVER, Costs
from solver.verify.orders import Step

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]


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

    @staticmethod
    def joined(parts: Sequence["Choices"]) -> "Choices":
        """Those of any of these, once each."""
        rows = [np.stack([part.step, part.first, part.last]) for part in parts]
        return Choices(*np.unique(np.concatenate(rows, axis=1), axis=1))


Left = list[Choices]


@dataclass(frozen=True)
class Cut:
    """A path to the end of a stage, with m micro-batches.

    visits: [3, p] forwards, backwards, weight gradients. messages: [p] of both ways between a stage
    and the one before.
    """

    micro_batches: int
    visits: Array
    messages: Array
    stage: int

    @classmethod
    def of(cls, p: int, blocking: bool, micro_batches: int, path: PathCounts, stage: int) -> "Cut":
        """A path of the schedule's graph of p devices; blocking sends are counted as operations."""
        visits = np.zeros((3, p), dtype=np.int64)
        visits[: len(path.weights) // p] = path.weights.reshape(-1, p)
        messages = np.zeros(p, dtype=np.int64)
        messages[1:] = path.transfers[:-1].reshape(2, p - 1).sum(axis=0)
        if blocking:
            messages[1:] = visits[0, :-1] + visits[1, 1:]
        return cls(micro_batches, visits, messages, stage)

    def lengths(self, costs: Sequence[Costs]) -> list[Array]:
        """Per stage [M] what the choices add."""
        found = []
        for k, one in enumerate(costs):
            forward, backward, weight = self.visits[:, k].tolist()
            length = forward * one.forward + backward * one.backward + weight * one.weight
            length = length + int(self.messages[k]) * one.send
            found.append(length + one.tail if k == self.stage else length)
        return found


class Ways:
    """Ways through what is left; nodes are a state and a layer."""

    def __init__(self, steps: Sequence[Step], left: Left, size: int) -> None:
        self.steps, self.size = steps, size
        #: per stage the nodes [M] before and after every choice, as numbers
        self.nodes = [
            (step.source[c.step] * size + c.first, step.target[c.step] * size + c.last)
            for step, c in zip(steps, left, strict=True)
        ]

    def before(self, costs: Sequence[Array]) -> list[Array]:
        """Shortest ways from the start to every node before each stage."""
        found = [np.full(self.size, NEVER)]
        found[0][0] = 0
        for step, (source, target), cost in zip(self.steps, self.nodes, costs, strict=True):
            best = np.full(step.num_targets * self.size, NEVER)
            np.minimum.at(best, target, found[-1][source] + cost)
            found.append(best)
        return found

    def after(self, costs: Sequence[Array]) -> list[Array]:
        """Shortest ways from every node after each stage to the end."""
        found = [np.zeros(self.steps[-1].num_targets * self.size, dtype=np.int64)]
        for k in range(len(self.nodes) - 1, 0, -1):
            source, target = self.nodes[k]
            best = np.full(self.steps[k - 1].num_targets * self.size, NEVER)
            np.minimum.at(best, source, found[-1][target] + costs[k])
            found.append(best)
        return found[::-1]

    def most_by(
        self, cuts: Iterable[Cut], costs: Sequence[Costs], limit: int, upper: int
    ) -> list[Array]:
        """Per stage [M] most micro-batches, `upper` at most, that no cut rules out."""
        most = [np.full(len(source), upper) for source, _ in self.nodes]
        for cut in cuts:
            lengths = cut.lengths(costs)
            before, after = self.before(lengths), self.after(lengths)
            for k, (source, target) in enumerate(self.nodes):
                long = before[k][source] + lengths[k] + after[k][target] > limit
                most[k][long] = np.minimum(most[k][long], cut.micro_batches - 1)
        return most
