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
    saturated = not problem.has_exchange and problem.most_pipelines < problem.micro_batches
    levels = problem.faults + 2 if saturated else problem.most_pipelines + 1
    return _Knapsack(problem, np.stack(columns, axis=1), levels, saturated)


@dataclass(frozen=True)
class _Choice:
    """Pipelines that end within `step_ns`: these capacities, `first` to `last` pipelines."""

    step_ns: int
    capacities: tuple[int, ...]
    first: int
    last: int


class _Search:
    """Least steps for chosen kinds and numbers of pipelines; tables are kept."""

    def __init__(self, problem: InstantiationProblem) -> None:
        self.problem = problem
        self._knapsack = _knapsack(problem)
        self._ends = self._knapsack.ends()
        self._tables: dict[tuple[int, ...], Array] = {}

    def _table(self, capacities: tuple[int, ...]) -> Array:
        if capacities not in self._tables:
            self._tables[capacities] = self._knapsack.most(np.array(capacities, dtype=np.int64))
        return self._tables[capacities]

    def _capacities(self, step_ns: int, largest_exchange_ns: int, last: int) -> tuple[int, ...]:
        """Of the kinds whose exchange is no longer; 0 for others."""
        return tuple(
            kind.capacity(step_ns) if kind.exchange_ns(last) <= largest_exchange_ns else 0
            for kind in self.problem.kinds
        )

    def least(
        self, first: int, last: int, latest_ns: int, largest_exchange_ns: int
    ) -> _Choice | None:
        """The choice with least step up to `latest_ns`; None if there is none.

        Of kinds whose exchange among `last` pipelines takes no more than `largest_exchange_ns`.
        """

        def enough(step_ns: int) -> bool:
            table = self._table(self._capacities(step_ns, largest_exchange_ns, last))
            most = table[self._ends, first : last + 1].max(initial=_NOTHING)
            return bool(most >= self.problem.micro_batches)

        low, high = self.problem.earliest_ns, latest_ns
        if high < low or not enough(high):
            return None
        while low < high:
            middle = (low + high) // 2
            if enough(middle):
                high = middle
            else:
                low = middle + 1
        return _Choice(low, self._capacities(low, largest_exchange_ns, last), first, last)

    def instantiation(self, choice: _Choice) -> Instantiation:
        """The choice with fewest idle nodes, and then most capacity to spare."""
        table = self._table(choice.capacities)[:, choice.first : choice.last + 1]
        enough = (table[self._ends] >= self.problem.micro_batches).any(axis=1)
        state = int(self._ends[np.flatnonzero(enough)[0]])
        level = choice.first + int(table[state].argmax())
        capacities = np.array(choice.capacities, dtype=np.int64)
        whole = self._table(choice.capacities)
        kinds = sorted(self._knapsack.chosen(whole, capacities, state, level))
        times = [self.problem.kinds[i].times_ns for i in kinds]
        own: list[list[int]] = [[] for _ in self.problem.kinds]
        for i, share in zip(kinds, shortest(times, self.problem.micro_batches), strict=True):
            own[i].append(share)
        return Instantiation(tuple(tuple(sorted(one, reverse=True)) for one in own))


def instantiate(problem: InstantiationProblem) -> Instantiation | None:
    """Pipelines and shares with the shortest step; None if there are none.

    `problem` has a kind at least. Of equally good ones those with fewest idle nodes, and then most
    capacity to spare, as far as one knapsack has them.

    With an exchange of gradients: for every number x of pipelines and every time c that some kind
    takes then, the least step of x pipelines of the kinds that take no more than c; pairs (x, c) by
    ascending c, until c and the least step of all leave nothing better.
    """
    search = _Search(problem)
    first, last = problem.faults + 1, problem.most_pipelines
    largest = max((max(kind.exchanges_ns, default=0) for kind in problem.kinds), default=0)
    best = None if first > last else search.least(first, last, problem.latest_ns, largest)
    if best is None:
        return None
    found = search.instantiation(best)
    if not problem.has_exchange:
        return found
    least_ns, total_ns = best.step_ns, found.step_ns(problem)
    pairs = {(kind.exchange_ns(x), x) for kind in problem.kinds for x in range(first, last + 1)}
    for exchange_ns, x in sorted(pairs):
        if least_ns + exchange_ns >= total_ns:
            break
        better = search.least(x, x, total_ns - exchange_ns - 1, exchange_ns)
        if better is not None:
            found = search.instantiation(better)
            total_ns = found.step_ns(problem)
    return found
