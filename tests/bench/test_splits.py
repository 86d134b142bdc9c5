"""The splits benchmark: its file format, and its results against brute force."""

import json
import random
import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from bench import splits
from bench.pipelines import Pipeline, read_pipelines
from formulations.errors import InstanceError
from tests.recursion import stage_ends
from tests.seeds import few_and_many


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


def least_makespan(case: Pipeline) -> int:
    """End of the last backward, by plain recursion, over all splits."""

    def makespan(split: tuple[int, ...]) -> int:
        stages = list(zip(pairwise(split), case.stage_slowness, strict=True))
        forward, backward = (
            [slow * sum(times[a:b]) for (a, b), slow in stages]
            for times in (case.layer_forward, case.layer_backward)
        )
        sends = case.send_forward, case.blocking_sends, case.send_backward
        return max(stage_ends(case.schedule, case.micro_batches, forward, backward, *sends))

    layers, p = len(case.layer_forward), len(case.stage_slowness)
    return min(makespan((0, *ends, layers)) for ends in combinations(range(1, layers), p - 1))


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


@pytest.mark.parametrize("seeds", few_and_many(range(60), 6))
def test_least_step_time_is_that_of_brute_force(seeds: range) -> None:
    """Also with other transfers back than forth, blocking sends, GPipe and one stage.

    Without time some split and a bound below the optimum; with a gap the bound is as close.
    """
    for seed in seeds:
        case = random_case(seed)
        least = least_makespan(case)
        found = splits.solve(case, gap=0.0, time_limit_s=None, repeats=1)
        assert found.step_time == found.bound == least
        late = splits.solve(case, gap=0.0, time_limit_s=0.0, repeats=1)
        assert late.bound <= least <= late.step_time
        near = splits.solve(case, gap=0.1, time_limit_s=None, repeats=1)
        assert 0.9 * near.step_time <= near.bound <= least <= near.step_time


@pytest.mark.slow
def test_reference_optima(reference: Path) -> None:
    """All 26 pipelines of the reference, up to 32 stages, have the optimum proved there."""
    cases = read_pipelines(reference / "splits" / "optimal.json")
    assert len(cases) == 26
    for case in cases:
        found = splits.solve(case, gap=0.0, time_limit_s=None, repeats=1)
        assert found.step_time == found.bound == case.optimal_step_time, case.name


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ([{}], "cases[0] name: "),
        ([case_of(send_forward=[])], "(small): send_forward has 0 entries, 1"),
        ([case_of(layer_forward=[1], layer_backward=[1])], "(small): 2 stages cannot each have"),
        ([case_of(micro_batches=1 << 50)], "(small): a step may take "),
    ],
)
def test_bad_file_is_one_line(cases: list[dict[str, Any]], expected: str, tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match=re.escape(expected)):
        read_pipelines(write(tmp_path / "x.json", *cases))
