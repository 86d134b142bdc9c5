"""Replays worked out by hand, and against a replay of every single tick; sums of stretches."""

import random
from collections.abc import Mapping
from typing import get_args

import pytest

from formulations.errors import PlannerError
from solver.replay.player import History, Replay, Span, joined, replay
from solver.replay.policy import (
    Checkpoints,
    Configuration,
    InFlight,
    Policy,
    Reconfigure,
    Recovery,
)
from solver.replay.trace import Event, EventKind, Trace
from tests.random_fleets import even_designs, fleet_of
from tests.tick_replay import Ticks

FOUR = ("a", "b", "c", "d")
LOST = Recovery()
IN_FLIGHT: tuple[InFlight, ...] = get_args(InFlight)


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


def played(
    events: str,
    end_ns: int,
    reconfigure: Reconfigure,
    recovery: Recovery = LOST,
    nodes: tuple[str, ...] = FOUR,
) -> Replay:
    """Events such as "32 a fail, 40 a join"; one sample a step."""
    kinds: dict[str, EventKind] = {"fail": "fail", "join": "join"}
    listed = [text.split() for text in events.split(",") if text]
    trace = Trace(nodes, tuple(Event(int(t), node, kinds[k]) for t, node, k in listed), end_ns)
    return replay(trace, Policy("by hand", reconfigure, recovery, 1))


def outcome(run: Replay) -> tuple[int, dict[str, int]]:
    """Steps, and times by cause without those that are 0."""
    times = {str(cause): time_ns for cause, time_ns in run.time_by_cause_ns.items() if time_ns}
    return run.steps, times


def test_failure_loses_the_step_in_flight() -> None:
    """Steps end at 15, 25; a fails at 32; pause to 37; steps of 20 ns end at 57, 77; end 80."""
    run = played("32 a fail", 80, by_count({4: 10, 3: 20}))
    times = {"reconfiguration": 10, "training": 60, "lost": 7, "unfinished": 3}
    assert outcome(run) == (4, times)


def test_idle_node_fails_without_a_loss() -> None:
    """A configuration that leaves d idle does not notice its failure."""
    run = played("12 d fail", 35, lambda _, ready: Configuration(ready - {"d"}, 10, 5))
    assert outcome(run) == (3, {"reconfiguration": 5, "training": 30})


def test_bug_a_source_that_fails_while_it_copies_is_noticed() -> None:
    """Pipelines on all nodes; d fails at 7, from when c only sends its layers, and fails at 9.

    The first pause ends at 5, the second would at 12 and the third does at 14: 2 steps to 34. Once
    the copies are there, the failure of b, idle as well, costs nothing.
    """
    pipelines = tuple(fleet_of([one.template for one in even_designs(range(2, 3))]))

    def reconfigure(_: Configuration | None, ready: frozenset[str]) -> Configuration | None:
        nodes = ready if len(ready) == 4 else frozenset("a")
        return Configuration(nodes, 10, 5, pipelines)

    run = played("7 d fail,9 c fail,20 b fail", 35, reconfigure)
    times = {"reconfiguration": 12, "lost": 2, "training": 20, "unfinished": 1}
    assert outcome(run) == (2, times)


