"""The event rules of Oobleck's public simulator for Varuna and Bamboo, written anew.

From its description of events (SymbioticLab/Oobleck, tools/simulator, commit 103c477), to be told
where our replay differs and why. In whole milliseconds, as there. Rules that no such system has:
- Varuna trains on with the old step time while it restarts, and the steps count;
- whether a checkpoint fails is read from the order of a heap, not from times; a failed one of the
  first steps makes the list of throughputs longer than that of times, so that later steps count at
  the time of earlier ones;
- of two restarts that overlap, the second finds no node and ends the training for good;
- a failure of an idle Bamboo node makes every step 1.5 times as long until the next failure.
The last is switched off by `idle_failures_slow`, the first by `trains_while_restarting`.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

READY_MS = 45_000
STAGES = 12  # of every pipeline, whatever the model
MS_PER_HOUR = 3_600_000


class Kind(IntEnum):
    """Events; the order decides among equal times."""

    ADD = 1
    REMOVE = 2
    READY = 4
    RESTARTED = 5
    REBALANCED = 6
    STEP = 7
    CHECKPOINT = 8


@dataclass(order=True)
class _Event:
    time_ms: int
    kind: Kind
    node: int = field(default=0, compare=False)
    version: int = field(default=0, compare=False)


@dataclass
class _Node:
    status: str = "creating"  # creating, ready, running
    places: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """One model on 30 nodes: samples/s by number of nodes, costs in ms, removals (time, node).

    restart_ms: by the number of nodes at the restart before, None at the first.
    """

    samples_per_step: int
    per_s: Mapping[int, float]
    restart_ms: Callable[[int | None], int]
    removals: Sequence[tuple[int, int]]
    checkpoint_ms: int = 0
    rebalance_ms: int = 0


class _Simulator:
    """What both systems share."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.events: list[_Event] = []
        self.nodes: dict[int, _Node] = {}
        self.status = "stopped"  # stopped, regrouping, running
        self.gathered: list[int] = []
        self.version = self.pipelines = self.waiting = self.steps = self.step_ms = 0
        self.start_ms: int | None = None
        self.last_ms = 0
        self.hours: list[float] = []  # begin and end of every step
        self.per_s: list[float] = []  # samples/s at these times
        self.time_ms: dict[str, int] = dict.fromkeys(("effective", "checkpoint", "restart"), 0)
        self.time_ms["rebalance"] = 0
        for node in range(1, 31):
            self.push(0, Kind.ADD, node)
        for time_ms, node in case.removals:
            self.push(time_ms, Kind.REMOVE, node)

    def push(self, time_ms: int, kind: Kind, node: int = 0) -> None:
        heapq.heappush(self.events, _Event(time_ms, kind, node, self.version))

    def run(self) -> float:
        """Samples/s from the begin of the first step to the end of the last."""
        heapq.heapify(self.events)
        end_ms = self.events[-1].time_ms
        while self.events:
            event = heapq.heappop(self.events)
            if event.time_ms >= end_ms:
                break
            self.on(event)
        assert self.start_ms is not None
        begins, ends, per_s = self.hours[::2], self.hours[1::2], self.per_s[1::2]
        samples = sum((b - a) * y for a, b, y in zip(begins, ends, per_s, strict=False))
        return samples / (ends[-1] - self.start_ms / MS_PER_HOUR)

    def on(self, event: _Event) -> None:
        now = event.time_ms
        if event.kind is Kind.ADD:
            self.nodes[event.node] = _Node()
            self.push(now + READY_MS, Kind.READY, event.node)
        elif event.kind is Kind.READY and event.node in self.nodes:
            self.nodes[event.node].status = "ready"
            if self.status == "stopped":
                self.regroup(now, Kind.RESTARTED)
            elif self.status == "regrouping":
                self.gathered.append(event.node)
            else:
                self.waiting += 1
        elif event.kind is Kind.REMOVE:
            self.on_removal(now, event.node, self.nodes.pop(event.node))
        elif event.kind in (Kind.RESTARTED, Kind.REBALANCED):
            self.on_regrouped(now, event.kind)
        elif event.kind is Kind.STEP and event.version == self.version:
            self.on_step(now)

    def on_removal(self, now: int, name: int, node: _Node) -> None:
        raise NotImplementedError

    def on_step(self, now: int) -> None:
        raise NotImplementedError

    def pause_ms(self, kind: Kind) -> int:
        raise NotImplementedError

    def gather(self) -> None:
        self.gathered = [n for n, node in self.nodes.items() if node.status != "creating"]

    def regroup(self, now: int, kind: Kind) -> None:
        self.status = "regrouping"
        self.gather()
        self.push(now + self.pause_ms(kind), kind)

    def on_regrouped(self, now: int, kind: Kind) -> None:
        if any(node not in self.nodes for node in self.gathered):
            self.gather()
            self.push(now + self.pause_ms(kind), kind)
            return
        self.pipelines, self.waiting = len(self.gathered) // STAGES, 0
        places = [(i, j) for i in range(self.pipelines) for j in range(STAGES)]
        for name in self.gathered:
            node = self.nodes[name]
            node.places = [places.pop(0)] if places else []
            node.status = "running" if node.places else "ready"
            self.waiting += not node.places
        self.gathered = []
        self.version += 1
        if not self.pipelines:
            self.status = "stopped"
            return
        self.status = "running"
        if self.start_ms is None:
            self.start_ms = self.last_ms = now
        self.new_step_time()
        self.next_step(now)

    def new_step_time(self) -> None:
        ready = sum(node.status != "creating" for node in self.nodes.values())
        count = min(30, max(15, ready))
        self.step_ms = int(self.case.samples_per_step / self.case.per_s[count] * 1000)

    def next_step(self, now: int) -> None:
        self.time_ms["effective"] += self.step_ms
        self.push(now + self.step_ms, Kind.STEP)

    def keep(self, now: int) -> None:
        self.steps += 1
        per_s = self.case.samples_per_step / ((now - self.last_ms) / 1000)
        self.hours += [self.last_ms / MS_PER_HOUR, now / MS_PER_HOUR]
        self.per_s += [per_s, per_s]


