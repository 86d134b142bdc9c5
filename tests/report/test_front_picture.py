"""The picture of a front: every cluster once, a line of steps, names where there is room."""

from solver.report.front import Figures, cluster_name
from solver.report.front_picture import Mark, front_page, front_picture
from tests.report.cases import front
from tests.report.shown import stored


def test_picture_of_a_small_front() -> None:
    """Axes, ticks, marks and names, place by place."""
    assert front_picture(front()) == stored("front_picture")


def test_others_are_drawn_beside_the_front() -> None:
    """Points of another source, with a name in the key."""
    at = Figures(1.0, 1.0)
    text = front_picture(front(), [Mark("other", at, "x", "theirs & more")], "theirs")
    assert ">theirs</text>" in text
    assert "<title>theirs &amp; more</title>" in text


def test_page_lists_all_other_clusters() -> None:
    """Those behind with what beats them, those without a plan."""
    page = front_page(front())
    listed = {point.nodes for point in front().points}
    for cluster in front().clusters:
        if cluster.nodes not in listed:
            assert f"<td>{cluster_name(front(), cluster.nodes)}</td>" in page
        if cluster.dominated_by is not None:
            assert f"behind {cluster_name(front(), cluster.dominated_by)}, by " in page
    assert "<h2>Front</h2>" in page