def test_long_run_is_one_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty years of steps of 1 ns; with a checkpoint after each, the run is refused."""
    monkeypatch.setattr("solver.replay.player.MOST_SPANS", 1000)
    run = played("", 10**18, by_count({4: 1}, 0))
    assert (run.steps, len(run.spans)) == (10**18, 1)
    with pytest.raises(PlannerError, match="more than 1,000 spans"):
        played("", 10**18, by_count({4: 1}), Recovery("lost", Checkpoints(1, 1)))


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
def test_replay_agrees_with_a_look_at_every_tick(
    in_flight: InFlight, checkpoints: Checkpoints | None
) -> None:
    """On random traces, step times and pauses, steps and times by cause are the same."""
    for seed in range(100):
        rng = random.Random(seed)
        trace = _random_trace(rng)
        step_ns = {n: rng.randint(1, 12) for n in range(rng.randint(1, 3), 14)}
        pause_ns = {n: rng.randint(0, 15) for n in range(14)}
        recovery = Recovery(in_flight, checkpoints, rng.choice((0, 2, 6)), 150, rng.randint(0, 20))
        run = replay(trace, Policy("random", by_count(step_ns, pause_ns), recovery, 1))
        ticks = Ticks(trace, recovery, step_ns.get, pause_ns.__getitem__)
        assert outcome(run) == (ticks.steps, ticks.time_by_cause), seed
        assert [run.spans[0].start_ns, run.spans[-1].end_ns] == [0, trace.end_ns]
        assert all(a.end_ns == b.start_ns for a, b in zip(run.spans, run.spans[1:], strict=False))


@pytest.mark.parametrize("in_flight", ["lost", "background"])
def test_lost_state_discards_all_that_was_trained(in_flight: InFlight) -> None:
    """Node a fails at 32 and no node holds its layers: steps of 10 ns since 5 are lost."""
    run = played("32 a fail", 60, by_count({4: 10, 3: 10}, keeps_state=4), Recovery(in_flight))
    times = {"reconfiguration": 10, "lost": 27, "training": 20, "unfinished": 3}
    assert outcome(run) == (2, times)


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
def test_bug_nothing_is_left_of_training_once_all_nodes_have_failed(in_flight: InFlight) -> None:
    """All fail at 32, and a is back: steps of 10 ns since 5 are lost, with no checkpoint to go to.

    Pause from 40 to 45, steps to 75. A neighbour cannot help either, as there is none.
    """
    events = ",".join([f"32 {node} fail" for node in FOUR] + ["40 a join"])
    run = played(events, 76, by_count({4: 10, 1: 30}), Recovery(in_flight))
    lost = {"lost": 27, "waiting": 8, "unfinished": 1}
    assert outcome(run) == (1, {"reconfiguration": 10, "training": 30, **lost})


def test_bug_the_last_node_has_no_neighbour() -> None:
    """One node trains alone and fails at 12, in its first step, which no one finishes."""
    run = played("12 a fail", 30, by_count({1: 10}), Recovery("slowed"), ("a",))
    assert outcome(run) == (0, {"reconfiguration": 5, "lost": 7, "waiting": 18})


def test_nodes_that_failed_are_told_to_the_next_configuration() -> None:
    """Node a fails, b in the pause after it: the former configuration has lost both."""
    told = list[frozenset[str] | None]()

    def reconfigure(former: Configuration | None, ready: frozenset[str]) -> Configuration | None:
        told.append(None if former is None else former.lost)
        return Configuration(ready, 10, 5)

    played("12 a fail,14 b fail,16 b join", 18, reconfigure)
    assert told == [None, frozenset("a"), frozenset("ab"), frozenset("ab")]


def test_bug_replay_without_time_stops_at_an_event_and_says_so() -> None:
    """Time is up after the first failure: the run ends at the second one and is not complete."""
    trace = Trace(FOUR, (Event(10, "a", "fail"), Event(20, "b", "fail")), 35)
    policy = Policy("by hand", by_count({4: 3, 3: 3, 2: 3}, 2), Recovery(), 1)
    asked = iter([False, True])
    run = replay(trace, policy, lambda: next(asked))
    assert (run.complete, run.length_ns) == (False, 20)
    assert replay(trace, policy).complete


def history() -> History:
    """A pause to 5, two steps of 10, a checkpoint to 28, a step to 38."""
    made = History()
    made.add(0, 5, "reconfiguration", 4)
    made.add(5, 25, "training", 4, 2)
    made.add(25, 28, "checkpoint", 4)
    made.save()
    made.add(28, 38, "training", 3, 1)
    return made


def test_a_rollback_loses_what_is_not_saved() -> None:
    """The third step alone, and nothing twice."""
    made = history()
    assert made.unsaved_steps == 1
    made.roll_back()
    assert [(s.cause, s.steps) for s in made.spans[1:]] == [
        ("training", 2),
        ("checkpoint", 0),
        ("lost", 0),
    ]
    assert made.unsaved_steps == 0
    made.add(38, 38, "waiting", 3)  # empty
    assert len(made.spans) == 4


def test_sums_of_a_run() -> None:
    """Six samples in 40 ns; from the first step to the end of the last one kept 33 ns."""
    made = history()
    made.add(38, 40, "unfinished", 3)
    run = Replay(tuple(made.spans), 2)
    assert (run.length_ns, run.steps, run.samples) == (40, 3, 6)
    times = {cause: time_ns for cause, time_ns in run.time_by_cause_ns.items() if time_ns}
    assert times == {"reconfiguration": 5, "training": 30, "checkpoint": 3, "unfinished": 2}
    assert run.samples_per_s == pytest.approx(6 / 40 * 1e9)
    assert run.samples_per_s_between_steps == pytest.approx(6 / 33 * 1e9)
    assert Replay((Span(0, 5, "waiting", 0),), 2).samples_per_s_between_steps == 0


def test_neighbours_of_one_cause_are_joined() -> None:
    """On as many nodes; a step more is added up."""
    ends, nodes = (0, 1, 3, 4), (4, 4, 3)
    spans = [Span(ends[i], ends[i + 1], "training", nodes[i], i + 1) for i in range(3)]
    assert list(joined(spans)) == [Span(0, 3, "training", 4, 3), Span(3, 4, "training", 3, 3)]


def test_too_many_spans_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Just inside and just outside."""
    monkeypatch.setattr("solver.replay.player.MOST_SPANS", 4)
    made = history()
    with pytest.raises(PlannerError, match="more than 4 spans; shorten it"):
        made.add(38, 40, "training", 3, 1)
