"""What is chosen costs: lower bounds of a cost of which one alternative holds, without products.

Rows of alternatives that do not hold give way by a Big-M; `big_m` has the proofs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic

import numpy as np

from formulations.costs.tables import Array
from formulations.fixed import device_sum
from formulations.milp.big_m import Key, choice_slack, excess, pair_slack
from formulations.milp.parts import Split
from formulations.milp.terms import Linear, Literal, weighted


@dataclass(frozen=True)
class Costs(Generic[Key]):
    """Costs of alternatives. more(a, b): most by which a can exceed b. most: largest values."""

    values: Mapping[Key, Linear]
    more: Callable[[Key, Key], int]
    most: Mapping[Key, int]

    @property
    def largest(self) -> int:
        """No alternative costs more."""
        return max(0, *self.most.values())


def of_numbers(times: Mapping[Key, int]) -> Costs[Key]:
    """Alternatives that cost given numbers."""
    return Costs(times, lambda one, other: times[one] - times[other], times)


def of_layers(split: Split, stages: Iterable[int], times: Mapping[Key, Array]) -> Costs[Key]:
    """Alternatives that cost a sum of values [L] >= 0 over the layers of some stages."""
    known = list(stages)
    none = np.zeros_like(next(iter(times.values())))

    def more(one: Array, other: Array) -> int:
        return sum(excess(split.intervals(stage), one, other) for stage in known)

    return Costs(
        {key: device_sum(split, known, values) for key, values in times.items()},
        lambda one, other: more(times[one], times[other]),
        {key: more(values, none) for key, values in times.items()},
    )


def chosen(costs: Costs[Key], literals: Mapping[Key, Literal]) -> list[Linear]:
    """Terms of which the largest is the cost of the alternative whose literal is 1."""
    if all(isinstance(costs.values[key], int) for key in literals):
        return [weighted([int(costs.values[key]) for key in literals], literals.values())]
    return [
        weighted([1, -1], [costs.values[key], choice_slack(key, literals, costs.more)])
        for key in literals
    ]


def chosen_pair(
    costs: Costs[tuple[Key, int]],
    firsts: Mapping[Key, Literal],
    seconds: Mapping[int, Literal],
    holds: Literal = 1,
) -> list[Linear]:
    """The same for alternatives of two choices at once; none is above 0 unless `holds` is 1.

    Proof of the last. A row is at most the cost of the alternatives that hold: what it gives way
    is at least what its own exceed them by. So the largest cost is enough to take it back to 0.
    """
    keys = [(first, second) for first in firsts for second in seconds]
    most = max(costs.most[key] for key in keys)
    terms = []
    for key in keys:
        if costs.most[key]:
            slack = pair_slack(*key, firsts, seconds, costs.more)
            terms.append(weighted([1, -1, most, -most], [costs.values[key], slack, holds, 1]))
    return terms
