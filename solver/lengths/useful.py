"""Which strategies may be worth a switch, and how long their rows should be.

Shorter rows than those that fit make for a shorter fill of a pipeline, and for more of what is once
per row. A strategy is kept with every length of rows with which it is close to the fastest on some
run of classes, reduction of gradients aside; one that is slower everywhere could only be of use
where it is much cheaper to switch to.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from formulations.instance import Instance
from formulations.instance.rows import lengths_of
from formulations.lengths.problem import Atom, Strategy
from formulations.lengths.row_times import PlanRows, plan_rows
from formulations.lengths.strategy_time import NEVER, Numbers, StrategyTimes

#: Of the fastest's time, so much more is close to it.
CLOSE = 0.05
#: Rows are not made shorter than so many tokens.
SHORTEST_ROW = 1024


def useful(instance: Instance, found: Sequence[PlanRows]) -> list[PlanRows]:
    """Those that are close to the fastest on some run of classes, with rows as long as they are.

    Of the lengths of a plan's rows those that are its best ones there.
    """
    least = np.minimum.reduce([_times(instance, one).min(axis=0) for one in found])
    most = np.where(least < NEVER, least * (1 + CLOSE), 0)
    kept = []
    for one in found:
        times = _times(instance, one)
        best = times == times.min(axis=0)
        for halvings in np.flatnonzero((best & (times <= most)).any(axis=(1, 2))).tolist():
            shorter = partial(plan_rows, instance, one.plan, one.strategy.name)
            kept.append(shorter(halvings) if halvings else one)
    return _named(kept)


def _times(instance: Instance, found: PlanRows) -> Numbers:
    """[halvings of its rows, i, j] time of a strategy's rows for the classes i .. j - 1."""
    lengths = lengths_of(instance)
    atoms = [Atom(one.tokens, one.count) for one in lengths.classes]
    several = lengths.rows == "packed" and max(one.stages for one in found.strategy.replicas) > 1
    most = max(0, (found.strategy.longest // SHORTEST_ROW).bit_length() - 1) if several else 0
    rows = (_halved(found.strategy, halvings) for halvings in range(most + 1))
    return np.stack([StrategyTimes(one, atoms, lengths.rows).of_intervals() for one in rows])


def _halved(strategy: Strategy, halvings: int) -> Strategy:
    replicas = (replace(one, longest_row=one.longest_row >> halvings) for one in strategy.replicas)
    return replace(strategy, replicas=tuple(replicas), visit_ns=0)


def _named(found: Sequence[PlanRows]) -> list[PlanRows]:
    """With names of their own."""
    names = [one.strategy.name for one in found]
    rows = [
        f"{name}, rows of {one.strategy.longest}" if names.count(name) > 1 else name
        for name, one in zip(names, found, strict=True)
    ]
    seen: Counter[str] = Counter()
    named = []
    for one, name in zip(found, rows, strict=True):
        seen[name] += 1
        own = f"{name} ({seen[name]})" if seen[name] > 1 else name
        named.append(replace(one, strategy=replace(one.strategy, name=own)))
    return named
