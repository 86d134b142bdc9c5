"""Failure traces: drawn, or as CSV files, with one line for everything unfit."""

from pathlib import Path

import pytest

from formulations.errors import InstanceError
from solver.replay.trace import Event, Trace, failures_trace, length_ns, read_trace, regular_trace
from tests.refusals import refusal, refusals

NODES = ("a-0", "a-1", "b-0")


def read(folder: Path, text: str, end_ns: int | None = None) -> Trace:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return read_trace(path, NODES, end_ns)


def test_length_of_time() -> None:
    """Seconds without a unit; s, m, min and h; or no such text."""
    texts = {"90": 90, "90 s": 90, "10m": 600, "10 min": 600, "6h": 21600, " 1.5e3 ": 1500}
    assert {text: length_ns(text) for text in texts} == {n: s * 10**9 for n, s in texts.items()}
    assert length_ns("1e9") == 10**18
    for text in ("", "m", "-1", "1 day", "nan", "inf", "1e400", "1e10", "0x10"):
        assert length_ns(text) is None


def test_trace_with_units_blanks_and_a_node_that_comes_later(tmp_path: Path) -> None:
    """b-0 joins first and so is not there from the start; the last event is the end."""
    text = "time, node, event\n\n 10 , a-0, fail\n1 min,b-0,join\n1 min,a-0,join\n"
    events = (
        Event(10 * 10**9, "a-0", "fail"),
        Event(60 * 10**9, "b-0", "join"),
        Event(60 * 10**9, "a-0", "join"),
    )
    assert read(tmp_path, text) == Trace(("a-0", "a-1"), events, 60 * 10**9)
    assert read(tmp_path, text, 7).end_ns == 7
    for count, names in ((8, "n0, n1, n2, n3, n4, n5, n6, n7"), (9, "n0, ..., n8")):
        nodes = [f"n{i}" for i in range(count)]
        with pytest.raises(InstanceError, match=f"allowed: {names}$"):
            read_trace(tmp_path / "trace.csv", nodes, None)


@refusals("trace")
def test_unfit_trace_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    told = refusal(lambda: read(tmp_path, text))
    assert f"trace.csv:{message}" in told
    assert "\n" not in told


def test_regular_failures_take_nodes_until_half_is_left() -> None:
    """Of five nodes two fail, and the second ends the run; the seed decides which."""
    traces = [regular_trace("abcde", 10, seed) for seed in range(50)]
    for trace in traces:
        [failure] = trace.events
        assert (failure.time_ns, failure.kind, trace.end_ns) == (10, "fail", 20)
    assert {trace.events[0].node for trace in traces} == set("abcde")
    trace = failures_trace(NODES, [10, 25, 25], seed=0)
    assert [event.time_ns for event in trace.events] == [10, 25]
    assert len({event.node for event in trace.events}) == 2
    assert (trace.nodes, trace.end_ns) == (NODES, 25)
