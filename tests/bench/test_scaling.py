"""The scaling benchmark: its instances, its records, its picture."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from bench.records import ROOT
from bench.scaling import INSTANCES, latest, measure, picture
from formulations.instance.load import load_instance
from solver.options import SolveOptions
from tests.small_instances import random_instance

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("nodes", [2, 4, 8, 16, 32, 64, 128, 256, 512])
def test_instances_share_the_nodes_equally_among_three_types(nodes: int) -> None:
    """2 to 512 nodes of 8 GPUs; 2 nodes have two types; all say that they are made up."""
    path = INSTANCES / f"nodes_{nodes:03}.yaml"
    instance = load_instance(path)
    counts = [group.nodes for group in instance.cluster.groups]
    assert sum(counts) == nodes
    assert len(counts) == min(3, nodes)
    assert max(counts) - min(counts) <= 1
    assert {group.gpus_per_node for group in instance.cluster.groups} == {8}
    assert sum(layer.is_block for layer in instance.workload.layers) == 96
    assert path.read_text(encoding="utf-8").startswith("# A made-up scaling problem")


def test_bug_gaps_were_noted_that_were_never_reached() -> None:
    """What is closed up to a gap has a bound below the plan; stored records say nothing else."""
    records = [measure(random_instance(seed), SolveOptions(gap=0.1)) for seed in range(4)]
    stored = (ROOT / "bench" / "results" / "scaling.jsonl").read_text(encoding="utf-8")
    records += map(json.loads, stored.splitlines())
    assert any(figures["gap"] for figures in records[:4])
    for figures in records:
        assert all(float(gap) + 1e-12 >= figures["gap"] for gap in figures["gap_reached_s"])


def test_record_has_what_the_picture_needs() -> None:
    """A tiny instance, solved: gap 0, and all configurations closed."""
    figures = measure(random_instance(1), SolveOptions())
    assert figures["status"] == "optimal"
    assert figures["gap"] == 0
    assert "open" not in figures["shapes"]
    assert figures["gap_reached_s"]["0"] >= 0
    records = [{"nodes": nodes, "run": n} | figures for n, nodes in enumerate((4, 2, 4))]
    records = latest(records)
    assert [(one["nodes"], one["run"]) for one in records] == [(2, 1), (4, 2)]
    # two dots each of wall time, CPU time and gap
    assert len(ElementTree.fromstring(picture(records)).findall(f"{SVG}circle")) == 6
