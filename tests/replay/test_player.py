"""Replays of drawn traces as they are recorded, and worked out by hand."""

import random
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import get_args

import pytest

from formulations.errors import PlannerError
from solver.replay.player import Replay, replay
from solver.replay.policy import Checkpoints, Configuration, InFlight, Policy, Reconfigure, Recovery
from solver.replay.trace import Event, EventKind, Trace
from tests.recorded import Cases, digest, recorded
from tests.template_cases import even_designs, fleet_of

FOUR = ("a", "b", "c", "d")
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
def test_replays_are_the_recorded_ones(
    in_flight: InFlight, checkpoints: Checkpoints | None
) -> Cases:
    """On random traces, step times and pauses; spans follow each other, and cover all of them."""
    for seed in range(100):
        rng = random.Random(seed)
        trace = _random_trace(rng)
        step_ns = {n: rng.randint(1, 12) for n in range(rng.randint(1, 3), 14)}
        pause_ns = {n: rng.randint(0, 15) for n in range(14)}
        recovery = Recovery(in_flight, checkpoints, rng.choice((0, 2, 6)), 150, rng.randint(0, 20))
        run = replay(trace, Policy(by_count(step_ns, pause_ns), recovery, 1))
        assert [run.spans[0].start_ns, run.spans[-1].end_ns] == [0, trace.end_ns]
        assert all(a.end_ns == b.start_ns for a, b in pairwise(run.spans))
        spans = [[span.cause, span.end_ns, span.nodes, span.steps] for span in run.spans]
        rates = run.samples, run.samples_per_s, run.samples_per_s_between_steps
        told = [*rates, *spans] if seed < 12 else digest([rates, spans])
        yield f"{seed} {in_flight} {checkpoints is not None}", told


def played(
    events: str,
    end_ns: int,
    reconfigure: Reconfigure,
    recovery: Recovery = Recovery(),  # noqa: B008
    stop: Callable[[], bool] = lambda: False,
) -> Replay:
    """Events such as "32 a fail, 40 a join"; one sample a step."""
    kinds: dict[str, EventKind] = {"fail": "fail", "join": "join"}
    listed = [text.split() for text in events.split(",") if text]
    trace = Trace(FOUR, tuple(Event(int(t), node, kinds[k]) for t, node, k in listed), end_ns)
    return replay(trace, Policy(reconfigure, recovery, 1), stop)


def outcome(run: Replay) -> tuple[int, dict[str, int]]:
    """Steps, and times by cause without those that are 0."""
    times = {str(cause): time_ns for cause, time_ns in run.time_by_cause_ns.items() if time_ns}
    return run.steps, times


#: Steps of 10 ns on four nodes, of 12 on fewer and of 8 on five, after a pause of 5.
STEPS = by_count({5: 8, 4: 10, 3: 12, 2: 12})
SLOWED = Recovery("slowed", slowdown_percent=150, fatal_pause_ns=20)


@pytest.mark.parametrize(
    ("events", "recovery", "steps", "times"),
    [
        # 5 to 12 lost, a pause to 17, steps to 29 and beyond 40
        ("12 a fail", Recovery(), 1, "reconfiguration 10, lost 7, training 12, unfinished 11"),
        # it is trained on to 15 in the pause; the next in the background is given up at 17
        ("12 a fail", Recovery("background"), 2, "reconfiguration 7, training 22, unfinished 11"),
        # the 3 ns left take 5, 2 of them more than usual; then the pause
        ("12 a fail", SLOWED, 2, "reconfiguration 10, training 22, redundant 2, unfinished 6"),
        # a second failure is fatal: all since 5 is lost, and the pause is one of 20
        ("12 a fail,14 b fail", SLOWED, 0, "reconfiguration 25, lost 9, unfinished 6"),
        # steps to 15 and 25 are written until 28; of the third, not even that to 38 is left
        (
            "39 a fail",
            Recovery(checkpoints=Checkpoints(2, 3)),
            2,
            "reconfiguration 6, training 20, checkpoint 3, lost 11",
        ),
        # nodes are ready 6 ns later: e at 18, with which pipelines are formed anew after a step
        (
            "12 e join",
            Recovery(node_ready_ns=6),
            2,
            "waiting 6, reconfiguration 10, training 18, unfinished 6",
        ),
    ],
)
def test_failures_by_hand(events: str, recovery: Recovery, steps: int, times: str) -> None:
    """Of 40 ns, of which the first pause takes 5."""
    run = played(events, 40, STEPS, recovery)
    pairs = (part.split() for part in times.split(", "))
    assert outcome(run) == (steps, {cause: int(time_ns) for cause, time_ns in pairs})


@pytest.mark.parametrize("in_flight", IN_FLIGHT[:2])
def test_idle_nodes_and_state_that_is_lost_by_hand(in_flight: InFlight) -> None:
    """The failure of d, which is idle, costs nothing: three steps from 5 to 35.

    Where no node holds the layers of a, steps of 10 ns since 5 are lost with it at 32.
    """
    recovery = Recovery(in_flight)
    idle = played("12 d fail", 35, lambda _, ready: Configuration(ready - {"d"}, 10, 5), recovery)
    assert outcome(idle) == (3, {"reconfiguration": 5, "training": 30})
    gone = played("32 a fail", 60, by_count({4: 10, 3: 10}, keeps_state=4), recovery)
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
