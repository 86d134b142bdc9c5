"""A step as a tour: which strategies run which atoms, in which order, and what that takes.

It starts and ends at the anchor, the strategy that holds the fp32 state. The first switch moves
parameters out of it, those between strategies parameters and the gradients so far, the last one
gradients back to it, if asked for with the parameters: at the end of the step, or before a last
group that the anchor runs itself. A tour of the anchor alone has no switch. Every group ends with
what its strategy takes for each visit, the step with what the anchor takes once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Annotated

import numpy as np
from pydantic import Field

from formulations.costs.intervals import Array
from formulations.instance.record import Batch, Index
from formulations.lengths.problem import STRICT, Mixed, Moves, Nanoseconds, Switching
from formulations.lengths.strategy_time import NEVER, strategy_times


@dataclass(frozen=True, slots=True)
class Group:
    """Atoms that a strategy runs between two switches, ascending; indices."""

    strategy: int
    atoms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tour:
    """Groups in the order of the step; no two neighbours are of one strategy."""

    anchor: int
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Hop:
    """A switch of a step, between strategies; None: it is not possible."""

    __pydantic_config__ = STRICT

    leaves: Index
    enters: Index
    moves: Moves
    time_ns: Nanoseconds | None


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """What a strategy runs between two switches, and in how long, with the visit.

    buckets: (above, up_to) tokens, ascending. micro_batches: rows on each replica; none where its
    times were measured.
    """

    __pydantic_config__ = STRICT

    strategy: Index
    atoms: Annotated[tuple[Index, ...], Field(min_length=1)]
    buckets: tuple[tuple[Index, Batch], ...]
    sequences: Batch
    tokens: Annotated[int, Field(ge=1)]
    micro_batches: tuple[Annotated[int, Field(ge=0)], ...]
    time_ns: Nanoseconds


@dataclass(frozen=True, slots=True)
class Single:
    """A strategy that runs all atoms alone, and its step."""

    __pydantic_config__ = STRICT

    strategy: Index
    step_ns: Nanoseconds


def switch_tables(switching: Switching) -> dict[str, Array]:
    """Times [from, to] of switches, NEVER where there is none.

    out: from the anchor to what runs first; between two strategies; back to the anchor at the end.
    Out and back take 0 where the anchor itself runs.
    """
    parameters, gradients = (
        np.array([[NEVER if ns is None else ns for ns in row] for row in table])
        for table in (switching.parameters_ns, switching.gradients_ns)
    )
    between = np.minimum(parameters + gradients, NEVER)
    back = between.copy() if switching.parameters_return else gradients
    for table, alone in ((parameters, 0), (between, NEVER), (back, 0)):
        np.fill_diagonal(table, alone)
    return {"out": parameters, "between": between, "back": back}


def hops(switching: Switching, tour: Tour) -> list[Hop]:
    """All switches in the order of the step."""
    visited = [group.strategy for group in tour.groups]
    begin, end = ([tour.anchor] * (visited[at] != tour.anchor) for at in (0, -1))
    pairs = list(pairwise([*begin, *visited, *end]))
    ways = ["between"] * len(pairs)
    if pairs:  # two at least where the step begins elsewhere
        ways[-1] = "back"
        ways[0] = "out" if begin else ways[0]
    returned: Moves = "both" if switching.parameters_return else "gradients"
    moves: dict[str, Moves] = {"out": "parameters", "between": "both", "back": returned}
    tables = switch_tables(switching)
    times = (int(tables[way][pair]) for way, pair in zip(ways, pairs, strict=True))
    return [
        Hop(*pair, moves[way], time_ns if time_ns < NEVER else None)
        for pair, way, time_ns in zip(pairs, ways, times, strict=True)
    ]


def step_ns(mixed: Mixed, tour: Tour) -> int | None:
    """Time of the step; None if an atom does not fit or there is no such switch."""
    times = strategy_times(mixed)
    groups_ns = [times[group.strategy].of_set(group.atoms) for group in tour.groups]
    hops_ns = [hop.time_ns for hop in hops(mixed.switching, tour)]
    parts = [*groups_ns, *hops_ns, mixed.strategies[tour.anchor].anchor_ns]
    return None if None in parts else sum(ns for ns in parts if ns is not None)


def best_single(mixed: Mixed) -> Single | None:
    """The fastest of the strategies that run all atoms alone; None: there is none."""
    every = range(len(mixed.atoms))
    times = enumerate(strategy.of_set(every) for strategy in strategy_times(mixed))
    steps = [(ns + mixed.strategies[q].anchor_ns, q) for q, ns in times if ns is not None]
    return Single(*min(steps)[::-1]) if steps else None


def group_figures(mixed: Mixed, tour: Tour) -> Iterator[GroupFigures]:
    """What each group runs, of a tour whose strategies take their atoms."""
    times = strategy_times(mixed)
    for group in tour.groups:
        time_ns = times[group.strategy].of_set(group.atoms)
        assert time_ns is not None
        # Runs of neighbouring atoms: above, up to
        buckets = []
        for _, run in groupby(enumerate(group.atoms), key=lambda pair: pair[1] - pair[0]):
            atoms = [k for _, k in run]
            above = mixed.atoms[atoms[0] - 1].tokens if atoms[0] else 0
            buckets.append((above, mixed.atoms[atoms[-1]].tokens))
        chosen = [mixed.atoms[k] for k in group.atoms]
        # Rows of each replica, of its share of what fills rows: that are full, or of padded ones as
        # many of each length; none of measured times
        strategy, content = mixed.strategies[group.strategy], times[group.strategy].content
        rows = times[group.strategy].rows(content[:, [*group.atoms]].sum(axis=1, keepdims=True))
        kinds = [*strategy.kinds]
        places = [kinds.index(replace(replica, count=1)) for replica in strategy.pipelines]
        yield GroupFigures(
            strategy=group.strategy,
            atoms=group.atoms,
            buckets=tuple(buckets),
            sequences=sum(atom.count for atom in chosen),
            tokens=sum(atom.count * atom.tokens for atom in chosen),
            micro_batches=tuple(int(rows[place, 0]) for place in places),
            time_ns=time_ns,
        )
