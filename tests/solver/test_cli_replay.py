"""The replay command: figures, picture, and refusals in one line."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from solver.replay.spans import Replay, Span
from solver.report.chart import round_ticks
from solver.report.replay import averages, long_time_text
from tests.command_line import output, refused

ROOT = Path(__file__).resolve().parents[2]
CONTENT: dict[str, Any] = {
    "throughput_by_nodes": {
        "oobleck": {"m": [1.0, 0.5, 0.25, 0.125]},
        "varuna": {"m": [1.0, 0.5, 0.25, 0.125]},
        "bamboo": {"m": [1.0, 0.5, 0.25, 0.125]},
    },
    "most_nodes": 4,
    "samples_per_step": {"m": 10},
    "oobleck_reconfig_ms": {"m": 5000},
    "varuna": {
        "restart_ms": {"m": 8000},
        "checkpoint_ms": {"m": 2000},
        "checkpoint_every_steps": 2,
    },
    "bamboo": {"rebalance_ms": {"m": 6000}, "slowdown_percent": 150, "restart_ms": 30000},
    "traces_removal_ms": {"named": [20000, 50000]},
}


@pytest.fixture
def throughput(tmp_path: Path) -> Path:
    """4 nodes: 10 s a step; 3 nodes: 20 s."""
    path = tmp_path / "throughput.json"
    path.write_text(json.dumps(CONTENT), encoding="utf-8")
    return path


def test_replay_of_a_throughput_file(throughput: Path, tmp_path: Path) -> None:
    """Failures every 50 s until half is left: one at 50 s, the end at 100 s.

    5 s pause, 4 steps to 45 s, 5 s lost, pause to 55 s, 2 steps of 20 s to 95 s, 5 s unfinished.
    """
    picture = tmp_path / "run.svg"
    out = output(
        *("replay", "--throughput", throughput, "--model", "m", "--every", "50s", "--json"),
        *("--policy", "oobleck", "--policy", "varuna", "--policy", "bamboo", "--svg", picture),
    )
    found = json.loads(out)
    assert list(found) == ["oobleck", "varuna", "bamboo"]
    oobleck = found["oobleck"]
    assert (oobleck["samples"], oobleck["steps"]) == (60, 6)
    assert oobleck["samples_per_s"] == pytest.approx(0.6)
    assert oobleck["samples_per_s_between_steps"] == pytest.approx(60 / 90)
    assert {k: v for k, v in oobleck["time_by_cause_s"].items() if v} == {
        "training": 80,
        "lost": 5,
        "reconfiguration": 10,
        "unfinished": 5,
    }
    assert sum(found["varuna"]["time_by_cause_s"].values()) == 100
    root = ElementTree.parse(picture).getroot()
    assert root.tag.endswith("svg")
    assert sum(element.get("class") == "c" for element in root.iter()) == 3


def test_named_trace_of_the_file(throughput: Path) -> None:
    """`--every named` is the file's trace: a failure at 20 s, the end at 50 s."""
    out = output("replay", "--throughput", throughput, "--model", "m", "--every", "named", "--json")
    assert json.loads(out)["oobleck"]["spans"][-1][1] == 50


def test_replay_in_words(throughput: Path) -> None:
    """Samples, throughput, time by cause, and where the figures come from."""
    out = output("replay", "--throughput", throughput, "--model", "m", "--every", "50s")
    for part in ("1.67 min", "samples trained", "time lost", "5.00 s, 5.0 %", "throughput.json"):
        assert part in out


