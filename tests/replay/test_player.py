"""Replays worked out by hand, and against a replay of every single tick."""

import random
from collections.abc import Mapping, Sequence

import pytest

from formulations.errors import PlannerError
from solver.replay.player import replay
from solver.replay.policy import (
    Checkpoints,
    Configuration,
    InFlight,
    Policy,
    Reconfigure,
    Recovery,
)
from solver.replay.spans import Cause, Replay
from solver.replay.trace import Event, Trace
from tests.random_fleets import even_designs, fleet_of
from tests.tick_replay import Ticks

FOUR = ("a", "b", "c", "d")


def by_count(step_ns: Mapping[int, int], pause_ns: int | Mapping[int, int]) -> Reconfigure:
    """All ready nodes are used; step time and pause follow from their number."""

    def reconfigure(_: Configuration | None, ready: frozenset[str]) -> Configuration | None:
        if len(ready) not in step_ns:
            return None
        pause = pause_ns if isinstance(pause_ns, int) else pause_ns[len(ready)]
        return Configuration(ready, step_ns[len(ready)], pause)

    return reconfigure


def played(
    events: Sequence[tuple[int, str, str]],
    end_ns: int,
    recovery: Recovery,
    step_ns: Mapping[int, int],
    pause_ns: int = 5,
) -> Replay:
    """Four nodes from the start, one sample a step."""
    kinds = {"fail": "fail", "join": "join"}
    trace = Trace(FOUR, tuple(Event(t, n, kinds[k]) for t, n, k in events), end_ns)  # type: ignore[arg-type]
    return replay(trace, Policy("by hand", by_count(step_ns, pause_ns), recovery, 1))


def times(run: Replay) -> dict[Cause, int]:
    """Times by cause, without those that are 0."""
    return {cause: time_ns for cause, time_ns in run.time_by_cause_ns.items() if time_ns}


def test_without_failures_only_the_first_pause_is_lost() -> None:
    """5 ns of pause, then 9 steps of 10 ns up to 95 ns, and 3 ns of the next one."""
    run = played([], 98, Recovery(), {4: 10})
    assert (run.steps, times(run)) == (9, {"reconfiguration": 5, "training": 90, "unfinished": 3})


def test_failure_loses_the_step_in_flight() -> None:
    """Steps end at 15, 25; a fails at 32; pause to 37; steps of 20 ns end at 57, 77; end 80."""
    run = played([(32, "a", "fail")], 80, Recovery(), {4: 10, 3: 20})
    expected = {"reconfiguration": 10, "training": 60, "lost": 7, "unfinished": 3}
    assert (run.steps, times(run)) == (4, expected)


def test_background_training_counts_what_ends_before_the_pause_does() -> None:
    """Node a fails at 32, the pause of 5 is over at 37: the step that would end at 35 counts."""
    run = played([(32, "a", "fail")], 80, Recovery("background"), {4: 10, 3: 20})
    # 5 + (35..37) of pause, 5..35 and 37..77 trained
    expected = {"reconfiguration": 7, "training": 70, "unfinished": 3}
    assert (run.steps, times(run)) == (5, expected)
    # At 30, the pause ends at 35 as the step does, which counts for nothing.
    run = played([(30, "a", "fail")], 35, Recovery("background"), {4: 10, 3: 20})
    assert (run.steps, times(run)) == (2, {"reconfiguration": 10, "training": 20, "lost": 5})


def test_failure_with_checkpoints_loses_all_steps_since_the_last() -> None:
    """The second checkpoint, 48..51, is cut short at 50, so the steps of 28..48 are lost.

    Steps end at 15, 25; checkpoint 25..28; steps end at 38, 48; pause 50..55.
    """
    recovery = Recovery("lost", Checkpoints(2, 3))
    run = played([(50, "a", "fail")], 60, recovery, {4: 10, 3: 20})
    expected = {
        "reconfiguration": 10,
        "training": 20,
        "checkpoint": 5,
        "lost": 20,
        "unfinished": 5,
    }
    assert (run.steps, times(run)) == (2, expected)


def test_neighbour_finishes_the_step_more_slowly() -> None:
    """Node a fails at 20, half into the step 15..25: its rest takes 8 ns instead of 5, to 28.

    Pause to 33; a step of 20 ns to 53.
    """
    recovery = Recovery("slowed", slowdown_percent=150)
    run = played([(20, "a", "fail")], 53, recovery, {4: 10, 3: 20})
    expected = {"reconfiguration": 10, "training": 40, "redundant": 3}
    assert (run.steps, times(run)) == (3, expected)


