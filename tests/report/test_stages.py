"""Tables of stages, places, memory and traffic say what the plan file says."""

import re

import pytest

from formulations.decisions import Decisions
from formulations.instance import ZoneLink
from solver.document import PlanDocument
from solver.report.layout import labelled
from solver.report.stages import (
    alike,
    memory_table,
    placed,
    placement_table,
    stage_table,
    tightest,
    traffic_table,
    zone_lines,
)
from tests.certified_cases import CASES
from tests.equal_nodes import equal_nodes
from tests.hand_made import document_of, result_of
from tests.report.shown import PLANS, drawn, plan, stored


def test_placed_joins_nodes_and_gpus(document: PlanDocument) -> None:
    """Equal GPUs of several nodes are named once."""
    stages = [stage for replica in document.replicas for stage in replica.stages]
    assert placed(stages) == "fast-0..1: 0-1"


def test_identical_replicas_share_a_row(document: PlanDocument) -> None:
    """Two stages of two replicas that do the same: a row each, with times and memory as stored."""
    rows = list(alike(document))
    assert [(row.stage, row.chunk, row.replicas) for row in rows] == [
        (0, 0, [0, 1]),
        (1, 0, [0, 1]),
    ]
    grid = stage_table(document)
    assert [row[:3] for row in grid.rows] == [("0", "E, 0", "0-1"), ("1", "1, H", "0-1")]
    assert [heading.split()[0] for heading in grid.numbers] == [
        "forward",
        "backward",
        "used",
        "free",
    ]
    for row, cells in zip(rows, grid.rows, strict=True):
        stage = row.figures
        forward_ms, _, used_gib, free_gib = map(float, cells[-4:])
        assert forward_ms == pytest.approx(1e3 * stage.forward_s, rel=1e-3)
        assert used_gib == pytest.approx(stage.memory_bytes / 2**30, abs=0.01)
        free_bytes = stage.memory_limit_bytes - stage.memory_bytes
        assert free_gib == pytest.approx(free_bytes / 2**30, abs=0.01)


@pytest.mark.parametrize("name", PLANS)
def test_tables_of_small_plans(name: str) -> None:
    """Chunks are lines of their stage; columns stand there where they are needed."""
    document = plan(name)
    for table in (stage_table, memory_table, traffic_table, placement_table):
        assert drawn(table(document)) in stored(name)
    assert drawn(labelled(zone_lines(document))) in stored(name)
    assert tightest(document) in " ".join(stored(name).split())


def test_weight_gradients_have_a_column() -> None:
    """What is put off of a backward pass stands beside it, and in the plan file."""
    document = CASES["split_backward"]()
    assert any(re.match("weights", heading) for heading in stage_table(document).numbers)
    stages = document.replicas[0].stages
    assert all(0 < stage.weight_gradient_s < stage.backward_s for stage in stages)
    plain = CASES["pipelined"]()
    assert {stage.weight_gradient_s for stage in plain.replicas[0].stages} == {0.0}
    assert not any(re.match("weights", heading) for heading in stage_table(plain).numbers)


SLOW = ZoneLink(bandwidth_bytes_per_s=1.25e8, latency_s=0.02, kind="measured", source="iperf, 2026")
ASSUMED = "4.000 Gbit/s, 1.000 ms, assumed by the instance"
MEASURED = "1.000 Gbit/s, 20.00 ms, measured (iperf, 2026)"


@pytest.mark.parametrize(
    ("zones", "dp", "pp", "expected"),
    [
        ("xxyy", 2, 2, [f"zones: x to y: activations after stage 0; {ASSUMED}"]),
        ("xyxy", 2, 2, [f"zones: x to y: gradients of stages 0-1; {ASSUMED}"]),
        (
            "xyzx",
            1,
            4,
            [
                f"zones: x to y: activations after stage 0; {ASSUMED}",
                f"x to z: activations after stage 2; {MEASURED}",
                f"y to z: activations after stage 1; {ASSUMED}",
            ],
        ),
        ("xx", 1, 2, []),
    ],
)
def test_links_are_named_with_what_crosses(
    zones: str, dp: int, pp: int, expected: list[str]
) -> None:
    """Of one node per slot; x and z have a link of their own. Without zones there is no line."""
    own = {"zx": SLOW} if {"x", "z"} <= set(zones) else {}
    tables = equal_nodes(len(zones), 1, 1, dp, pp, zones=zones, own=own)
    cuts = tuple(round(4 * k / pp) for k in range(pp + 1))
    plan = Decisions(tuple(range(len(zones))), cuts, (4 // dp,) * dp).plan(tables)
    lines = zone_lines(document_of(result_of(tables.instance, plan)))
    assert [": ".join(line) if line[0] else line[1] for line in lines] == expected
