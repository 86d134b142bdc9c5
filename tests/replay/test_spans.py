"""Stretches of a run and their sums, by hand."""

import pytest

from formulations.errors import PlannerError
from solver.replay.spans import History, Replay, Span, joined


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
    monkeypatch.setattr("solver.replay.spans.MOST_SPANS", 4)
    made = history()
    with pytest.raises(PlannerError, match="more than 4 spans; shorten it"):
        made.add(38, 40, "training", 3, 1)
