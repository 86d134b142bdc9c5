"""Who sends what where, and how full links are, in words and tables."""

from formulations.costs.tables import build_tables
from formulations.costs.traffic import Flow, Kind, Link, Load
from formulations.decisions import Decisions
from formulations.instance import ZoneLink
from solver.report.links import flow_table, link_rows, link_table, loads_of, overfull, zone_lines
from tests.chain_instances import equal_nodes
from tests.hand_made import document_of, result_of
from tests.recorded import Cases, recorded
from tests.report.shown import PLANS, check_stored, plan

test_zones_of_small_plans = check_stored(*PLANS)


@recorded("traffic_tables")
def test_links_and_flows_are_the_recorded_ones() -> Cases:
    """Nodes alike share a row; fullest links first."""
    for name in PLANS:
        document = plan(name)
        loads = loads_of(document)
        rows = link_rows(document, loads)
        step_s = document.step_time_s or 0.0
        yield name, [link_table(rows, step_s).rows, flow_table(document, loads).rows]


def test_a_link_is_as_full_as_all_that_crosses_it() -> None:
    """1 s and 2 s of a step of 10 s; alike nodes have one row, and so have their flows."""
    document = plan("sharded")
    first, second, *_ = range(len(document.instance.cluster.node_names))
    kinds: tuple[tuple[Kind, float], ...] = ("sync", 1.0), ("gather", 2.0)
    loads = {
        Flow(kind, 0, 0, Link("out", node), None): Load(2.0**30, busy_s)
        for kind, busy_s in kinds
        for node in (first, second)
    }
    (row,) = link_table(link_rows(document, loads), 10.0).rows
    assert row[1:] == ("gradient sync 1.000 GiB, parameter gather 1.000 GiB", "3.00 s", "30.0 %")
    assert [line[3] for line in flow_table(document, loads).rows] == ["1.000 GiB per node"] * 2
    assert not [*overfull(document.but(step_time_s=3.0), loads)]
    (line,) = overfull(document.but(step_time_s=2.5), loads)
    assert "would be busy for 3.000 s, 120.0 % of the step" in line[1]


SLOW = ZoneLink(bandwidth_bytes_per_s=1.25e8, latency_s=0.02, kind="measured", source="iperf, 2026")


@recorded("zone_lines")
def test_links_are_named_with_what_crosses() -> Cases:
    """Of one node per slot; x and z have a link of their own. Without zones there is no line.

    With two chunks per GPU activations come back from the last stage to the first.
    """
    for zones, dp, pp, vpp in (("xyxy", 2, 2, 1), ("xyzx", 1, 4, 1), ("xy", 1, 2, 2)):
        links = {"zx": SLOW} if {"x", "z"} <= set(zones) else {}
        tables = equal_nodes(len(zones), 1, dp, pp, zones=zones, own=links)
        schedule = "interleaved" if vpp > 1 else "1f1b"
        config = tables.config.but(vpp=vpp, schedule=schedule)
        tables = build_tables(tables.instance, config)
        cuts = tuple(round(4 * s / config.num_stages) for s in range(config.num_stages + 1))
        plan = Decisions(tuple(range(len(zones))), cuts, (4 // dp,) * dp).plan(tables)
        document = document_of(result_of(tables.instance, plan))
        yield zones, [*zone_lines(document, loads_of(document))]
