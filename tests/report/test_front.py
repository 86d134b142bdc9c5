"""Fronts in words: points, where all clusters stand, what the nodes of a subset bring."""

from functools import cache

import pytest

from solver.clusters.front import TimeAndNodes
from solver.front_document import FrontDocument
from solver.report.document import build_front
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
from tests.command_line import printed
from tests.small_families import SEEDS, found, searched, small_family


@cache
def front() -> FrontDocument:
    """A front of money with several points."""
    return build_front(found(SEEDS[0]), "front")


@cache
def subsets() -> FrontDocument:
    """The best subsets of the same nodes."""
    family = small_family(SEEDS[0])
    return build_front(searched(family, TimeAndNodes(family)), "subsets")


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
    report = printed(*front_report(front()))
    assert report.index("cluster ") < report.index("cost ") < report.index("search ")


@pytest.mark.parametrize(("aim", "words"), [("money", "least cost is"), ("time", "least time is")])
def test_the_least_there_is(aim: str, words: str) -> None:
    """Cost or time of the point, who reaches it, and whether that is proved."""
    document = front().but(aim=aim, points=front().points[:1])
    text = least_text(document)
    assert f"no cluster within the limits: the {words}" in text
    assert text.endswith(f"by {cluster_name(front(), front().points[0].nodes)}, proved")
    assert "within 5.0 %" in least_text(document.but(requested_gap=0.05))
    assert "was not found in time" in least_text(document.but(points=()))


def test_subsets_say_what_every_group_brings() -> None:
    """Sizes that bring nothing, what is lost without a group or a node, why nodes are idle."""
    lines = subset_lines(subsets())
    labels = [label for label, _ in lines]
    groups = subsets().family.instance.cluster.groups
    assert [label for label in labels if label.startswith("without")] == [
        f"without {group.name}" for group in groups
    ]
    assert labels.count("one less") == sum(group.nodes > 1 for group in groups)
    fastest = min(subsets().points, key=lambda point: point.plan.step_time_s or 0.0)
    most = subsets().family.most
    idle = [n - used for n, used in zip(most, fastest.nodes, strict=True) if n > used]
    assert [text.split()[0] for label, text in lines if label == "idle"] == [str(n) for n in idle]
    assert subset_lines(front()) == []
    assert "best subset" in printed(*front_report(subsets()))
