"""The scaling benchmark: its instances, its records, its picture."""

import json
import xml.etree.ElementTree as ElementTree

from bench.records import ROOT
from bench.scaling import INSTANCES, growth_picture, latest, measure
from formulations.instance.load import load_instance
from solver.options import SolveOptions
from tests.small_instances import random_instance


def test_instances_share_the_nodes_equally_among_three_types() -> None:
    """2 to 512 nodes of 8 GPUs; 2 nodes have two types."""
    paths = sorted(INSTANCES.glob("*.yaml"))
    assert [int(path.stem.removeprefix("nodes_")) for path in paths] == [2**n for n in range(1, 10)]
    for n, path in enumerate(paths, 1):
        groups = load_instance(path).cluster.groups
        counts = [group.nodes for group in groups]
        assert (sum(counts), len(counts)) == (2**n, min(3, 2**n))
        assert max(counts) - min(counts) <= 1
        assert {group.gpus_per_node for group in groups} == {8}


def test_bug_gaps_were_noted_that_were_never_reached() -> None:
    """What is closed up to a gap has a bound below the plan; stored records say nothing else."""
    records = [measure(random_instance(seed), SolveOptions(gap=0.1)) for seed in range(2)]
    stored = (ROOT / "bench" / "results" / "scaling.jsonl").read_text(encoding="utf-8")
    records += map(json.loads, stored.splitlines())
    assert any(figures["gap"] for figures in records[:2])
    for figures in records:
        assert all(float(gap) + 1e-12 >= figures["gap"] for gap in figures["gap_reached_s"])
    # two dots each of wall time, CPU time and gap
    drawn = latest([{"nodes": nodes, "run": nodes} | records[0] for nodes in (4, 2, 4)])
    svg = "{http://www.w3.org/2000/svg}circle"
    assert len(ElementTree.fromstring(growth_picture(drawn)).findall(svg)) == 6
