"""Every Big-M of the MILP models: by how much a row must give way when it does not apply.

A stage can only be one of few runs of layers: `Intervals`, rows (start, end), which a split hands
out per stage. What one choice costs more than another is the maximum over these runs, not a sum
over all layers; it may be negative, and then the row is all the tighter.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pulp

from formulations.costs.tables import Array
from formulations.milp.terms import Linear, Literal, weighted

Intervals = Array  #: [N, 2] starts and ends that a stage may have, ascending

Key = TypeVar("Key", bound=Hashable)


def interval_sums(intervals: Intervals, values: Array) -> Array:
    """[N] sum of `values` [L] over each run of layers."""
    before = np.concatenate([[0], values.cumsum()])
    sums: Array = before[intervals[:, 1]] - before[intervals[:, 0]]
    return sums


def excess(intervals: Intervals, first: Array, second: Array) -> int:
    """Most by which a stage's sum of `first` [L] can exceed its sum of `second` [L].

    The least M with sum(first) - M <= sum(second) for every run that the stage may be. 0 if it
    may be none, since nothing has to give way then.
    """
    sums = interval_sums(intervals, first - second)
    return int(sums.max()) if len(sums) else 0


def choice_slack(
    key: Key, literals: Mapping[Key, Literal], more: Callable[[Key, Key], int]
) -> Linear:
    """What the row of option `key` gives way when another option holds; exactly one does.

    `more(a, b)`: most by which the term of a exceeds that of b.
    """
    others = [other for other in literals if other != key]
    return weighted([more(key, other) for other in others], [literals[o] for o in others])


def not_chosen(most: int, literal: Literal) -> Linear:
    """What a row of a term >= 0, which is never above `most`, gives way unless the literal is 1."""
    return weighted([most, -most], [1, literal])


def pair_slack(
    first: Key,
    second: int,
    firsts: Mapping[Key, Literal],
    seconds: Mapping[int, Literal],
    more: Callable[[tuple[Key, int], tuple[Key, int]], int],
) -> Linear:
    """The same for terms of two choices at once, of which exactly one each holds.

    Proof. With (f, s) in place of (first, second), going there over (f, second):
    term(first, second) - term(f, s) <= more((first, second), (f, second))
    + max over g of more((g, second), (g, s)).
    """
    along = choice_slack(first, firsts, lambda one, other: more((one, second), (other, second)))
    across = choice_slack(
        second, seconds, lambda one, other: max(more((key, one), (key, other)) for key in firsts)
    )
    return weighted([1, 1], [along, across])


def longest_path(stages: Sequence[tuple[Intervals, Sequence[Array]]], num_layers: int) -> int:
    """Largest total over all splits of the stages' sums; a stage takes its largest column.

    `stages`: runs that it may be, and the columns [L] of the groups that may own it. The least M
    by which a path of these weights can be taken back to 0. O(p L^2) steps.
    """
    best = np.full(num_layers + 1, -1, dtype=np.int64)
    best[0] = 0
    for intervals, columns in stages:
        sums = np.max([interval_sums(intervals, column) for column in columns], axis=0)
        reached = best[intervals[:, 0]]
        following = np.full_like(best, -1)
        np.maximum.at(following, intervals[:, 1], np.where(reached < 0, -1, reached + sums))
        best = following
    return max(0, int(best[-1]))


def largest_value(term: Linear) -> int:
    """Largest value that the bounds of its variables leave a term of positive coefficients."""
    if isinstance(term, int):
        return term
    if isinstance(term, pulp.LpVariable):
        return int(term.upBound)
    return int(term.constant + sum(n * variable.upBound for variable, n in term.items()))
