"""Clusters in a study: those that were closed stay closed."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from formulations.instance.family import Family
from formulations.instance.load import load_family
from solver.clusters.front import Measure, TimeAndMoney, TimeAndNodes
from solver.clusters.member import MemberClosing, Members, MemberTask, family_overviews
from solver.clusters.search import FamilySearch, outcome
from solver.front_document import FamilyResult
from solver.options import SolveOptions
from solver.study.store import read_study, study_at
from tests.command_line import output, run
from tests.seeds import few_and_many
from tests.small_families import searched, small_family

BERT = Path(__file__).resolve().parents[2] / "instances" / "aws_bert.yaml"


class Killed(BaseException):
    """Stands for a kill, which nothing catches."""


def few(nodes: int) -> Family:
    """Up to so many nodes of either kind."""
    family = load_family(BERT)
    cluster = family.instance.cluster
    groups = tuple(group.but(nodes=nodes) for group in cluster.groups)
    update = {"cluster": cluster.but(groups=groups)}
    return family.but(instance=update)


def front(
    path: Path | None, options: SolveOptions, measured: Callable[[Family], Measure]
) -> list[object]:
    """What a search says of its points and clusters, but for its time."""
    family = few(2)
    with study_at(path, family.instance) as study:
        search = FamilySearch(family, measured(family), options, study)
        found = outcome(search, search.run())
    points = [(one.nodes, one.result.plan, one.result.log.configs) for one in found.points]
    return [*points, found.clusters]


@pytest.mark.parametrize("measured", [TimeAndMoney, TimeAndNodes])
def test_killed_search_goes_on(
    measured: Callable[[Family], Measure], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loses the cluster in hand, shows what is open, and ends with the front of a fresh run."""
    path, options, closed = tmp_path / "study.db", SolveOptions(gap=0.01), list[MemberTask]()
    fresh, close = front(None, options, measured), Members.close

    def dies(self: Members, task: MemberTask, *others: object) -> MemberClosing:
        closed.append(task)
        if len(closed) == 2:
            raise Killed
        return close(self, task)

    monkeypatch.setattr(Members, "close", dies)
    with pytest.raises(Killed):
        front(path, options, measured)
    with read_study(path) as (_, notes):
        (shown,) = family_overviews(notes)
    assert len(shown.open) > 0
    assert front(path, options, measured) == fresh
    assert closed[1] == closed[2]
    assert len(set(closed)) == len(closed) - 1


def test_bug_study_showed_clusters_as_open_that_bounds_had_closed(tmp_path: Path) -> None:
    """The last clusters need no search."""
    path, family = tmp_path / "study.db", load_family(BERT)
    with study_at(path, family.instance) as study:
        FamilySearch(family, TimeAndNodes(family), SolveOptions(gap=0.05), study).run()
    with read_study(path) as (_, notes):
        (shown,) = family_overviews(notes)
    assert (shown.closed, shown.open) == (80, [])


def searched_with(path: Path, family: Family) -> FamilyResult:
    """A front with a study."""
    with study_at(path, family.instance) as study:
        search = FamilySearch(family, TimeAndMoney(family), SolveOptions(), study)
        return outcome(search, search.run())


def test_bug_a_cluster_got_the_plan_of_a_smaller_one(tmp_path: Path) -> None:
    """Where a smaller cluster is searched by itself, a larger one has no plan on its nodes."""
    family = small_family(12, (2, 0))
    searched_with(tmp_path / "study.db", small_family(12, (0, 1)))
    assert searched_with(tmp_path / "study.db", family).clusters == searched(family).clusters


@pytest.mark.parametrize("seeds", few_and_many((23, 9, 12, 40), 4))
def test_study_of_any_families_gives_what_a_fresh_search_gives(
    seeds: Sequence[int], tmp_path: Path
) -> None:
    """One study after the other least numbers of nodes and limit: the clusters stand alike."""
    for seed in seeds:
        rng, path = random.Random(seed), tmp_path / f"{seed}.db"
        for _ in range(3):
            family = small_family(seed, (rng.randint(0, 2), rng.randint(0, 2)))
            limit_s = rng.choice([None, 0.05, 0.2])
            limits = family.instance.limits.but(max_step_time_s=limit_s)
            family = family.but(instance=family.instance.but(limits=limits))
            assert searched_with(path, family).clusters == searched(family).clusters, seed


def test_command_line_keeps_subsets(tmp_path: Path) -> None:
    """`pareto --subsets --study` goes on from what is there, on machines of `solve`."""
    small, path = BERT.with_name("hetero_small.yaml"), tmp_path / "study.db"
    words = ["--gap", "0.2", "--workers", "1", "--study", path]
    assert run("solve", small, *words)[0] == 0
    first, again = (
        [p["plan"]["step_time_s"] for p in json.loads(one)["points"]]
        for one in (run("pareto", small, "--subsets", *words, "--json")[1] for _ in range(2))
    )
    assert first == again
    shown = output("show", "--study", path)
    assert "configurations closed, 0 open" in shown
    assert "subsets       hetero_small: clusters 7 closed, 0 open" in shown


def test_bug_subsets_overwrote_what_a_study_said_of_the_front(tmp_path: Path) -> None:
    """`show --study` has a line for every question; another length of training is none."""
    text = BERT.read_text(encoding="utf-8").replace("max: 8", "max: 1")
    family, path = tmp_path / "four.yaml", tmp_path / "study.db"
    family.write_text(text.replace("profiles/", f"{BERT.parent}/profiles/"), encoding="utf-8")
    words = [family, "--gap", "0.2", "--workers", "1", "--study", path]
    pareto, subsets = ["pareto"], ["pareto", "--subsets"]
    budget, longer = ["pareto", "--budget", "20000"], ["pareto", "--sequences", "1000"]
    for asked in (pareto, subsets, budget, longer):
        assert run(*asked, *words)[0] == 0
    shown = output("show", "--study", path)
    assert shown.startswith("pareto        aws_bert: clusters 3 closed, 0 open, ")
    kept = json.loads(output("show", "--study", path, "--json"))["clusters"]
    found = [(one["aim"], one["max_cost_usd_per_step"]) for one in kept]
    assert sorted(found) == [("front", None), ("subsets", None), ("time", 20000 / 3125000)]
