"""Which nodes fail and join, and when."""

import random
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


def failures_trace(nodes: Sequence[str], times_ns: Sequence[int], seed: int) -> Trace:
    """One failure at each time, in order; the run ends with the last, which has no effect.

    Each failure takes a node at random of those that are left, equal seeds the same ones. At least
    one time, and no more than nodes.
    """
    lost = random.Random(seed).sample(list(nodes), len(times_ns))
    events = [Event(time_ns, node, "fail") for time_ns, node in zip(times_ns, lost, strict=True)]
    return Trace(tuple(nodes), tuple(events[:-1]), times_ns[-1])


def regular_trace(nodes: Sequence[str], interval_ns: int, seed: int) -> Trace:
    """One failure every `interval_ns` until half of the nodes are left, with which the run ends.

    So runs Oobleck (SOSP 2023), Table 2: of 30 nodes, the 15th removal is the end.
    """
    failures = max(1, len(nodes) // 2)
    times_ns = [number * interval_ns for number in range(1, failures + 1)]
    return failures_trace(nodes, times_ns, seed)
