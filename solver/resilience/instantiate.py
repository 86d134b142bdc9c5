"""The best pipelines for some nodes and their micro-batches: exact, by bisection and a knapsack.

A step of T is long enough iff pipelines can be chosen whose capacities, the micro-batches that
each can run in T, add up to all of them. That is a knapsack over nodes: the most capacity for every
number of nodes and of pipelines. Capacities grow with T, so bisection finds the least T.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from formulations.pipelines import Instantiation, InstantiationProblem
from solver.resilience.distribution import shortest

Array = NDArray[np.int64]

#: Capacity of what cannot be; far below any, and no sum of two overflows.
_NOTHING = -(1 << 60)


@dataclass(frozen=True)
class _Knapsack:
    """States are numbers of nodes per group, in mixed radix, and of pipelines.

    before: [states, kinds] the state without one pipeline of the kind; `states` if there is none.
    levels: pipelines 0, 1, .., levels - 1; if `saturated`, the last one stands for all above too.
    """

    problem: InstantiationProblem
    before: Array
    levels: int
    saturated: bool

    def most(self, capacities: Array) -> Array:
        """[states + 1, levels] most capacity of exactly these nodes and pipelines."""
        able = np.flatnonzero(capacities > 0)
        gain = capacities[able, None]
        table = np.full((len(self.before) + 1, self.levels), _NOTHING, dtype=np.int64)
        table[0, 0] = 0
        for state, before in enumerate(self.before[1:, able], start=1):
            best = (table[before] + gain).max(axis=0, initial=_NOTHING)
            table[state, 1:] = best[:-1]
            if self.saturated:
                table[state, -1] = max(best[-2:])
        return table

    def ends(self) -> Array:
        """States that may be chosen, those with most nodes first."""
        states = np.array(list(product(*(range(n + 1) for n in self.problem.available))))
        if self.problem.all_nodes:
            return np.array([len(states) - 1])
        order: Array = np.argsort(-states.sum(axis=1), kind="stable")
        return order

    def chosen(self, table: Array, capacities: Array, state: int, level: int) -> list[int]:
        """Kinds of the pipelines that make an entry of the table."""
        kinds = list[int]()
        while state:
            steps = (
                (i, int(before), below)
                for i, before in enumerate(self.before[state])
                for below in {level - 1, level if self._stays(level) else level - 1}
                if capacities[i] > 0
                and table[before, below] > _NOTHING // 2
                and table[before, below] + capacities[i] == table[state, level]
            )
            kind, state, level = next(steps)
            kinds.append(kind)
        return kinds

    def _stays(self, level: int) -> bool:
        return self.saturated and level == self.levels - 1


def _knapsack(problem: InstantiationProblem) -> _Knapsack:
    sizes = [n + 1 for n in problem.available]
    states = np.array(list(product(*map(range, sizes))), dtype=np.int64)
    strides = np.array([int(np.prod(sizes[j + 1 :])) for j in range(len(sizes))], dtype=np.int64)
    columns = [
        np.where((states >= kind.nodes).all(axis=1), (states - kind.nodes) @ strides, len(states))
        for kind in problem.kinds
    ]
    least = min(sum(kind.nodes) for kind in problem.kinds)
    saturated = sum(problem.available) // least <= problem.micro_batches
    levels = problem.faults + 2 if saturated else problem.micro_batches + 1
    return _Knapsack(problem, np.stack(columns, axis=1), levels, saturated)


def instantiate(problem: InstantiationProblem) -> Instantiation | None:
    """Pipelines and shares with the shortest longest step; None if there are none.

    `problem` has a kind at least. Of equally good ones those with fewest idle nodes, and then most
    capacity to spare.
    """
    knapsack = _knapsack(problem)
    ends = knapsack.ends()
    known: dict[tuple[int, ...], Array | None] = {}

    def table(step_ns: int) -> Array | None:
        capacities = tuple(kind.capacity(step_ns) for kind in problem.kinds)
        if capacities not in known:
            found = knapsack.most(np.array(capacities, dtype=np.int64))
            enough = found[ends, problem.faults + 1 :].max(initial=_NOTHING)
            known[capacities] = found if enough >= problem.micro_batches else None
        return known[capacities]

    low, high = problem.earliest_ns, problem.latest_ns
    if table(high) is None:
        return None
    while low < high:
        middle = (low + high) // 2
        if table(middle) is None:
            low = middle + 1
        else:
            high = middle
    found = table(low)
    assert found is not None
    return _instantiation(knapsack, found, ends, low)


def _instantiation(knapsack: _Knapsack, table: Array, ends: Array, step_ns: int) -> Instantiation:
    problem, first = knapsack.problem, knapsack.problem.faults + 1
    enough = (table[ends, first:] >= problem.micro_batches).any(axis=1)
    state = int(ends[np.flatnonzero(enough)[0]])
    level = first + int(table[state, first:].argmax())
    capacities = np.array([kind.capacity(step_ns) for kind in problem.kinds], dtype=np.int64)
    kinds = sorted(knapsack.chosen(table, capacities, state, level))
    shares = shortest([problem.kinds[i].times_ns for i in kinds], problem.micro_batches)
    own: list[list[int]] = [[] for _ in problem.kinds]
    for i, share in zip(kinds, shares, strict=True):
        own[i].append(share)
    return Instantiation(tuple(tuple(sorted(one, reverse=True)) for one in own))
