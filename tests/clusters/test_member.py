"""Clusters in a study: those that were closed stay closed."""

import json
from pathlib import Path
from typing import Any

import pytest

from formulations.instance.instance import Family
from formulations.instance.load import load_family
from solver.clusters import member
from solver.clusters.front import Measure
from solver.clusters.search import FamilySearch, outcome
from solver.front_document import Aim, FrontDocument
from solver.options import SolveOptions
from solver.plan_figures import plan_of
from solver.study.store import open_study, study_at
from tests.command_line import output, run
from tests.conftest import Killed
from tests.small_families import searched, small_family
from tests.small_instances import with_groups

BERT = Path(__file__).resolve().parents[2] / "instances" / "aws_bert.yaml"


def few(nodes: int) -> Family:
    family = load_family(BERT)
    return family.but(instance=with_groups(family.instance, nodes=nodes))


def overview(path: Path) -> member.FamilyOverview:
    with open_study(path, None) as study:
        (shown,) = member.family_overviews(study.notes)
        return shown


def said(front: FrontDocument) -> list[object]:
    points = [(one.nodes, plan_of(one.plan), one.plan.closed_configs) for one in front.points]
    return [*points, front.clusters]


@pytest.mark.parametrize("aim", ["front", "subsets"])
def test_killed_search_goes_on(aim: Aim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loses the cluster in hand, shows what is open, and ends with the front of a fresh run."""
    path, family, closed = tmp_path / "study.db", small_family(9), list[object]()
    fresh, close = searched_with(None, family, aim), member.Members.close

    def dies(self: member.Members, *asked: Any) -> member.MemberClosing:
        closed.append(asked[:2])
        if len(closed) == 2:
            raise Killed
        return close(self, *asked)

    monkeypatch.setattr(member.Members, "close", dies)
    with pytest.raises(Killed):
        searched_with(path, family, aim)
    assert len(overview(path).open) > 0
    again = searched_with(path, family, aim)
    assert said(again) == said(fresh)
    assert closed[1] == closed[2]
    assert len(set(closed)) == len(closed) - 1


def test_bug_study_showed_clusters_as_open_that_bounds_had_closed(tmp_path: Path) -> None:
    """The last clusters need no search."""
    path, family = tmp_path / "study.db", few(4)
    with study_at(path, family.instance) as study:
        FamilySearch(family, Measure(family, "subsets"), SolveOptions(gap=0.05), study).run()
    assert (overview(path).closed, overview(path).open) == (24, [])


def searched_with(path: Path | None, family: Family, aim: Aim = "front") -> FrontDocument:
    with study_at(path, family.instance) as study:
        search = FamilySearch(family, Measure(family, aim), SolveOptions(), study)
        return outcome(search, search.run())


def test_bug_a_cluster_got_the_plan_of_a_smaller_one(tmp_path: Path) -> None:
    """Where a smaller cluster is searched by itself, a larger one has no plan on its nodes."""
    family = small_family(12, (2, 0))
    searched_with(tmp_path / "study.db", small_family(12, (0, 1)))
    assert searched_with(tmp_path / "study.db", family).clusters == searched(family).clusters


def test_bug_subsets_overwrote_what_a_study_said_of_the_front(tmp_path: Path) -> None:
    """`show --study` has a line for every question; another length of training is none."""
    text = BERT.read_text(encoding="utf-8").replace("max: 8", "max: 1")
    family, path = tmp_path / "four.yaml", tmp_path / "study.db"
    family.write_text(text.replace("profiles/", f"{BERT.parent}/profiles/"), encoding="utf-8")
    words = [family, "--gap", "0.2", "--workers", "1", "--study", path]
    for asked in ([], ["--subsets"], ["--budget", "20000"], ["--sequences", "1000"]):
        assert run("pareto", *asked, *words)[0] == 0
    shown = output("show", "--study", path)
    assert shown.startswith("pareto        aws_bert: clusters 3 closed, 0 open, ")
    assert "subsets       aws_bert: clusters 3 closed, 0 open" in shown
    kept = json.loads(output("show", "--study", path, "--json"))["clusters"]
    found = [(one["aim"], one["max_cost_usd_per_step"]) for one in kept]
    assert sorted(found) == [("front", None), ("subsets", None), ("time", 20000 / 3125000)]
