"""FASOP's plans beside our front: none beyond it, and by how much they are behind."""

import json
from pathlib import Path

import pytest

from bench.pareto import CASES, FASOP_CASE, faults, judged
from formulations.instance.instance import Family
from formulations.instance.load import load_family
from tests.small_families import searched


def test_plan_lies_behind_the_front(reference: Path) -> None:
    """FASOP's best plan of one A10 node takes longer than ours, and so costs more."""
    instance = load_family(CASES[FASOP_CASE].path).instance
    groups = tuple(group.but(nodes=1) for group in instance.cluster.groups)
    family = Family(instance=instance.but(cluster={"groups": groups}), fewest=(0, 0))
    front = searched(family, gap=0.01)
    path = reference / "fasop" / "pareto_gpt2xl.json"
    best = json.loads(path.read_text(encoding="utf-8"))["best"]
    entry = next(x for x in best if (x["num_a100_nodes"], x["num_a10_nodes"]) == (0, 1))
    found = judged(front, entry, {(0, 1)})
    [point] = [point for point in front.points if point.nodes == (0, 1)]
    assert point.plan.step_time_s is not None
    assert found["behind"] == pytest.approx(found["step_time_s"] / point.plan.step_time_s - 1)
    assert (found["on_their_front"], found["better"]) == (True, (0, 1))
    assert not faults([], [found])
