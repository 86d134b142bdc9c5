"""Fronts in words: points, where all clusters stand, what the nodes of a subset bring."""

from collections.abc import Callable

import pytest

from solver.front_document import FrontDocument
from solver.report.front import (
    cluster_name,
    cost_name,
    figures_of,
    front_report,
    least_text,
    point_table,
    search_lines,
    speed_name,
    subset_lines,
    terms_of_cluster,
)
from tests.report.cases import front, subsets
from tests.report.shown import drawn, stored


@pytest.mark.parametrize(("name", "document"), [("front", front), ("subsets", subsets)])
def test_fronts_in_words(name: str, document: Callable[[], FrontDocument]) -> None:
    """Points or the best of every size, what groups bring, where all clusters stand."""
    assert drawn(*front_report(document())) == stored(name)


def test_clusters_are_named_by_group() -> None:
    """Counts with the group's name, on spot where they are; groups without nodes are left out."""
    first, second = (group.name for group in front().family.instance.cluster.groups)
    assert cluster_name(front(), (2, 1)) == f"2 {first}, 1 {second}"
    assert cluster_name(front(), (0, 1), [second]) == f"1 {second} on spot"
    assert cluster_name(front(), (0, 0)) == "none"


def test_points_are_rows_fastest_first() -> None:
    """Rent, step, throughput, cost of a million sequences and gap; numbers as in the file."""
    grid = point_table(front())
    assert grid.numbers == ("USD/h", "step", "sequences/s", "cost", "gap")
    assert (speed_name(front()), cost_name(front())) == ("sequences/s", "a million sequences")
    assert len(grid.rows) == len(front().points) >= 3
    batch = front().family.instance.workload.global_batch
    for point, row in zip(front().points, grid.rows, strict=True):
        [terms] = point.terms
        assert row[0] == cluster_name(front(), point.nodes)
        assert row[2] == f"{terms.price_usd_per_hour:,.2f}"
        cost = float(row[5].removesuffix(" USD").replace(",", ""))
        assert cost == pytest.approx(terms.cost_usd_per_step * 1e6 / batch, rel=1e-3)
        [rented] = terms_of_cluster(front(), point.nodes)
        at = figures_of(front(), rented, point.plan.step_time_s or 0.0)
        assert at.throughput == pytest.approx(terms.sequences_per_s)
        assert at.paid == pytest.approx(terms.cost_usd_per_step * 1e6 / batch)


def test_all_clusters_stand_somewhere() -> None:
    """Their numbers add up; open ones are named, at most five of them."""
    lines = dict(search_lines(front()))
    dominated = sum(cluster.standing == "dominated" for cluster in front().clusters)
    count, best = len(front().clusters), len(front().points)
    assert lines["clusters"].startswith(f"{count}; {best} on the front; {dominated} dominated, ")
    opened = tuple(c.but(standing="open") for c in front().clusters for _ in range(3))
    lines = dict(search_lines(front().but(clusters=opened, termination="time_limit")))
    assert lines["clusters"].endswith(f"{len(opened)} open")
    assert f" and {len(opened) - 5} more may still have better plans" in lines["open"]
    assert lines["search"].endswith("the time limit was reached")


@pytest.mark.parametrize(("aim", "words"), [("money", "least cost is"), ("time", "least time is")])
def test_the_least_there_is(aim: str, words: str) -> None:
    """Cost or time of the point, who reaches it, and whether that is proved."""
    document = front().but(aim=aim, points=front().points[:1])
    text = least_text(document)
    assert f"no cluster within the limits: the {words}" in text
    assert text.endswith(f"by {cluster_name(front(), front().points[0].nodes)}, proved")
    assert "within 5.0 %" in least_text(document.but(requested_gap=0.05))
    assert "was not found in time" in least_text(document.but(points=()))


def test_idle_nodes_of_subsets_have_a_reason() -> None:
    """What is known of the cluster with one node more than the fastest plan uses."""
    fastest = min(subsets().points, key=lambda point: point.plan.step_time_s or 0.0)
    more = (fastest.nodes[0], fastest.nodes[1] + 1)
    record = next(cluster for cluster in subsets().clusters if cluster.nodes == more)
    others = [cluster for cluster in subsets().clusters if cluster.nodes != more]
    reasons = {
        "a node more is beyond the limit on rent": [],
        "no plan uses just one more": [record.but(standing="infeasible", step_time_ns=None)],
        "with one more a step takes 2,000.00 ms": [record.but(step_time_ns=2 * 10**9)],
        "whether one more helps is not proved": [record.but(standing="open", step_time_ns=None)],
    }
    for text, changed in reasons.items():
        document = subsets().but(clusters=(*others, *changed))
        [line] = [line for label, line in subset_lines(document) if label == "idle"]
        assert line.startswith(f"2 of slow: {text}")
    assert subset_lines(front()) == []
