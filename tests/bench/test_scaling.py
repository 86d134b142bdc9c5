"""The scaling benchmark: its records and its picture."""

import json
import xml.etree.ElementTree as ElementTree

from bench.records import ROOT
from bench.scaling import growth_picture, latest, measure
from solver.options import SolveOptions
from tests.small_instances import random_instance


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
