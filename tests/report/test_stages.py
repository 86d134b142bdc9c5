"""Tables of stages, places, memory and traffic say what the plan file says."""

from itertools import product

import pytest

from formulations.decisions import Decisions
from formulations.instance import ZoneLink
from solver.options import SolveOptions
from solver.report.layout import Labelled
from solver.report.stages import (
    all_stages,
    memory_table,
    placed,
    placement_table,
    stage_table,
    tightest,
    traffic_table,
    zone_lines,
)
from solver.search.driver import solve
from tests.chain_instances import equal_nodes
from tests.hand_made import document_of, result_of
from tests.recorded import Cases, recorded
from tests.report.shown import PLANS, drawn, plan, stored
from tests.search.spaces import joined


@pytest.mark.parametrize("name", PLANS)
def test_tables_of_small_plans(name: str) -> None:
    """Chunks are lines of their stage; columns stand there where they are needed."""
    document = plan(name)
    for table in (stage_table, memory_table, traffic_table, placement_table):
        assert drawn(table(document)) in stored(name)
    assert drawn(Labelled(zone_lines(document))) in stored(name)
    assert tightest(document) in " ".join(stored(name).split())


def test_joined_nodes_are_told_machine_by_machine() -> None:
    """Plans count GPUs 0 to 3 on a node of two machines; each of these has 0 and 1."""
    stages = all_stages(document_of(solve(joined(3), SolveOptions())))
    assert {(stage.node, gpu) for stage in stages for gpu in stage.gpus} == set(
        product(("fast-0", "fast-2"), range(4))
    )
    assert placed(joined(3).cluster, stages) == "fast-0..3: 0-1"


SLOW = ZoneLink(bandwidth_bytes_per_s=1.25e8, latency_s=0.02, kind="measured", source="iperf, 2026")


@recorded("zone_lines")
def test_links_are_named_with_what_crosses() -> Cases:
    """Of one node per slot; x and z have a link of their own. Without zones there is no line."""
    for zones, dp, pp in (("xyxy", 2, 2), ("xyzx", 1, 4)):
        links = {"zx": SLOW} if {"x", "z"} <= set(zones) else {}
        tables = equal_nodes(len(zones), 1, 1, dp, pp, zones=zones, own=links)
        cuts = tuple(round(4 * k / pp) for k in range(pp + 1))
        plan = Decisions(tuple(range(len(zones))), cuts, (4 // dp,) * dp).plan(tables)
        yield zones, zone_lines(document_of(result_of(tables.instance, plan)))
