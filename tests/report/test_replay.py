"""Replays in words and as a picture keep the samples and the time."""

from xml.etree import ElementTree

import pytest

from solver.replay.spans import Replay, Span
from solver.report.replay import averages, replay_picture

#: Two steps of 10 samples in 0..4 s, nothing to 6 s, one step to 10 s.
SPANS = (
    Span(0, 4 * 10**9, "training", 3, 2),
    Span(4 * 10**9, 6 * 10**9, "waiting", 0),
    Span(6 * 10**9, 10 * 10**9, "training", 3, 1),
)


def test_averages_keep_the_samples() -> None:
    """In parts of 2.5 s; of a run of 20 s the second half has nothing yet."""
    # 5 samples/s, then 1.5 s of 5; then 1.5 s of 2.5; then 2.5
    expected = [5, 7.5 / 2.5, 3.75 / 2.5, 2.5]
    assert averages(Replay(SPANS, 10), 4) == pytest.approx(expected)
    assert averages(Replay(SPANS, 10), 4, 20 * 10**9) == pytest.approx([4, 2, 0, 0])


def test_picture_has_a_curve_for_every_run_and_the_nodes() -> None:
    """Two policies, and how many nodes are ready in a line of its own."""
    run = Replay(SPANS, 10)
    root = ElementTree.fromstring(replay_picture("x", {"ours": run, "restart": run}))
    classes = [element.get("class") for element in root.iter() if element.tag.endswith("path")]
    assert classes == ["c", "c", "n"]
    texts = {element.text for element in root.iter()}
    assert {"ours", "restart", "nodes ready, 3 at the top", "x"} <= texts
