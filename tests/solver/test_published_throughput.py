"""Oobleck's Table 2 from its published inputs, and the refusal of unfit files."""

import json
from pathlib import Path
from typing import Any

import pytest

from formulations.errors import InstanceError
from solver.replay.player import replay
from solver.replay.policy import Configuration
from solver.replay.published import read_throughput

#: Oobleck (SOSP 2023), Table 2, its own column: samples/s with a failure every 6 h, 1 h, 10 min.
TABLE_2 = {
    "BERT-large": (287.1, 286.28, 282.11),
    "GPT-2-ours": (85.59, 85.42, 84.8),
    "GPT-3-medium": (29.3, 29.21, 28.7),
    "GPT-3-2_7b": (7.29, 7.23, 6.89),
    "GPT-3-6_7b": (4.33, 4.22, 3.55),
}
NODES = tuple(f"node-{i}" for i in range(30))


@pytest.mark.parametrize("model", TABLE_2)
def test_table_2_of_oobleck_is_reproduced(model: str, reference: Path) -> None:
    """Within 0.1 % of the public simulator's output, and within the paper's rounding to 0.01."""
    path = reference / "oobleck" / "table2_inputs.json"
    inputs = read_throughput(path)
    stored = json.loads(path.read_text())["oobleck_mini"][model]
    policy = inputs.policy("oobleck", model, "background")
    strict = inputs.policy("oobleck", model, "lost")
    for name, printed in zip(("6h", "1h", "10m"), TABLE_2[model], strict=True):
        trace = inputs.trace(name, NODES)
        assert trace is not None
        found = replay(trace, policy).samples_per_s_between_steps
        assert found == pytest.approx(stored[name]["artifact"], rel=1e-4)
        assert found == pytest.approx(printed, abs=0.0101)
        lost = replay(trace, strict).samples_per_s_between_steps
        assert lost == pytest.approx(stored[name]["mini_strict_loss"], rel=1e-4)


CONTENT: dict[str, Any] = {
    "throughput_by_nodes": {"oobleck": {"m": [2.0, 1.0, 0.0]}, "varuna": {"m": [2.0]}},
    "most_nodes": 3,
    "samples_per_step": {"m": 4},
    "node_ready_ms": 7,
    "oobleck_reconfig_ms": {"m": {"3": 50, "1": 20.5}},
    "varuna": {"restart_ms": {"m": 9}, "checkpoint_ms": {"m": 3}, "checkpoint_every_steps": 10},
    "traces_removal_ms": {"1h": [5, 5]},
}


def written(folder: Path, **changes: Any) -> Path:
    """A file of the content above with other fields."""
    path = folder / "throughput.json"
    path.write_text(json.dumps(CONTENT | changes, indent=1))
    return path


def test_step_times_and_pauses_follow_the_number_of_nodes(tmp_path: Path) -> None:
    """4 samples at 1/s on 2 nodes are 4 s; the pause of 1 node holds for 2; 1 node cannot train."""
    policy = read_throughput(written(tmp_path)).policy("oobleck", "m")
    two = frozenset("ab")
    assert policy.reconfigure(None, two) == Configuration(two, 4_000_000_000, 20_500_000)
    assert policy.reconfigure(None, frozenset("a")) is None
    four = frozenset("abcd")
    assert policy.reconfigure(None, four) == Configuration(four, 2_000_000_000, 50_000_000)
    assert policy.recovery.node_ready_ns == 7_000_000


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"most_nodes": 0}, "throughput.json:16:16 most_nodes: 0; allowed: at least 1"),
        ({"most_nodes": 10**30}, "allowed: at most 10000"),
        ({"samples_per_step": {"m": 10**400}}, "allowed: at most 1000000000"),
        ({"node_ready_ms": 10**40}, "allowed: at most 1e+12"),
        ({"most_nodes": None}, "most_nodes: missing; allowed: number of nodes"),
        ({"samples_per_step": {"n": 4}}, "unknown model 'm'; allowed: n"),
        ({"oobleck_reconfig_ms": {"m": "varies"}}, "'varies'; allowed: milliseconds from 0"),
        ({"oobleck_reconfig_ms": {"m": {"two": 3}}}, "'two': 3; allowed: milliseconds from 0"),
        ({"oobleck_reconfig_ms": {"m": None}}, "oobleck_reconfig_ms.m: nothing; allowed: milli"),
        ({"oobleck_reconfig_ms": {"m": {}}}, "an empty mapping; allowed: milliseconds"),
        ({"oobleck_reconfig_ms": {"m": 1e308}}, "1e+308; allowed: milliseconds"),
        ({"oobleck_reconfig_ms": {"m": -1}}, "-1; allowed: milliseconds from 0"),
        ({"oobleck_reconfig_ms": {}}, "oobleck_reconfig_ms: unknown model 'm'"),
        ({"throughput_by_nodes": {"bamboo": {}}}, "unknown policy 'oobleck'; allowed: bamboo"),
        ({"throughput_by_nodes": {"oobleck": {"m": [0.0]}}}, "not all 0"),
        ({"throughput_by_nodes": {"oobleck": {"m": [1e-300]}}}, "0 or from 1e-06 to 1e+06"),
        ({"samples_per_step": {"m": 0}}, "samples_per_step.m: 0; allowed: at least 1"),
        ({"throughput_by_nodes": {"oobleck": {"m": [1.0, -1.0]}}}, "0 or from"),
        ({"throughput_by_nodes": {"oobleck": {"m": [1.0] * 4}}}, "1 to 3 numbers"),
        ({"node_ready_ms": "soon"}, "node_ready_ms: 'soon'; allowed: a whole number"),
    ],
)
def test_unfit_file_is_refused(changes: dict[str, Any], found: str, tmp_path: Path) -> None:
    """One line with the place, what was found and what is allowed."""
    with pytest.raises(InstanceError) as caught:
        read_throughput(written(tmp_path, **changes)).policy("oobleck", "m")
    assert found in str(caught.value)
    assert "throughput.json:" in str(caught.value)


@pytest.mark.parametrize(
    ("times", "found"),
    [([5, 4], "4; allowed: 5 to 1000000000000: times are in order"), ([], "0 fail")],
)
def test_unfit_trace_of_a_file_is_refused(times: list[int], found: str, tmp_path: Path) -> None:
    """Times out of order, and a trace without failures."""
    inputs = read_throughput(written(tmp_path, traces_removal_ms={"1h": times}))
    with pytest.raises(InstanceError) as caught:
        inputs.trace("1h", NODES)
    assert found in str(caught.value)


def test_bamboo_needs_its_costs(tmp_path: Path) -> None:
    """The field that is missing is named."""
    with pytest.raises(InstanceError, match="bamboo: missing; allowed: rebalancing"):
        read_throughput(written(tmp_path)).policy("bamboo", "m")
