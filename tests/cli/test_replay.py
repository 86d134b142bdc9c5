"""The replay command: figures, picture, and refusals in one line."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.command_line import output, refused

INSTANCES = Path(__file__).resolve().parents[2] / "instances"
SMALL = INSTANCES / "hetero_small.yaml"


def test_replay_of_an_instance(tmp_path: Path) -> None:
    """By plans and by fleets of templates, on six nodes; with a picture of both runs."""
    trace, small, picture = (tmp_path / name for name in ("trace.csv", "small.yaml", "run.svg"))
    trace.write_text("time,node,event\n200,a40-3,fail\n", encoding="utf-8")
    text = (INSTANCES / "oobleck_gpt2.yaml").read_text(encoding="utf-8")
    small.write_text(text.replace("nodes: 30", "nodes: 6"), encoding="utf-8")
    command = (
        *("replay", small, "--trace", trace, "--until", "300", "--workers", 1),
        *("--pause", "10", "--policy", "restart", "--policy", "ours"),
    )
    runs = json.loads(output(*command, "--json", "--svg", picture))
    causes = {name: run["time_by_cause_s"] for name, run in runs.items()}
    # 45 s until nodes are ready, twice 10 s of pause, and copies for ours
    assert [times["waiting"] for times in causes.values()] == [45, 45]
    assert causes["restart"]["reconfiguration"] == 20
    assert 20 <= causes["ours"]["reconfiguration"] < 20.5
    assert causes["restart"]["lost"] > causes["ours"]["lost"] > 0
    for name, run in runs.items():
        assert sum(causes[name].values()) == pytest.approx(300)
        assert run["samples"] == 1024 * run["steps"]
        assert run["samples_per_s"] == pytest.approx(run["samples"] / 300)
    root = ElementTree.parse(picture).getroot()
    assert sum(element.get("class") == "c" for element in root.iter()) == 2
    words = output(*command)
    for part in ("5.00 min", "samples trained", "time lost", "costs: the stated pause"):
        assert part in words


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "say either --trace FILE or --every TIME"),
        (["--every", "1h", "--trace", "x"], "say either --trace FILE or --every TIME"),
        (["--every", "soon"], "--every 'soon' is not a time above 0; allowed: seconds"),
        (["--every", "0"], "--every '0' is not a time"),
        (["--every", "1h", "--until", "1"], "--until is"),
        (["--every", "1h", "--faults", "4"], "--faults 4; allowed: 0 to 3"),
        (["--every", "1h", "--horizon", "0"], "--horizon '0' is not a time above 0"),
        (["--trace", "none.csv"], "none.csv: no such file"),
        (["--policy", "none"], "--policy none is no policy; allowed: ours, restart or redundancy"),
        (["--policy", "varuna"], "--policy varuna is called restart; allowed: ours"),
        (["--policy", "bamboo"], "--policy bamboo is called redundancy; allowed: ours"),
        (["--policy", "oobleck"], "--policy oobleck is a benchmark, python -m bench policies"),
        (["--throughput", "x.json", "--model", "m"], "a benchmark, python -m bench replay"),
    ],
)
def test_unfit_options_are_one_line(arguments: list[str], problem: str) -> None:
    """Exit code 2, one line on stderr."""
    assert problem in refused("replay", SMALL, *arguments)
