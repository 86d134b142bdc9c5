"""The command `pareto`, of clusters and of subsets; studies of it."""

from tests.docs_pages import shown_and_printed


def test_bug_consoles_of_clusters() -> None:
    shown, printed = shown_and_printed("clusters")
    assert printed == shown
