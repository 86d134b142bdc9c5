"""Which nodes fail and join, and when."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

EventKind = Literal["fail", "join"]


@dataclass(frozen=True)
class Event:
    """A node that fails, or one that joins and then needs its time to get ready."""

    time_ns: int
    node: str
    kind: EventKind


@dataclass(frozen=True)
class Trace:
    """A run from time 0 to `end_ns`: the nodes that are there from the start, and the events.

    Events are in order of time, none at or after `end_ns` has an effect. A node that fails is
    there, one that joins is not.
    """

    nodes: tuple[str, ...]
    events: tuple[Event, ...]
    end_ns: int


def failures_trace(groups: Sequence[Sequence[str]], times_ns: Sequence[int]) -> Trace:
    """One failure at each time, in order; the run ends with the last, which has no effect.

    Each failure takes the last node of the group of which most nodes are left, of the first such
    group. At least one time, and no more than nodes.
    """
    left = [list(group) for group in groups]
    events = [Event(time_ns, max(left, key=len).pop(), "fail") for time_ns in times_ns]
    nodes = tuple(node for group in groups for node in group)
    return Trace(nodes, tuple(events[:-1]), times_ns[-1])


def regular_trace(groups: Sequence[Sequence[str]], interval_ns: int) -> Trace:
    """One failure every `interval_ns` until half of the nodes are left, with which the run ends.

    So runs Oobleck (SOSP 2023), Table 2: of 30 nodes, the 15th removal is the end.
    """
    failures = max(1, sum(map(len, groups)) // 2)
    return failures_trace(groups, [number * interval_ns for number in range(1, failures + 1)])
