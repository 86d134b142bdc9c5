"""The splits benchmark: its file format, its results against brute force, its answers."""

import json
import random
import sys
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from bench import splits
from bench.pipelines import Pipeline, read_pipelines
from formulations.errors import InstanceError
from tests.recursion import stage_ends

STORED = Path(__file__).parents[2] / "bench" / "pipelines.json"


def case_of(**changes: Any) -> dict[str, Any]:
    """Three layers on two stages, two micro-batches."""
    return {
        "name": "small",
        "micro_batches": 2,
        "layer_forward": [1, 2, 3],
        "layer_backward": [2, 4, 6],
        "stage_slowness": [1, 2],
        "send_forward": [5],
        "send_backward": [7],
    } | changes


def write(path: Path, *cases: dict[str, Any]) -> Path:
    """A file of these cases."""
    path.write_text(json.dumps({"note": "", "cases": cases}), encoding="utf-8")
    return path


def makespan(case: Pipeline, split: tuple[int, ...]) -> int:
    """End of the last backward, by plain recursion."""
    stages = list(zip(pairwise(split), case.stage_slowness, strict=True))
    forward, backward = (
        [slow * sum(times[a:b]) for (a, b), slow in stages]
        for times in (case.layer_forward, case.layer_backward)
    )
    sends = case.send_forward, case.blocking_sends, case.send_backward
    return max(stage_ends(case.schedule, case.micro_batches, forward, backward, *sends))


def least_makespan(case: Pipeline) -> int:
    """Over all splits."""
    layers, p = len(case.layer_forward), len(case.stage_slowness)
    inner = combinations(range(1, layers), p - 1)
    return min(makespan(case, (0, *ends, layers)) for ends in inner)


def random_case(seed: int) -> Pipeline:
    """Up to 7 layers and 4 stages, unlike transfers, either schedule, sends of both kinds."""
    draw = random.Random(seed)
    p = draw.randint(1, 4)
    layers = draw.randint(p, 7)

    def times(count: int) -> list[int]:
        return [draw.randint(0, 40) for _ in range(count)]

    return Pipeline.model_validate(
        case_of(
            micro_batches=draw.randint(1, 8),
            layer_forward=times(layers),
            layer_backward=times(layers),
            stage_slowness=[draw.randint(1, 3) for _ in range(p)],
            send_forward=times(p - 1),
            send_backward=times(p - 1),
            schedule=draw.choice(["1f1b", "gpipe"]),
            blocking_sends=draw.random() < 0.5,
        )
    )


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    """The command with these arguments."""
    monkeypatch.setattr(sys, "argv", ["splits", *map(str, arguments)])
    splits.main()


@pytest.mark.parametrize("seed", range(60))
def test_least_step_time_is_that_of_brute_force(seed: int) -> None:
    """Also with other transfers back than forth, blocking sends, GPipe and one stage."""
    case = random_case(seed)
    found = splits.solve(case, gap=0.0, time_limit_s=None, repeats=1)
    assert found.step_time == found.bound == least_makespan(case)


@pytest.mark.parametrize("seed", range(20))
def test_bound_holds_when_time_is_up(seed: int) -> None:
    """No time at all: some split, and a bound below the optimum."""
    case = random_case(seed)
    found = splits.solve(case, gap=0.0, time_limit_s=0.0, repeats=1)
    assert found.bound <= least_makespan(case) <= found.step_time


def test_bound_is_near_when_time_is_up() -> None:
    """No time at all on 50 equal layers and 8 stages: within 10 % of the split found."""
    case = next(case for case in read_pipelines(STORED) if case.name == "equal_50_8_64")
    found = splits.solve(case, gap=0.0, time_limit_s=0.0, repeats=1)
    assert 0.9 * found.step_time < found.bound <= found.step_time


@pytest.mark.parametrize("seed", range(20))
def test_bound_is_as_close_as_the_gap_asks(seed: int) -> None:
    """Within 10 % of the step time, and no lie."""
    case = random_case(seed)
    found = splits.solve(case, gap=0.1, time_limit_s=None, repeats=1)
    assert 0.9 * found.step_time <= found.bound <= least_makespan(case) <= found.step_time


def test_reference_optima(reference: Path) -> None:
    """All 26 pipelines of the reference, up to 32 stages, have the optimum proved there."""
    cases = read_pipelines(reference / "splits" / "optimal.json")
    assert len(cases) == 26
    for case in cases:
        found = splits.solve(case, gap=0.0, time_limit_s=None, repeats=1)
        assert found.step_time == found.bound == case.optimal_step_time, case.name


