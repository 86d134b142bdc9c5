"""The command `pareto`, of clusters and of subsets; studies of it."""

from tests.docs_pages import check_consoles

test_consoles_of_clusters = check_consoles("clusters")
