"""Lanes of random choices, and all their ways."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from formulations.schedules.graph import schedule_graph
from solver.simulate import Times, simulate
from solver.verify.orders import Step
from solver.verify.path_lengths import Choices, Costs, LaneWays, Member, Remaining, members_of

Array = NDArray[np.int64]


class Lane:
    """A lane of random choices, six for each of up to five stages, with all ways to combine them.

    All meet at one or two nodes between stages, where several labels stay: quick later stages
    against quick windows. Takes the place of `Stages` for `by_windows`.
    """

    even, config = True, SimpleNamespace(schedule="1f1b")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = np.random.default_rng(seed)
        p, size, num_nodes = int(rng.integers(2, 6)), 6, int(rng.integers(1, 3))
        self.least = int(rng.integers(p + 1, 4 * p))
        rows, self.steps, self.costs = np.arange(size), list[Step](), list[Costs]()
        for k in range(p):
            source, target = rng.integers(num_nodes, size=(2, size))
            none = np.zeros((size, 1, 1), dtype=np.int64)
            at = source * bool(k)
            self.steps.append(Step(at, target, none, none, none, rows, ((),) * size, num_nodes))
            forward, backward = rng.integers(1, 30, size=(2, size)) * 10**6
            send = rng.integers(0, 12, size=size) * 10**6 * bool(k)
            times = np.stack([forward, backward, 0 * forward, send])
            self.costs.append(Costs(times, rng.integers(0, 5, size=size) * 10**6))
        self.choices = [Choices(rows, 0 * rows, 0 * rows, rows) for _ in range(p)]
        every = np.indices((size,) * p).reshape(p, -1)
        pairs = pairwise(zip(self.steps, every, strict=True))
        meets = [a.target[i] == b.source[j] for (a, i), (b, j) in pairs]
        self.ways = every[:, np.all(meets, axis=0)]

    def members(self, k: int) -> list[Member]:
        return members_of("1f1b", len(self.steps), k, np.array(self.least))

    def lane(self, remaining: Remaining, _: int) -> LaneWays:
        pairs = zip(self.costs, remaining, strict=True)
        costs = [Costs(stage.times[:, c.row], stage.tail[c.row]) for stage, c in pairs]
        return LaneWays(self.steps, remaining, costs, costs[0].tail, 1)

    def step_ns(self) -> Array:
        graph = schedule_graph("1f1b", len(self.steps), self.least)
        pairs = list(zip(self.costs, self.ways, strict=True))
        forward, backward, _, send = np.stack([c.times[:, w] for c, w in pairs], axis=1)
        ready = simulate(graph, Times(forward, backward, send[1:]))[graph.last]
        return np.asarray((ready + np.stack([c.tail[w] for c, w in pairs])).max(axis=0))
