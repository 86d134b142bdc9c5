"""FASOP's plans beside our front: none beyond it, and by how much they are behind."""

import json
from pathlib import Path

import pytest

from bench.pareto import CASES, FASOP_CASE, faults, judged
from formulations.instance.family import Family
from formulations.instance.load import load_family
from solver.front_document import FrontDocument
from solver.report.document import build_front
from tests.small_families import searched


@pytest.fixture(scope="module")
def front() -> FrontDocument:
    """Of at most one node of each type."""
    family = load_family(CASES[FASOP_CASE].path)
    cluster = family.instance.cluster
    groups = tuple(group.but(nodes=1) for group in cluster.groups)
    cluster = cluster.but(groups=groups)
    instance = family.instance.but(cluster=cluster)
    return build_front(searched(Family(instance=instance, fewest=(0, 0)), gap=0.01), "front")


def test_plan_lies_behind_the_front(front: FrontDocument, reference: Path) -> None:
    """FASOP's best plan of one A10 node takes longer than ours, and so costs more."""
    path = reference / "fasop" / "pareto_gpt2xl.json"
    best = json.loads(path.read_text(encoding="utf-8"))["best"]
    one = next(x for x in best if (x["num_a100_nodes"], x["num_a10_nodes"]) == (0, 1))
    found = judged(front, one, {(0, 1)})
    [point] = [point for point in front.points if point.nodes == (0, 1)]
    assert point.plan.step_time_s is not None
    assert found["behind"] == pytest.approx(found["step_time_s"] / point.plan.step_time_s - 1)
    assert found["on_their_front"]
    assert found["better"] == (0, 1)
    assert not faults([], [found])
