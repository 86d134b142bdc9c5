"""Failure traces: drawn, or as CSV files, with one line for everything unfit."""

from pathlib import Path

import pytest

from formulations.errors import InstanceError
from solver.replay.trace import (
    Event,
    Trace,
    failures_trace,
    length_ns,
    read_trace,
    regular_trace,
)

NODES = ("a-0", "a-1", "b-0")


def read(folder: Path, text: str, end_ns: int | None = None) -> Trace:
    """The trace of a file with this text."""
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return read_trace(path, NODES, end_ns)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90 s", 90), ("10m", 600), ("10 min", 600), ("6h", 21600), (" 1.5e3 ", 1500)],
)
def test_length_of_time(text: str, seconds: int) -> None:
    """Seconds without a unit; s, m, min and h."""
    assert length_ns(text) == seconds * 10**9


@pytest.mark.parametrize("text", ["", "m", "-1", "1 day", "nan", "inf", "1e400", "1e10", "0x10"])
def test_text_that_is_no_length_of_time(text: str) -> None:
    assert length_ns(text) is None


def test_trace_with_units_blanks_and_a_node_that_comes_later(tmp_path: Path) -> None:
    """b-0 joins first and so is not there from the start; the last event is the end."""
    text = "time, node, event\n\n 10 , a-0, fail\n1 min,b-0,join\n2 min,a-0,join\n"
    events = (
        Event(10 * 10**9, "a-0", "fail"),
        Event(60 * 10**9, "b-0", "join"),
        Event(120 * 10**9, "a-0", "join"),
    )
    assert read(tmp_path, text) == Trace(("a-0", "a-1"), events, 120 * 10**9)
    assert read(tmp_path, text, 7).end_ns == 7


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (
            "t,node,event\n1,a-0,fail",
            "1:1: 't,node,event'; allowed: the first line time,node,event",
        ),
        ("", "1:1: no event"),
        ("0,a-0,fail", "2:1: 0; allowed: a last time after 0"),
        ("1,a-0", "2:1: 2 fields; allowed: 3: time,node,event"),
        ("\nsoon,a-0,fail", "3:1 time: 'soon'; allowed: seconds"),
        ("1e99,a-0,fail", "2:1 time: '1e99'; allowed: seconds, or a number with s, min, h or d;"),
        ("9,a-0,fail\n 8,a-1,fail", "3:2 time: '8'; allowed: at least 9 s: times are in order"),
        ("1,a-9,fail", "2:3 node: unknown node 'a-9' (did you mean a-"),
        ("1,,fail", "2:3 node: unknown node ''; allowed: a-0, a-1, b-0"),
        ("1,a-0,dies", "2:7 event: 'dies'; allowed: fail or join"),
        ("1,a-0,fail\n2,a-0,fail", "3:7 event: fail of a-0, which has failed already"),
        ("1,a-0,join\n2,a-0,join", "3:7 event: join of a-0, which is there already"),
    ],
)
def test_unfit_trace_is_one_line(lines: str, found: str, tmp_path: Path) -> None:
    """File, line, column, what was found, what is allowed."""
    with pytest.raises(InstanceError) as caught:
        read(tmp_path, lines if lines[:1] == "t" else f"time,node,event\n{lines}")
    assert f"trace.csv:{found}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_regular_failures_take_nodes_until_half_is_left() -> None:
    """Of five nodes two fail, and the second ends the run; the seed decides which."""
    traces = [regular_trace("abcde", 10, seed) for seed in range(50)]
    assert traces[3] == regular_trace("abcde", 10, 3)
    for trace in traces:
        [failure] = trace.events
        assert (failure.time_ns, failure.kind, trace.end_ns) == (10, "fail", 20)
    assert {trace.events[0].node for trace in traces} == set("abcde")


def test_failures_trace_ends_with_the_last_failure() -> None:
    """The last time is the end of the run; no node fails twice."""
    trace = failures_trace(NODES, [10, 25, 25], seed=0)
    assert [event.time_ns for event in trace.events] == [10, 25]
    assert len({event.node for event in trace.events}) == 2
    assert (trace.nodes, trace.end_ns) == (NODES, 25)