def test_too_few_nodes_wait_for_one_that_joins() -> None:
    """Node a fails at 17; three cannot train; e joins at 30 and is ready at 34; pause to 39.

    Four start at 4 (ready) and train from 9 on: a step to 19 would be cut at 17.
    """
    recovery = Recovery(node_ready_ns=4)
    run = played([(17, "a", "fail"), (30, "e", "join")], 50, recovery, {4: 10})
    expected = {
        "waiting": 4 + 17,
        "reconfiguration": 10,
        "lost": 8,
        "training": 10,
        "unfinished": 1,
    }
    assert (run.steps, times(run)) == (1, expected)


def test_joining_node_is_used_after_the_step_in_flight() -> None:
    """Node e is ready at 18; the step ends at 25, then a pause to 30 and steps of 8 ns to 46."""
    run = played([(18, "e", "join")], 46, Recovery(), {4: 10, 5: 8})
    assert (run.steps, times(run)) == (4, {"reconfiguration": 10, "training": 36})


def test_idle_node_fails_without_a_loss() -> None:
    """A configuration that leaves d idle does not notice its failure."""

    def reconfigure(_: Configuration | None, ready: frozenset[str]) -> Configuration | None:
        return Configuration(ready - {"d"}, 10, 5)

    trace = Trace(FOUR, (Event(12, "d", "fail"),), 35)
    run = replay(trace, Policy("idle", reconfigure, Recovery(), 1))
    assert (run.steps, times(run)) == (3, {"reconfiguration": 5, "training": 30})


def test_bug_a_source_that_fails_while_it_copies_is_noticed() -> None:
    """Pipelines on all nodes; d fails at 7, from when c only sends its layers, and fails at 9.

    The first pause ends at 5, the second would at 12 and the third does at 14: 2 steps to 34. Once
    the copies are there, the failure of b, idle as well, costs nothing.
    """
    pipelines = tuple(fleet_of([one.template for one in even_designs(range(2, 3))]))

    def reconfigure(_: Configuration | None, ready: frozenset[str]) -> Configuration | None:
        nodes = ready if len(ready) == 4 else frozenset("a")
        return Configuration(nodes, 10, 5, pipelines)

    events = (Event(7, "d", "fail"), Event(9, "c", "fail"), Event(20, "b", "fail"))
    run = replay(Trace(FOUR, events, 35), Policy("copies", reconfigure, Recovery(), 1))
    expected = {"reconfiguration": 12, "lost": 2, "training": 20, "unfinished": 1}
    assert (run.steps, times(run)) == (2, expected)


