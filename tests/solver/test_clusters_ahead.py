"""Clusters that workers search ahead of their turn."""

import pytest

from solver.clusters.family_outcome import outcome
from solver.clusters.measure import TimeAndMoney
from solver.clusters.search import FamilySearch
from solver.options import SolveOptions
from solver.search.forks import Forks
from tests.solver.test_kept_clusters import few


def points(options: SolveOptions) -> list[object]:
    """Points of a front with their plans and proofs."""
    search = FamilySearch(family := few(2), TimeAndMoney(family), options)
    found = outcome(search, search.run())
    return [(one.nodes, one.result.plan, one.result.log.shapes) for one in found.points]


def test_front_does_not_depend_on_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a Ray cluster, by processes of this machine: same clusters, plans and proofs."""
    alone = points(SolveOptions(gap=0.01))
    monkeypatch.setattr(
        "solver.clusters.search.crew_of",
        lambda options: Forks(2) if options.engine == "ray" else None,
    )
    monkeypatch.setattr("solver.search.driver.crew_of", lambda options: None)
    assert points(SolveOptions(gap=0.01, workers=2, engine="ray")) == alone
