"""Shortest ways through the layered graph of choices."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.verify.families import NEVER
from solver.verify.orders import Step

Array = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Choices:
    """M ways to run one device: by a step of the graph [M], layers [first, last) [M].

    own: [M] what of the device's layers is in which chunk, as a row of `Stages.sizes`. With several
    chunks `first` counts the layers of all chunks of the devices before.
    """

    step: Array
    first: Array
    last: Array
    own: Array

    def __len__(self) -> int:
        return len(self.step)

    def take(self, keep: Mask) -> "Choices":
        """Some of them."""
        return Choices(self.step[keep], self.first[keep], self.last[keep], self.own[keep])

    @staticmethod
    def joined(parts: Sequence["Choices"]) -> "Choices":
        """Those of any of these, once each."""
        rows = [np.stack([part.step, part.first, part.last, part.own]) for part in parts]
        return Choices(*np.unique(np.concatenate(rows, axis=1), axis=1))


Left = list[Choices]


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