def test_replay_of_an_instance(tmp_path: Path) -> None:
    """By plans and by fleets of templates, on six nodes."""
    trace, small = tmp_path / "trace.csv", tmp_path / "small.yaml"
    trace.write_text("time,node,event\n200,a40-3,fail\n", encoding="utf-8")
    text = (ROOT / "instances" / "oobleck_gpt2.yaml").read_text(encoding="utf-8")
    small.write_text(text.replace("nodes: 30", "nodes: 6"), encoding="utf-8")
    out = output(
        *("replay", small, "--trace", trace, "--until", "300", "--json", "--workers", 1),
        *("--pause", "10", "--policy", "varuna", "--policy", "ours"),
    )
    found = json.loads(out)
    causes = {name: one["time_by_cause_s"] for name, one in found.items()}
    # 45 s until nodes are ready, twice 10 s of pause, and copies for ours
    assert [one["waiting"] for one in causes.values()] == [45, 45]
    assert causes["varuna"]["reconfiguration"] == 20
    assert 20 <= causes["ours"]["reconfiguration"] < 20.5
    assert causes["varuna"]["lost"] > causes["ours"]["lost"] > 0
    for name, one in found.items():
        assert sum(causes[name].values()) == pytest.approx(300)
        assert one["samples"] == 1024 * one["steps"]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], "name either an instance file or"),
        (["x.yaml", "--throughput", "y.json"], "name either an instance file or"),
        (["--throughput", "FILE", "--every", "1h"], "--throughput needs --model"),
        (["SMALL", "--model", "m"], "--model is for --throughput"),
        (["--throughput", "FILE", "--model", "m"], "say either --trace FILE or --every TIME"),
        (
            ["--throughput", "FILE", "--model", "m", "--every", "1h", "--trace", "x"],
            "say either --trace FILE or --every TIME",
        ),
        (
            ["--throughput", "FILE", "--model", "m", "--every", "soon"],
            "--every 'soon' is not a time above 0; allowed: seconds",
        ),
        (["--throughput", "FILE", "--model", "m", "--every", "0"], "--every '0' is not a time"),
        (["--throughput", "FILE", "--model", "m", "--every", "1h", "--until", "1"], "--until is"),
        (["--throughput", "FILE", "--model", "n", "--every", "1h"], "unknown model 'n'"),
        (["--throughput", "FILE", "--model", "m", "--pause", "1"], "so no --faults, --pause or"),
        (
            ["--throughput", "FILE", "--model", "m", "--every", "1h", "--policy", "ours"],
            "--policy ours needs an instance",
        ),
        (["SMALL", "--every", "1h", "--faults", "4"], "--faults 4; allowed: 0 to 3"),
        (["SMALL", "--every", "1h", "--horizon", "0"], "--horizon '0' is not a time above 0"),
        (["--throughput", "FILE", "--model", "m", "--trace", "none.csv"], "none.csv: no such file"),
    ],
)
def test_unfit_options_are_one_line(
    arguments: list[str], found: str, throughput: Path, tmp_path: Path
) -> None:
    """Exit code 2, one line on stderr."""
    files = {"FILE": str(throughput), "SMALL": str(ROOT / "instances" / "hetero_small.yaml")}
    words = [files.get(word, word) for word in arguments]
    err = refused("replay", *words)
    assert found in err


def test_averages_keep_the_samples() -> None:
    """Two steps of 10 samples in 0..4 s, nothing to 6 s, one step to 10 s; parts of 2.5 s."""
    spans = (
        Span(0, 4 * 10**9, "training", 3, 2),
        Span(4 * 10**9, 6 * 10**9, "waiting", 0),
        Span(6 * 10**9, 10 * 10**9, "training", 3, 1),
    )
    # 5 samples/s, then 1.5 s of 5; then 1.5 s of 2.5; then 2.5
    expected = [5, 7.5 / 2.5, 3.75 / 2.5, 2.5]
    assert averages(Replay(spans, 10), 4) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("most", "ticks"),
    [(1.0, [0, 0.1, 1.0]), (9.9, [0, 1, 10]), (21, [0, 5, 25]), (0.034, [0, 0.005, 0.035])],
)
def test_ticks_are_round_and_reach_the_most(most: float, ticks: list[float]) -> None:
    """First, distance and last."""
    found = round_ticks(most)
    assert [found[0], found[1], found[-1]] == pytest.approx(ticks)


def test_long_times() -> None:
    """Three digits, the largest unit that fits."""
    assert [long_time_text(s * 10**9) for s in (90, 5400, 172800)] == [
        "1.50 min",
        "1.50 h",
        "2.00 d",
    ]
