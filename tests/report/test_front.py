"""Fronts in words: points, where all clusters stand, what the nodes of a subset bring."""

from solver.report.front import search_lines, subset_lines
from tests.report.cases import front, subsets
from tests.report.shown import check_stored

test_fronts_are_as_stored = check_stored("front", "subsets")


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