def test_json_is_a_list_of_four_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object per case, in the file's order.

    All three layers one after the other on stages [0, 2), [2, 3): forward 3 and 6, backward 6
    and 12, transfers 5 and 7. F0 ends at 3, arrives at 8, B0 ends 8 + 18 = 26, B1 44, is back at
    51 and ends at 57. [0, 1), [1, 3): 1, arrives at 6, two times 10 + 20, back at 73, ends at 75.
    """
    run(monkeypatch, write(tmp_path / "x.json", case_of(), case_of(name="other")), "--json")
    answer = json.loads(capsys.readouterr().out)
    assert [one.pop("name") for one in answer] == ["small", "other"]
    for one in answer:
        assert one.pop("seconds") > 0
        assert one == {"step_time": 57, "bound": 57}


def test_table_and_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table shows what the records store."""
    out = tmp_path / "records.jsonl"
    run(monkeypatch, write(tmp_path / "x.json", case_of()), "--out", out, "--repeats", "2")
    assert "small" in capsys.readouterr().out
    (one,) = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert (one["step_time"], one["bound"], one["repeats"]) == (57, 57, 2)
    assert {"hardware", "versions", "options", "load_average"} <= one.keys()


def test_wrong_stored_optimum_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """56 where 57 is the least."""
    path = write(tmp_path / "x.json", case_of(optimal_step_time=56))
    with pytest.raises(SystemExit, match=r"small: .*57.* but the stored optimum is 56"):
        run(monkeypatch, path, "--json")


BAD = {
    "no list": ({"cases": 3}, "cases: "),
    "empty case": ({"cases": [{}]}, "cases[0] name: "),
    "length": ({"cases": [case_of(send_forward=[])]}, "(small): send_forward has 0 entries, 1"),
    "text": ({"cases": [case_of(micro_batches="2")]}, "(small) micro_batches: "),
    "fraction": ({"cases": [case_of(layer_forward=[1.5, 2, 3])]}, "(small) layer_forward.0: "),
    "negative": ({"cases": [case_of(layer_forward=[-1, 2, 3])]}, "(small) layer_forward.0: "),
    "schedule": ({"cases": [case_of(schedule="zb")]}, "(small) schedule: "),
    "stages": (
        {"cases": [case_of(stage_slowness=[1] * 4, send_forward=[0] * 3, send_backward=[0] * 3)]},
        "(small): 4 stages cannot each have one of 3 layers",
    ),
    "huge": ({"cases": [case_of(micro_batches=1 << 50)]}, "(small): a step may take "),
    "list": ([], "x.json: "),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_is_one_line_and_status_2(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the place and what was found."""
    content, expected = BAD[name]
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, path)
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line
    assert expected in line


@pytest.mark.parametrize("content", [None, b"{", b"\xff"])
def test_unreadable_file_is_refused(content: bytes | None, tmp_path: Path) -> None:
    """Missing, not JSON, not UTF-8."""
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InstanceError, match=r"x\.json"):
        read_pipelines(path)


def test_unknown_case_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the names there are."""
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, write(tmp_path / "x.json", case_of()), "--case", "big")
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "--case: no case 'big'; allowed: small\n"


def test_unknown_field_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is not silently ignored."""
    (case,) = read_pipelines(write(tmp_path / "x.json", case_of(memory=3)))
    assert case.name == "small"
    assert "'memory'" in caplog.text


def test_stored_cases_are_what_their_note_says() -> None:
    """Layer times, slowness and transfers by the formulas of the file's note."""
    cases = read_pipelines(STORED)
    assert len(cases) == 12
    for case in cases:
        kind, layers, p, m = case.name.split("_")[0], *map(int, case.name.split("_")[1:])
        forward = tuple(600 + 7919 * (i + 1) ** 3 % 797 for i in range(layers))
        if kind == "equal":
            forward = (300, *(1000,) * (layers - 2), 900)
        fast = [(k**3 + 2 * k) % 11 < 3 if kind == "mixed" else k < p // 4 for k in range(p)]
        send = tuple(100 + 7919 * (k + 1) ** 2 % 701 for k in range(p - 1))
        assert case.micro_batches == m
        assert case.layer_forward == forward
        assert case.layer_backward == tuple(2 * time for time in forward)
        assert case.stage_slowness == tuple(2 if one else 5 for one in fast)
        assert case.send_forward == case.send_backward == send
