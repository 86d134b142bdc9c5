"""Which nodes fail and join, and when: drawn, or read from CSV files.

    time,node,event
    600,a40-3,fail
    20 min,a40-3,join

Times are seconds, or carry a unit (s, min, h), and are in order. A node whose first event is `join`
is not there from the start; all others are.
"""

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from formulations.errors import InstanceError
from formulations.instance.documents import csv_fields, read_text, suggestion
from formulations.instance.record import shown

EventKind = Literal["fail", "join"]
KINDS: tuple[EventKind, ...] = get_args(EventKind)
COLUMNS = ("time", "node", "event")
MOST_S = 1e9
_LENGTH = re.compile(r"(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*([a-z]*)")
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
TIME_ALLOWED = f"seconds, or a number with s, min, h or d; at most {MOST_S:g} s"


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
    failures = range(1, max(1, len(nodes) // 2) + 1)
    return failures_trace(nodes, [number * interval_ns for number in failures], seed)


def length_ns(text: str) -> int | None:
    """Nanoseconds of "90", "10 min", "6h" or "30d", rounded; None if it is no such text."""
    match = _LENGTH.fullmatch(text.strip())
    if match is None or match[2] not in _SECONDS:
        return None
    seconds = float(match[1]) * _SECONDS[match[2]]
    return round(seconds * 1e9) if math.isfinite(seconds) and seconds <= MOST_S else None


def read_trace(path: Path, nodes: Sequence[str], end_ns: int | None) -> Trace:
    """The trace at `path` over a cluster of `nodes`.

    end_ns: end of the run; None: the last event is the end, and has no effect. Raises InstanceError
    with file, line and column for what does not fit.
    """
    allowed = f"a CSV file with the columns {','.join(COLUMNS)}"
    rows = list(csv_fields(read_text(path, allowed)))
    if not rows or tuple(text for _, text in rows[0][1]) != COLUMNS:
        columns = ",".join(text for _, text in rows[0][1]) if rows else ""
        line = rows[0][0] if rows else 1
        raise InstanceError(
            f"{path}:{line}:1", shown(columns), f"the first line {','.join(COLUMNS)}"
        )
    events, first, last = list[Event](), dict[str, EventKind](), dict[str, EventKind]()
    for line, fields in rows[1:]:
        if len(fields) != len(COLUMNS):
            wrong = f"{len(fields)} field" + ("s" if len(fields) > 1 else "")
            raise InstanceError(f"{path}:{line}:1", wrong, f"3: {','.join(COLUMNS)}")
        in_time, in_node, in_event = (
            f"{path}:{line}:{column} {name}"
            for name, (column, _) in zip(COLUMNS, fields, strict=True)
        )
        time, node, event = (text for _, text in fields)
        time_ns = length_ns(time)
        if time_ns is None:
            raise InstanceError(in_time, shown(time), TIME_ALLOWED)
        if events and time_ns < events[-1].time_ns:
            least_s = events[-1].time_ns / 1e9
            raise InstanceError(in_time, shown(time), f"at least {least_s:g} s: times are in order")
        if node not in nodes:
            unknown = f"unknown node {shown(node)}{suggestion(node, nodes)}"
            several = f"{nodes[0]}, ..., {nodes[-1]}" if len(nodes) > 8 else ", ".join(nodes)
            raise InstanceError(in_node, unknown, several)
        kind = next((kind for kind in KINDS if kind == event), None)
        if kind is None:
            raise InstanceError(in_event, shown(event), " or ".join(KINDS))
        if last.get(node) == kind:
            state = "has failed already" if kind == "fail" else "is there already"
            raise InstanceError(in_event, f"{kind} of {node}, which {state}", "the other event")
        first.setdefault(node, kind)
        last[node] = kind
        events.append(Event(time_ns, node, kind))
    if not events:
        raise InstanceError(f"{path}:1:1", "no event", "at least one line after the first")
    there = tuple(node for node in nodes if first.get(node) != "join")
    last_ns = events[-1].time_ns
    if end_ns is None and last_ns == 0:
        raise InstanceError(f"{path}:{rows[-1][0]}:1", "0", "a last time after 0, or a stated end")
    return Trace(there, tuple(events), last_ns if end_ns is None else end_ns)
