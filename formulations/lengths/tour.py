"""A step as a tour: which strategies run which atoms, in which order, and what that takes.

It starts and ends at the anchor, the strategy that holds the fp32 state. The first switch moves
parameters out of it, those between strategies parameters and the gradients so far, the last one
gradients back to it, if asked for with the parameters: at the end of the step, or before a last
group that the anchor runs itself. A tour of the anchor alone has no switch. Every group ends with
what its strategy takes for each visit, the step with what the anchor takes once.
"""

from dataclasses import dataclass
from itertools import pairwise

from formulations.lengths.problem import Mixed, Moves, Switching
from formulations.lengths.strategy_time import strategy_times


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

    leaves: int
    enters: int
    moves: Moves
    time_ns: int | None


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
    found = []
    if first != tour.anchor:
        found.append(Hop(tour.anchor, first, "parameters", out_ns(switching, tour.anchor, first)))
    if last == tour.anchor:
        path, ends = path[:-1], path[-1:]
    else:
        ends = [(last, tour.anchor)]
    found += [Hop(a, b, "both", between_ns(switching, a, b)) for a, b in path]
    moves: Moves = "both" if switching.parameters_return else "gradients"
    return [*found, *(Hop(a, b, moves, back_ns(switching, a, b)) for a, b in ends)]


def groups_ns(mixed: Mixed, tour: Tour) -> list[int | None]:
    """Times of the groups and visits, without switches; None: an atom does not fit."""
    times = strategy_times(mixed)
    return [times[group.strategy].of_set(group.atoms) for group in tour.groups]


def step_ns(mixed: Mixed, tour: Tour) -> int | None:
    """Time of the step; None if an atom does not fit or there is no such switch."""
    switches = [hop.time_ns for hop in hops(mixed.switching, tour)]
    parts = [*groups_ns(mixed, tour), *switches, mixed.strategies[tour.anchor].anchor_ns]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def best_single(mixed: Mixed) -> tuple[int, int] | None:
    """The fastest of the strategies that run all atoms alone, and its time; None: there is none."""
    every = range(len(mixed.atoms))
    times = [own.of_set(every) for own in strategy_times(mixed)]
    known = [
        (ns + mixed.strategies[q].anchor_ns, q) for q, ns in enumerate(times) if ns is not None
    ]
    return min(known)[::-1] if known else None
