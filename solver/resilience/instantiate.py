"""The best pipelines for some nodes and their micro-batches: exact, by bisection and a knapsack.

A step of T is long enough iff pipelines can be chosen whose capacities, the micro-batches that
each can run in T, add up to all of them. That is a knapsack over nodes: the most capacity for every
number of nodes and of pipelines. Capacities grow with T, so bisection finds the least T.
"""

from collections.abc import Sequence
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
    """Pipelines of these capacities, those within `step_ns`; as many as the levels say."""

    capacities: tuple[int, ...]
    levels: range
    step_ns: int


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

    def _enough(self, capacities: tuple[int, ...], numbers: Sequence[int]) -> bool:
        """Whether one of these numbers of pipelines takes all micro-batches."""
        most = self._table(capacities)[self._ends][:, numbers].max(initial=_NOTHING)
        return bool(most >= self.problem.micro_batches)

    def _capacities(self, step_ns: int, allowed: Sequence[bool]) -> tuple[int, ...]:
        """Of the kinds that are allowed; 0 for others."""
        pairs = zip(self.problem.kinds, allowed, strict=True)
        return tuple(kind.capacity(step_ns) if able else 0 for kind, able in pairs)

    def least(
        self, numbers: range, latest_ns: int, allowed: Sequence[bool] | None = None
    ) -> _Choice | None:
        """The choice with least step up to `latest_ns`; None if there is none.

        numbers: of pipelines, that may be chosen. allowed: kinds that may be; None for all.
        """
        able = allowed or [True] * len(self.problem.kinds)
        levels = self._levels(numbers)
        low, high = self.problem.earliest_ns, latest_ns
        if high < low or not self._enough(self._capacities(high, able), levels):
            return None
        while low < high:
            middle = (low + high) // 2
            if self._enough(self._capacities(middle, able), levels):
                high = middle
            else:
                low = middle + 1
        return _Choice(self._capacities(low, able), levels, low)

    def _levels(self, numbers: range) -> range:
        """Levels of the table that stand for numbers of pipelines."""
        return range(numbers.start, min(numbers.stop, self._knapsack.levels))

    def may_improve(self, pairs: Sequence[tuple[int, int]], total_ns: int) -> bool:
        """Whether a pair (c, x) may give less than `total_ns`; all at once, so a yes is no proof.

        Pairs are in ascending order: the least c bounds the step for all, and a kind is allowed
        that is allowed by any.
        """
        allowed = [
            any(kind.exchange_ns(x) <= exchange_ns for exchange_ns, x in pairs)
            for kind in self.problem.kinds
        ]
        capacities = self._capacities(total_ns - pairs[0][0] - 1, allowed)
        return self._enough(capacities, sorted({x for _, x in pairs}))

    def instantiation(self, choice: _Choice) -> Instantiation:
        """The choice with fewest idle nodes, and then most capacity to spare."""
        table = self._table(choice.capacities)[:, choice.levels]
        enough = (table[self._ends] >= self.problem.micro_batches).any(axis=1)
        state = int(self._ends[np.flatnonzero(enough)[0]])
        level = choice.levels[int(table[state].argmax())]
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
    takes then, the least step of x pipelines of the kinds that take no more than c. Pairs (x, c)
    that allow the same kinds go together, and by ascending c, until c and the least step of all
    leave nothing better; many are left at once (`may_improve`).
    """
    search = _Search(problem)
    numbers = range(problem.faults + 1, problem.most_pipelines + 1)
    best = search.least(numbers, problem.latest_ns) if numbers else None
    if best is None:
        return None
    found = search.instantiation(best)
    if not problem.has_exchange:
        return found
    pairs = sorted({(kind.exchange_ns(x), x) for kind in problem.kinds for x in numbers})
    together: dict[tuple[bool, ...], list[tuple[int, int]]] = {}
    for exchange_ns, x in pairs:
        allowed = tuple(kind.exchange_ns(x) <= exchange_ns for kind in problem.kinds)
        together.setdefault(allowed, []).append((exchange_ns, x))
    for own in together.values():
        found = _improved(search, own, best.step_ns, found)
    return found


def _improved(
    search: _Search, pairs: Sequence[tuple[int, int]], least_ns: int, found: Instantiation
) -> Instantiation:
    """The best of `found` and of what the pairs give; no pipelines step in less than `least_ns`."""
    problem = search.problem
    total_ns, (exchange_ns, x) = found.step_ns(problem), pairs[0]
    if least_ns + exchange_ns >= total_ns or not search.may_improve(pairs, total_ns):
        return found
    if len(pairs) > 1:
        middle = len(pairs) // 2
        for half in (pairs[:middle], pairs[middle:]):
            found = _improved(search, half, least_ns, found)
        return found
    allowed = [kind.exchange_ns(x) <= exchange_ns for kind in problem.kinds]
    better = search.least(range(x, x + 1), total_ns - exchange_ns - 1, allowed)
    return found if better is None else search.instantiation(better)