class Varuna(_Simulator):
    """Checkpoint and restart."""

    def __init__(self, case: Case, trains_while_restarting: bool = True) -> None:
        self.checkpoint_hour: float | None = None
        self.checkpoint_is_due = False
        self.trains_while_restarting = trains_while_restarting
        self.count: int | None = None  # nodes at the last restart
        super().__init__(case)

    def pause_ms(self, kind: Kind) -> int:
        """Time without a new configuration; also counted."""
        pause_ms = self.case.restart_ms(self.count) - self.case.checkpoint_ms
        self.time_ms["restart"] += pause_ms
        return pause_ms

    def new_step_time(self) -> None:
        """Also notes the number of nodes, which decides the next restart."""
        self.count = min(30, max(15, len(self.nodes)))
        super().new_step_time()

    def on_removal(self, now: int, name: int, node: _Node) -> None:
        """Steps since the last checkpoint are lost, and all nodes restart."""
        self.checkpoint_is_due = True
        if self.checkpoint_hour is None:
            self.per_s = [0.0] * len(self.per_s)
        elif self.checkpoint_hour in self.hours[: len(self.per_s)]:
            first = self.hours.index(self.checkpoint_hour) + 1
            self.per_s[first:] = [0.0] * len(self.per_s[first:])
        if not self.trains_while_restarting:
            self.version += 1
        self.regroup(now, Kind.RESTARTED)

    def on_step(self, now: int) -> None:
        """A checkpoint after every tenth step, and after the first one that follows a failure."""
        self.keep(now)
        if self.steps % 10 == 0 or self.checkpoint_is_due:
            self.checkpoint_is_due = False
            now += self.case.checkpoint_ms
            self.time_ms["checkpoint"] += self.case.checkpoint_ms
            self.push(now, Kind.CHECKPOINT)
            heapq.heapify(self.events)
            kinds = [event.kind for event in self.events]
            if Kind.REMOVE in kinds[: kinds.index(Kind.CHECKPOINT)]:
                self.steps = max(0, self.steps - 10)
                self.per_s[-20:] = [0.0] * 20
            else:
                self.checkpoint_hour = now / MS_PER_HOUR
        self.last_ms = now
        self.next_step(now)


class Bamboo(_Simulator):
    """Redundant computation: a neighbour takes over, then the pipelines are rebalanced."""

    def __init__(self, case: Case, idle_failures_slow: bool = True) -> None:
        self.idle_failures_slow = idle_failures_slow
        self.failure: tuple[int, int] | None = None  # steps so far, time
        self.is_delayed = False
        super().__init__(case)

    def pause_ms(self, kind: Kind) -> int:
        """30 s after a fatal failure and at the start, else the time to rebalance; also counted."""
        restarts = kind is Kind.RESTARTED
        pause_ms = self.case.restart_ms(None) if restarts else self.case.rebalance_ms
        self.time_ms["restart" if restarts else "rebalance"] += pause_ms
        return pause_ms

    def on_removal(self, now: int, name: int, node: _Node) -> None:
        """The node of the stage before takes over, unless it does so for another already."""
        if node.status == "running":
            [(pipeline, stage), *more] = node.places
            before = (pipeline, (stage - 1) % STAGES)
            helper = next((n for n in self.nodes.values() if before in n.places), None)
            if more or (helper is not None and len(helper.places) > 1):
                self.regroup(now, Kind.RESTARTED)
                return
            if helper is not None:
                helper.places.append((pipeline, stage))
        elif not self.idle_failures_slow:
            return
        if self.status == "running" and self.failure is None:
            self.failure, self.is_delayed = (self.steps, now), False
            self.step_ms = int(self.step_ms * 1.5)

    def on_regrouped(self, now: int, kind: Kind) -> None:
        """Every node has one stage again."""
        self.failure, self.is_delayed = None, False
        super().on_regrouped(now, kind)

    def on_step(self, now: int) -> None:
        """The step in flight at a failure takes half of its rest longer."""
        if self.failure is not None and not self.is_delayed and self.failure[0] == self.steps:
            self.push(now + int((now - self.failure[1]) * 0.5), Kind.STEP)
            self.is_delayed = True
            return
        self.keep(now)
        self.last_ms = now
        if self.wants_rebalancing():
            self.regroup(now, Kind.REBALANCED)
        else:
            self.next_step(now)

    def wants_rebalancing(self) -> bool:
        """Whether nodes wait, too many do double work, or there is a pipeline to add."""
        overloaded = sum(
            node.status == "running" and len(node.places) > 1 for node in self.nodes.values()
        )
        active = self.pipelines * STAGES - overloaded
        helps = overloaded > 0 and (self.waiting >= overloaded or 2 * overloaded / active > 0.05)
        return helps or (active + self.waiting) // STAGES > self.pipelines
