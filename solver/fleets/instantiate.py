"""Pipelines for some nodes and their micro-batches: the best, exactly, or all by their steps.

The best are found by bisection and a knapsack.

A step of T is long enough iff pipelines can be chosen whose capacities, the micro-batches that
each can run in T, add up to all of them. That is a knapsack over nodes: the most capacity for every
number of nodes and of pipelines. Capacities grow with T, so bisection finds the least T.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import prod
from operator import sub

import numpy as np

from formulations.costs.intervals import Array
from formulations.errors import PlannerError
from formulations.pipelines import Instantiation, InstantiationProblem
from solver.fleets.distribution import shortest

#: Entries of a table, of 8 bytes each.
MOST_ENTRIES = 10**8

#: Choices that are listed.
MOST_LISTED = 5000

#: Capacity of what cannot be; far below any, and no sum of two overflows.
_NOTHING = -(1 << 60)


@dataclass(frozen=True)
class _Choice:
    """Pipelines of these capacities, those within `step_ns`; as many as the levels say."""

    capacities: tuple[int, ...]
    levels: range
    step_ns: int


class _Knapsack:
    """Most capacity for every number of pipelines and of nodes per group, and least steps by it.

    Tables are [levels, n_1 + 1, n_2 + 1, ..] over the nodes n_j of every group, and are kept.
    levels: pipelines 0, 1, .., levels - 1; if `saturated`, the last one stands for all above too.
    """

    def __init__(self, problem: InstantiationProblem) -> None:
        self.problem = problem
        self.saturated = not problem.has_exchange and problem.most_pipelines < problem.micro_batches
        self.levels = problem.faults + 2 if self.saturated else problem.most_pipelines + 1
        self._sizes = tuple(n + 1 for n in problem.available)
        entries = self.levels * prod(self._sizes)
        if entries > MOST_ENTRIES:
            raise PlannerError(
                f"cluster: {' x '.join(map(str, self._sizes))} mixes of nodes times {self.levels} "
                f"numbers of pipelines are {entries:,}; allowed: {MOST_ENTRIES:,}, in fewer node "
                "groups, or with fewer nodes"
            )
        #: [states, groups] nodes that may be used, most of them first
        self._ends = np.array([problem.available])
        if not problem.all_nodes:
            states = np.indices(self._sizes).reshape(len(self._sizes), -1).T
            self._ends = states[np.argsort(-states.sum(axis=1), kind="stable")]
        self._tables: dict[tuple[int, ...], Array] = {}

    def _table(self, capacities: tuple[int, ...]) -> Array:
        """For these capacities of the kinds, pipeline by pipeline; exactly these nodes are used."""
        if capacities in self._tables:
            return self._tables[capacities]
        table = np.full((self.levels, *self._sizes), _NOTHING, dtype=np.int64)
        layer = table[0]
        layer[(0,) * len(self._sizes)] = 0
        usable = [
            (kind.nodes, capacity)
            for kind, capacity in zip(self.problem.kinds, capacities, strict=True)
            if capacity and all(n < size for n, size in zip(kind.nodes, self._sizes, strict=True))
        ]
        for number in range(1, self.problem.most_pipelines + 1):
            before, layer = layer, np.full(self._sizes, _NOTHING, dtype=np.int64)
            for nodes, capacity in usable:  # one more pipeline of a kind
                to = tuple(slice(n, None) for n in nodes)
                start = tuple(slice(s - n) for n, s in zip(nodes, self._sizes, strict=True))
                np.maximum(layer[to], before[start] + capacity, out=layer[to])
            if layer.max() < 0:
                break
            level = min(number, self.levels - 1)
            np.maximum(table[level], layer, out=table[level])
        self._tables[capacities] = table
        return table

    def _at_ends(self, capacities: tuple[int, ...]) -> Array:
        """[levels, ends] of the table."""
        return self._table(capacities)[(slice(None), *self._ends.T)]

    def _capacities(self, step_ns: int, allowed: Sequence[bool]) -> tuple[int, ...]:
        """Of the kinds that are allowed; 0 for others."""
        pairs = zip(self.problem.kinds, allowed, strict=True)
        return tuple(kind.capacity(step_ns) if able else 0 for kind, able in pairs)

    def shortest(
        self, numbers: range, latest_ns: int, allowed: Sequence[bool] | None = None
    ) -> _Choice | None:
        """The choice with least step up to `latest_ns`; None if there is none.

        numbers: of pipelines, that may be chosen. allowed: kinds that may be; None for all.
        """
        able = allowed or [True] * len(self.problem.kinds)
        levels = range(numbers.start, min(numbers.stop, self.levels))

        def enough(step_ns: int) -> bool:
            room = self._at_ends(self._capacities(step_ns, able))[levels].max(initial=_NOTHING)
            return bool(room >= self.problem.micro_batches)

        low, high = self.problem.earliest_ns, latest_ns
        if high < low or not enough(high):
            return None
        low += bisect_left(range(low, high), True, key=enough)
        return _Choice(self._capacities(low, able), levels, low)

    def instantiation(self, choice: _Choice) -> Instantiation:
        """The choice with fewest idle nodes, and then most capacity to spare."""
        room = self._at_ends(choice.capacities)[choice.levels]
        end = int(np.flatnonzero((room >= self.problem.micro_batches).any(axis=0))[0])
        level, nodes = choice.levels[int(room[:, end].argmax())], tuple(self._ends[end].tolist())
        # Back from the entry of the table: a pipeline that it ends with, and the entry without it
        kinds, table = list[int](), self._table(choice.capacities)
        while any(nodes):
            levels = [level - 1, level][: 1 + (self.saturated and level == self.levels - 1)]
            kind, nodes, level = next(
                (i, rest, below)
                for i, capacity in enumerate(choice.capacities)
                for rest in [tuple(np.subtract(nodes, self.problem.kinds[i].nodes).tolist())]
                for below in (levels if capacity and min(rest) >= 0 else ())
                if 0 <= table[(below, *rest)] == table[(level, *nodes)] - capacity
            )
            kinds.append(kind)
        kinds.sort()
        times = [self.problem.kinds[i].times_ns for i in kinds]
        shares = shortest(times, self.problem.micro_batches)
        return Instantiation.of(len(self.problem.kinds), kinds, shares)


def instantiate(problem: InstantiationProblem) -> Instantiation | None:
    """Pipelines and shares with the shortest step; None if there are none.

    `problem` has a kind at least. Of equally good ones those with fewest idle nodes, and then most
    capacity to spare, as far as one knapsack has them.

    With an exchange of gradients: for every number x of pipelines and every time c that some kind
    takes then, the least step of x pipelines of the kinds that take no more than c. By ascending c,
    until c and the least step of all leave nothing better.
    """
    knapsack = _Knapsack(problem)
    numbers = range(problem.faults + 1, problem.most_pipelines + 1)
    shortest_step = knapsack.shortest(numbers, problem.latest_ns) if numbers else None
    if shortest_step is None:
        return None
    best = knapsack.instantiation(shortest_step)
    if not problem.has_exchange:
        return best
    for exchange_ns, x in sorted(
        {(kind.exchange_ns(x), x) for kind in problem.kinds for x in numbers}
    ):
        total_ns = best.step_ns(problem)
        if shortest_step.step_ns + exchange_ns >= total_ns:
            break
        allowed = [kind.exchange_ns(x) <= exchange_ns for kind in problem.kinds]
        better = knapsack.shortest(range(x, x + 1), total_ns - exchange_ns - 1, allowed)
        best = best if better is None else knapsack.instantiation(better)
    return best


@dataclass(frozen=True)
class Choice:
    """Pipelines per kind, and the step with the micro-batches shared out best."""

    counts: tuple[int, ...]
    step_ns: int


def choice(problem: InstantiationProblem, counts: tuple[int, ...]) -> Choice:
    """The choice with its step, as `distribution.shortest`, and exchange."""
    used = [(kind, n) for kind, n in zip(problem.kinds, counts, strict=True) if n]

    def is_enough(step_ns: int) -> bool:
        return sum(n * kind.capacity(step_ns) for kind, n in used) >= problem.micro_batches

    low = max(kind.times_ns[0] for kind, _ in used)
    low += bisect_left(range(low, problem.latest_ns), True, key=is_enough)
    return Choice(counts, low + problem.slowest_exchange_ns(counts))


def suffices(problem: InstantiationProblem, counts: Sequence[int]) -> bool:
    """Whether so many pipelines per kind take all micro-batches and survive the faults."""
    used = [(kind, n) for kind, n in zip(problem.kinds, counts, strict=True) if n]
    room = sum(n * len(kind.times_ns) for kind, n in used)
    able = all(kind.times_ns for kind, _ in used)
    return able and problem.faults < sum(counts) <= problem.micro_batches <= room


def listed(
    problem: InstantiationProblem, longest_ns: int | None, least_ns: int
) -> tuple[list[Choice], int | None]:
    """Choices by their steps, and the step from which some may be missing; None: all are listed.

    longest_ns: steps of interest; None for all. least_ns: the least of all choices. If there are
    too many, those with the shortest steps are listed.
    """
    numbers = range(problem.faults + 1, problem.most_pipelines + 1)
    exchanges = (kind.exchange_ns(x) for kind in problem.kinds for x in numbers)
    exchange_ns = min(exchanges, default=0)  # no fleet takes less for it
    longest = problem.latest_ns if longest_ns is None else longest_ns - exchange_ns
    missing_ns = None
    while True:
        within = list(islice(_within(problem, longest), MOST_LISTED + 1))
        if len(within) <= MOST_LISTED or longest <= least_ns - exchange_ns:
            break
        longest = (longest + least_ns - exchange_ns) // 2
        missing_ns = longest + exchange_ns + 1
    if len(within) > MOST_LISTED:
        missing_ns = least_ns
    choices = (choice(problem, counts) for counts in within)
    return sorted(choices, key=lambda fleet: fleet.step_ns), missing_ns


def _within(problem: InstantiationProblem, step_ns: int) -> Iterator[tuple[int, ...]]:
    """All whose pipelines step in at most `step_ns`; those with more of the first kinds first.

    Depth first, a pipeline at a time, by kinds: those with most micro-batches per node first. A
    branch is left when the rest of the nodes at the best rate of the kinds to come cannot take the
    micro-batches left, or not enough pipelines fit.
    """
    capacities = [kind.capacity(step_ns) for kind in problem.kinds]
    sizes = [sum(kind.nodes) for kind in problem.kinds]
    able = [i for i, capacity in enumerate(capacities) if capacity]
    able.sort(key=lambda i: (-Fraction(capacities[i], sizes[i]), i))
    least = [min(sizes[i] for i in able[at:]) for at in range(len(able))]
    counts = [0] * len(problem.kinds)

    def choices(at: int, free: tuple[int, ...], wanted: int, pipelines: int) -> Iterator[None]:
        rest = sum(free)
        for later, i in enumerate(able[at:], at):
            beyond = wanted * sizes[i] > rest * capacities[i]  # for this kind, and slower ones
            if beyond or pipelines + rest // least[later] <= problem.faults:
                break
            after = tuple(map(sub, free, problem.kinds[i].nodes))
            if min(after) >= 0:
                counts[i] += 1
                yield from choices(later, after, wanted - capacities[i], pipelines + 1)
                counts[i] -= 1
        if wanted <= 0 and problem.faults < pipelines <= problem.micro_batches:
            yield

    for _ in choices(0, problem.available, problem.micro_batches, 0):
        yield tuple(counts)