def test_long_run_is_one_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty years of steps of 1 ns; with a checkpoint after each, the run is refused."""
    monkeypatch.setattr("solver.replay.spans.MOST_SPANS", 1000)
    run = played([], 10**18, Recovery(), {4: 1}, pause_ns=0)
    assert (run.steps, len(run.spans)) == (10**18, 1)
    with pytest.raises(PlannerError, match="more than 1,000 spans"):
        played([], 10**18, Recovery("lost", Checkpoints(1, 1)), {4: 1})


def _random_trace(rng: random.Random) -> Trace:
    there = [f"n{i}" for i in range(rng.randint(1, 5))]
    nodes, away, events, now = tuple(there), ["x", "y"], [], 0
    for _ in range(rng.randint(0, 8)):
        now += rng.choice((0, 1, 3, 7, 20))
        if there and rng.random() < 0.6:
            node = there.pop(rng.randrange(len(there)))
            away.append(node)
            events.append(Event(now, node, "fail"))
        else:
            node = away.pop(rng.randrange(len(away))) if away else f"z{len(events)}"
            there.append(node)
            events.append(Event(now, node, "join"))
    return Trace(nodes, tuple(events), now + rng.randint(1, 40))


@pytest.mark.parametrize("in_flight", ["lost", "background", "slowed"])
@pytest.mark.parametrize("checkpoints", [None, Checkpoints(3, 2)])
def test_replay_agrees_with_a_look_at_every_tick(
    in_flight: InFlight, checkpoints: Checkpoints | None
) -> None:
    """On random traces, step times and pauses, steps and times by cause are the same."""
    for seed in range(120):
        rng = random.Random(seed)
        trace = _random_trace(rng)
        step_ns = {n: rng.randint(1, 12) for n in range(rng.randint(1, 3), 14)}
        pause_ns = {n: rng.randint(0, 15) for n in range(14)}
        recovery = Recovery(in_flight, checkpoints, rng.choice((0, 2, 6)), 150, rng.randint(0, 20))
        policy = Policy("random", by_count(step_ns, pause_ns), recovery, 1)
        run = replay(trace, policy)
        ticks = Ticks(trace, recovery, step_ns.get, pause_ns.__getitem__)
        assert run.steps == ticks.steps, seed
        assert times(run) == ticks.time_by_cause, seed
        assert [run.spans[0].start_ns, run.spans[-1].end_ns] == [0, trace.end_ns]
        assert all(a.end_ns == b.start_ns for a, b in zip(run.spans, run.spans[1:], strict=False))


def test_lost_state_discards_all_that_was_trained() -> None:
    """Node a fails at 32 and no node holds its layers: steps of 10 ns since 5 are lost."""

    def reconfigure(_: Configuration | None, ready: frozenset[str]) -> Configuration | None:
        return Configuration(ready, 10, 5, loses_state=len(ready) < 4)

    trace = Trace(FOUR, (Event(32, "a", "fail"),), 60)
    for in_flight in ("lost", "background"):
        rule: InFlight = "lost" if in_flight == "lost" else "background"
        run = replay(trace, Policy("by hand", reconfigure, Recovery(rule), 1))
        expected = {"reconfiguration": 10, "lost": 27, "training": 20, "unfinished": 3}
        assert (run.steps, times(run)) == (2, expected)


def test_bug_nothing_is_left_of_training_once_all_nodes_have_failed() -> None:
    """All fail at 32, and a is back: steps of 10 ns since 5 are lost, with no checkpoint to go to.

    Pause from 40 to 45, steps to 75. A neighbour cannot help either, as there is none.
    """
    events = [(32, node, "fail") for node in FOUR] + [(40, "a", "join")]
    for in_flight in ("lost", "background", "slowed"):
        rule: InFlight = in_flight
        run = played(events, 76, Recovery(rule), {4: 10, 1: 30})
        expected = {
            "reconfiguration": 10,
            "lost": 27,
            "waiting": 8,
            "training": 30,
            "unfinished": 1,
        }
        assert (run.steps, times(run)) == (1, expected)


def test_bug_the_last_node_has_no_neighbour() -> None:
    """One node trains alone and fails at 12, in its first step, which no one finishes."""
    recovery = Recovery("slowed", slowdown_percent=150)
    trace = Trace(("a",), (Event(12, "a", "fail"),), 30)
    run = replay(trace, Policy("alone", by_count({1: 10}, 5), recovery, 1))
    assert (run.steps, times(run)) == (0, {"reconfiguration": 5, "lost": 7, "waiting": 18})


def test_nodes_that_failed_are_told_to_the_next_configuration() -> None:
    """Node a fails, b in the pause after it: the former configuration has lost both."""
    told = list[frozenset[str] | None]()

    def reconfigure(former: Configuration | None, ready: frozenset[str]) -> Configuration | None:
        told.append(None if former is None else former.lost)
        return Configuration(ready, 10, 5)

    events = (Event(12, "a", "fail"), Event(14, "b", "fail"), Event(16, "b", "join"))
    replay(Trace(FOUR, events, 18), Policy("by hand", reconfigure, Recovery(), 1))
    assert told == [None, frozenset("a"), frozenset("ab"), frozenset("ab")]


def test_bug_replay_without_time_stops_at_an_event_and_says_so() -> None:
    """Time is up after the first failure: the run ends at the second one and is not complete."""
    events = (Event(10, "a", "fail"), Event(20, "b", "fail"))
    policy = Policy("by hand", by_count({4: 3, 3: 3, 2: 3}, 2), Recovery(), 1)
    asked = iter([False, True])
    run = replay(Trace(FOUR, events, 35), policy, lambda: next(asked))
    assert (run.complete, run.length_ns) == (False, 20)
    assert replay(Trace(FOUR, events, 35), policy).complete
