"""Replays against one that looks at every tick, and worked out by hand."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import get_args

import pytest

from formulations.errors import PlannerError
from solver.replay.player import Replay, replay
from solver.replay.policy import Checkpoints, Configuration, InFlight, Policy, Reconfigure, Recovery
from solver.replay.trace import Event, EventKind, Trace
from tests.conftest import present
from tests.recorded import Cases, recorded
from tests.template_cases import even_designs, fleet_of

FOUR = ("a", "b", "c", "d")
IN_FLIGHT: tuple[InFlight, ...] = get_args(InFlight)


class Ticks:
    """A slow and plain replay, one tick per ns, without code of the engine.

    step_ns, pause_ns: by number of ready nodes; no step time: cannot train.
    """

    def __init__(
        self,
        trace: Trace,
        recovery: Recovery,
        step_ns: Callable[[int], int | None],
        pause_ns: Callable[[int], int],
    ) -> None:
        self.recovery, self.step_ns, self.pause_ns = recovery, step_ns, pause_ns
        self.causes: list[str] = []
        self.steps = self.saved_steps = self.saved_ticks = 0
        self.mode, self.left, self.begun, self.size = "waiting", 0, 0, 0
        self.ready: set[str] = set()
        self.using: set[str] = set()
        self.holders: set[str] | None = None  # of what was trained
        self.old: tuple[int, int] | None = None  # begin and length of the overtaken step
        self.slow = self.regroup = False
        appearing = dict.fromkeys(trace.nodes, recovery.node_ready_ns)
        for now in range(trace.end_ns):
            at_once = [e for e in trace.events if e.time_ns == now]
            lost = set()
            for event in at_once:
                if event.kind == "join":
                    appearing[event.node] = now + recovery.node_ready_ns
                elif appearing.pop(event.node, None) is None:
                    lost.add(event.node)
            dead = (self.ready if self.mode == "reconfiguration" else self.using) & lost
            self.ready -= lost
            if self.holders is not None:
                self.holders -= lost
            if dead:
                self._fail(now, len(dead))
            self._complete(now)
            if new := {node for node, at in appearing.items() if at == now}:
                self.ready |= new
                appearing = {n: at for n, at in appearing.items() if n not in new}
                self._join(now)
                self._complete(now)
            self.causes.append(self.mode)
            self.left -= 1
        self._complete(trace.end_ns)
        self._overtaken(trace.end_ns, over=True)
        self.causes = ["unfinished" if cause == "step" else cause for cause in self.causes]

    def _begin(self, mode: str, now: int, length: int) -> None:
        self.mode, self.left, self.begun, self.size = mode, length, now, length

    def _relabel(self, first: int, last: int, cause: str) -> None:
        self.causes[first:last] = [cause] * (last - first)

    def _pause(self, now: int, length: int | None = None) -> None:
        self.regroup = False
        if self.holders is not None and not self.holders:
            self._overtaken(now, over=True)
            self._forget(now, now)
        if self.step_ns(len(self.ready)) is None:
            self._overtaken(now, over=True)
            self._begin("waiting", now, 0)
        else:
            usual = self.pause_ns(len(self.ready))
            self._begin("reconfiguration", now, usual if length is None else length)

    def _step(self, now: int) -> None:
        if self.mode == "reconfiguration":
            self.using = set(self.ready)
            self.holders = set(self.ready)
        length = present(self.step_ns(len(self.using)))
        self._begin("step", now, length)

    def _overtaken(self, now: int, over: bool) -> None:
        """The step in the background ends now, or is given up if the pause is `over`."""
        if self.old is None:
            return
        begin, length = self.old
        if over:
            if begin <= self.pause_begin:
                self._relabel(begin, self.pause_begin, "lost")
            self.old = None
        elif now == begin + length:
            self._relabel(begin, now, "training")
            self.steps += 1
            self.old = (now, length)

    def _fail(self, now: int, count: int) -> None:
        if self.mode == "waiting":
            return
        helps = self.recovery.in_flight == "slowed"
        if self.mode == "step" and helps and not self.slow and count == 1 and self.holders:
            self.left = self.recovery.slowed_ns(self.left)
            self.slow = True
            return
        fatal = helps and (self.slow or count > 1)
        if self.mode == "reconfiguration":
            self._overtaken(now, over=True)
        if self.mode == "step":
            if self.recovery.in_flight == "background":
                self.old = (self.begun, self.size)
                self.pause_begin = now
            else:
                self._relabel(self.begun, now, "lost")
        if self.recovery.checkpoints:
            self._forget(now, self.old[0] if self.old else now)
        self._pause(now, self.recovery.fatal_pause_ns if fatal else None)

    def _forget(self, now: int, saved: int) -> None:
        """All is lost since the last checkpoint; the next may keep what is trained from `saved`."""
        for i in range(self.saved_ticks, now):
            if self.causes[i] == "training":
                self.causes[i] = "lost"
        self.steps, self.saved_ticks = self.saved_steps, saved

    def _complete(self, now: int) -> None:
        while self.mode != "waiting" and self.left == 0:
            if self.mode == "reconfiguration":
                self._overtaken(now, over=True)
                self.slow = False
                self._step(now)
            elif self.mode == "checkpoint":
                self.saved_ticks, self.saved_steps = now, self.steps
                self._pause(now) if self.regroup else self._step(now)
            else:
                self._relabel(self.begun, now, "training")
                self._relabel(self.begun + self.size, now, "redundant")
                self.steps += 1
                due = self.recovery.checkpoints
                if due and (self.regroup or self.steps - self.saved_steps >= due.every_steps):
                    self._begin("checkpoint", now, due.time_ns)
                elif self.regroup or self.slow:
                    self._pause(now)
                else:
                    self._step(now)
        if self.mode == "reconfiguration":
            self._overtaken(now, over=False)

    def _join(self, now: int) -> None:
        if self.mode == "waiting":
            self._pause(now)
        elif self.mode == "reconfiguration":
            self.left = max(self.left, self.begun + self.pause_ns(len(self.ready)) - now)
        else:
            larger, present = self.step_ns(len(self.ready)), self.step_ns(len(self.using))
            assert present is not None
            self.regroup = larger is not None and larger < present


def by_count(
    step_ns: Mapping[int, int], pause_ns: int | Mapping[int, int] = 5, keeps_state: int = 0
) -> Reconfigure:
    """All ready nodes are used; step time and pause follow from their number.

    With fewer of them than `keeps_state` no node holds some layer.
    """

    def reconfigure(_: Configuration | None, ready: frozenset[str]) -> Configuration | None:
        if len(ready) not in step_ns:
            return None
        pause = pause_ns if isinstance(pause_ns, int) else pause_ns[len(ready)]
        loses_state = len(ready) < keeps_state
        return Configuration(ready, step_ns[len(ready)], pause, loses_state=loses_state)

    return reconfigure


def _random_trace(rng: random.Random) -> Trace:
    there = [f"n{i}" for i in range(rng.randint(1, 5))]
    nodes, away, events, now = tuple(there), ["x", "y"], [], 0
    for _ in range(rng.randint(0, 8)):
        now += rng.choice((0, 1, 3, 7, 20))
        if there and rng.random() < 0.6:
            away.append(there.pop(rng.randrange(len(there))))
            events.append(Event(now, away[-1], "fail"))
        else:
            there.append(away.pop(rng.randrange(len(away))) if away else f"z{len(events)}")
            events.append(Event(now, there[-1], "join"))
    return Trace(nodes, tuple(events), now + rng.randint(1, 40))


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
@pytest.mark.parametrize("checkpoints", [None, Checkpoints(3, 2)])
@recorded("replay")
def test_replay_agrees_with_a_look_at_every_tick(
    in_flight: InFlight, checkpoints: Checkpoints | None
) -> Cases:
    """On random traces, step times and pauses; spans of some are the recorded ones."""
    for seed in range(100):
        rng = random.Random(seed)
        trace = _random_trace(rng)
        step_ns = {n: rng.randint(1, 12) for n in range(rng.randint(1, 3), 14)}
        pause_ns = {n: rng.randint(0, 15) for n in range(14)}
        recovery = Recovery(in_flight, checkpoints, rng.choice((0, 2, 6)), 150, rng.randint(0, 20))
        run = replay(trace, Policy("random", by_count(step_ns, pause_ns), recovery, 1))
        ticks = Ticks(trace, recovery, step_ns.get, pause_ns.__getitem__)
        assert outcome(run) == (ticks.steps, Counter(ticks.causes)), seed
        assert [run.spans[0].start_ns, run.spans[-1].end_ns] == [0, trace.end_ns]
        assert all(a.end_ns == b.start_ns for a, b in pairwise(run.spans))
        if seed < 12:
            spans = [[span.cause, span.end_ns, span.nodes, span.steps] for span in run.spans]
            rates = run.samples, run.samples_per_s, run.samples_per_s_between_steps
            yield f"{seed} {in_flight} {checkpoints is not None}", [*rates, *spans]


def played(
    events: str,
    end_ns: int,
    reconfigure: Reconfigure,
    in_flight: InFlight = "lost",
    stop: Callable[[], bool] = lambda: False,
) -> Replay:
    """Events such as "32 a fail, 40 a join"; one sample a step."""
    kinds: dict[str, EventKind] = {"fail": "fail", "join": "join"}
    listed = [text.split() for text in events.split(",") if text]
    trace = Trace(FOUR, tuple(Event(int(t), node, kinds[k]) for t, node, k in listed), end_ns)
    return replay(trace, Policy("by hand", reconfigure, Recovery(in_flight), 1), stop)


def outcome(run: Replay) -> tuple[int, dict[str, int]]:
    """Steps, and times by cause without those that are 0."""
    times = {str(cause): time_ns for cause, time_ns in run.time_by_cause_ns.items() if time_ns}
    return run.steps, times


@pytest.mark.parametrize("in_flight", IN_FLIGHT[:2])
def test_idle_nodes_and_state_that_is_lost_by_hand(in_flight: InFlight) -> None:
    """The failure of d, which is idle, costs nothing: three steps from 5 to 35.

    Where no node holds the layers of a, steps of 10 ns since 5 are lost with it at 32.
    """
    idle = played("12 d fail", 35, lambda _, ready: Configuration(ready - {"d"}, 10, 5), in_flight)
    assert outcome(idle) == (3, {"reconfiguration": 5, "training": 30})
    gone = played("32 a fail", 60, by_count({4: 10, 3: 10}, keeps_state=4), in_flight)
    times = {"reconfiguration": 10, "lost": 27, "training": 20, "unfinished": 3}
    assert outcome(gone) == (2, times)


def test_bug_a_source_that_fails_while_it_copies_is_noticed() -> None:
    """Pipelines on all nodes; d fails at 7, from when c only sends its layers, and fails at 9.

    The first pause ends at 5, the second would at 12 and the third does at 14: 2 steps to 34. Once
    the copies are there, the failure of b, idle as well, costs nothing.
    """
    pipelines = tuple(fleet_of([one.template for one in even_designs(range(2, 3))]))
    told = list[frozenset[str]]()

    def reconfigure(former: Configuration | None, ready: frozenset[str]) -> Configuration | None:
        told.append(frozenset() if former is None else former.lost)
        nodes = ready if len(ready) == 4 else frozenset("a")
        return Configuration(nodes, 10, 5, pipelines)

    run = played("7 d fail,9 c fail,20 b fail", 35, reconfigure)
    times = {"reconfiguration": 12, "lost": 2, "training": 20, "unfinished": 1}
    assert outcome(run) == (2, times)
    assert told == [frozenset(), frozenset("d"), frozenset("cd")]


def test_long_run_is_one_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty years of steps of 1 ns; runs of more spans than are allowed are refused."""
    run = played("", 10**18, by_count({4: 1}, 0))
    assert (run.steps, len(run.spans)) == (10**18, 1)
    monkeypatch.setattr("solver.replay.player.MOST_SPANS", 4)
    assert len(played("", 10, by_count({4: 1})).spans) == 2  # of a pause and three times steps
    monkeypatch.setattr("solver.replay.player.MOST_SPANS", 3)
    with pytest.raises(PlannerError, match="more than 3 spans; shorten it"):
        played("", 10, by_count({4: 1}))


def test_bug_replay_without_time_stops_at_an_event_and_says_so() -> None:
    """Time is up after the first failure: the run ends at the second one and is not complete."""
    asked, times = iter([False, True]), by_count({4: 3, 3: 3, 2: 3}, 2)
    run = played("10 a fail,20 b fail", 35, times, stop=lambda: next(asked))
    assert (run.complete, run.length_ns) == (False, 20)
    assert played("10 a fail,20 b fail", 35, times).complete
