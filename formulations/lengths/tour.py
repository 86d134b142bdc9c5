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

from pydantic import Field

from formulations.instance.input_limits import Batch, Index
from formulations.lengths.problem import STRICT, Mixed, Moves, Nanoseconds, Switching
from formulations.lengths.strategy_time import PARTS, MeasuredTimes, StrategyTimes, strategy_times
from formulations.units import ceil_div


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


def out_ns(switching: Switching, anchor: int, strategy: int) -> int | None:
    """From the anchor to what runs first: 0 if that is itself; None: no such switch."""
    return 0 if anchor == strategy else switching.parameters_ns[anchor][strategy]


def between_ns(switching: Switching, left: int, right: int) -> int | None:
    """Between two strategies; None: no such switch."""
    return _both(switching.parameters_ns[left][right], switching.gradients_ns[left][right])


def back_ns(switching: Switching, strategy: int, anchor: int) -> int | None:
    """Back to the anchor at the end: 0 if what ran last is itself; None: no such switch."""
    if strategy == anchor:
        return 0
    if switching.parameters_return:
        return between_ns(switching, strategy, anchor)
    return switching.gradients_ns[strategy][anchor]


def _both(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def hops(switching: Switching, tour: Tour) -> list[Hop]:
    """All switches in the order of the step."""
    visited = [group.strategy for group in tour.groups]
    path = list(pairwise(visited))
    first, last = visited[0], visited[-1]
    switches = []
    if first != tour.anchor:
        begin_ns = out_ns(switching, tour.anchor, first)
        switches.append(Hop(tour.anchor, first, "parameters", begin_ns))
    if last == tour.anchor:
        path, ends = path[:-1], path[-1:]
    else:
        ends = [(last, tour.anchor)]
    switches += [Hop(a, b, "both", between_ns(switching, a, b)) for a, b in path]
    moves: Moves = "both" if switching.parameters_return else "gradients"
    return [*switches, *(Hop(a, b, moves, back_ns(switching, a, b)) for a, b in ends)]


def groups_ns(mixed: Mixed, tour: Tour) -> list[int | None]:
    """Times of the groups and visits, without switches; None: an atom does not fit."""
    times = strategy_times(mixed)
    return [times[group.strategy].of_set(group.atoms) for group in tour.groups]


def step_ns(mixed: Mixed, tour: Tour) -> int | None:
    """Time of the step; None if an atom does not fit or there is no such switch."""
    switches = [hop.time_ns for hop in hops(mixed.switching, tour)]
    parts = [*groups_ns(mixed, tour), *switches, mixed.strategies[tour.anchor].anchor_ns]
    times = [part for part in parts if part is not None]
    return sum(times) if len(times) == len(parts) else None


def best_single(mixed: Mixed) -> Single | None:
    """The fastest of the strategies that run all atoms alone; None: there is none."""
    every = range(len(mixed.atoms))
    times = enumerate(strategy.of_set(every) for strategy in strategy_times(mixed))
    steps = [(ns + mixed.strategies[q].anchor_ns, q) for q, ns in times if ns is not None]
    return Single(*min(steps)[::-1]) if steps else None


def group_figures(mixed: Mixed, tour: Tour) -> list[GroupFigures | None]:
    """What each group runs; None: an atom does not fit."""
    figures, times = list[GroupFigures | None](), strategy_times(mixed)
    for group in tour.groups:
        time_ns = times[group.strategy].of_set(group.atoms)
        if time_ns is None:
            figures.append(None)
            continue
        atoms = [mixed.atoms[k] for k in group.atoms]
        figures.append(
            GroupFigures(
                strategy=group.strategy,
                atoms=group.atoms,
                buckets=tuple(_buckets(mixed, group)),
                sequences=sum(atom.count for atom in atoms),
                tokens=sum(atom.count * atom.tokens for atom in atoms),
                micro_batches=_micro_batches(mixed, group, times[group.strategy], time_ns),
                time_ns=time_ns,
            )
        )
    return figures


def _buckets(mixed: Mixed, group: Group) -> Iterator[tuple[int, int]]:
    """Thresholds of runs of neighbouring atoms: above, up to."""
    for _, run in groupby(enumerate(group.atoms), key=lambda pair: pair[1] - pair[0]):
        atoms = [k for _, k in run]
        above = mixed.atoms[atoms[0] - 1].tokens if atoms[0] else 0
        yield above, mixed.atoms[atoms[-1]].tokens


def _micro_batches(
    mixed: Mixed, group: Group, times: StrategyTimes | MeasuredTimes, time_ns: int
) -> tuple[int, ...]:
    """Rows of each replica where the group takes `time_ns`; () if that was measured.

    Of its share of the work, rounded up: rows that are full, or of padded ones as many of each
    length. Unlike replicas take what they can, one after the other, until all is taken.
    """
    if isinstance(times, MeasuredTimes):
        return ()
    strategy = mixed.strategies[group.strategy]
    content = int(times.content[[*group.atoms]].sum())
    if len(times.kinds) == 1:
        return (ceil_div(content, times.room[0] * strategy.dp),) * strategy.dp
    capacity = times.parts(group.atoms, time_ns)  # [kind]
    kinds = [kind for kind, _ in times.kinds]
    remaining, rows = PARTS, list[int]()
    for kind in (kinds.index(replace(one, count=1)) for one in strategy.pipelines):
        share = min(remaining, capacity[kind])
        remaining -= share
        rows.append(ceil_div(share * content, PARTS * times.room[kind]))
    return tuple(rows)
