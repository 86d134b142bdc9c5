"""Promises of searches over clusters: fronts are those of every cluster solved alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formulations.instance.family import Counts, Family
from solver.clusters.front import Measure, TimeAndMoney, TimeAndNodes
from solver.clusters.member import MemberClosing, Members, MemberTask
from solver.clusters.search import FamilySearch, outcome
from solver.options import SolveOptions
from solver.report.document import build_front
from solver.result import Termination
from solver.search.driver import solve
from solver.study.store import open_study
from solver.verify import verify_front
from tests.clusters.test_member import few
from tests.seeds import one_each
from tests.small_families import (
    SEEDS,
    found,
    front_of,
    points_of,
    searched,
    small_family,
    solved,
    times_by_force,
)


def with_prices(family: Family, factor: float) -> Family:
    """The family at other prices."""
    cluster = family.instance.cluster
    groups = tuple(
        group.but(price_usd_per_hour=factor * group.price_usd_per_hour) for group in cluster.groups
    )
    own = cluster.but(groups=groups)
    return family.but(instance={"cluster": own})


def with_limits(family: Family, **limits: float) -> Family:
    """The family with other limits."""
    instance = family.instance
    return family.but(instance=instance.but(limits=limits))


@pytest.mark.parametrize("seed", one_each(SEEDS, 3))
def test_front_is_that_of_every_cluster_solved_alone(seed: int) -> None:
    """The exact search of each cluster by itself gives the same front."""
    family = small_family(seed)
    measure = TimeAndMoney(family)
    expected = front_of(measure, solved(seed))
    assert points_of(measure, found(seed)) == expected


@pytest.mark.parametrize("seed", one_each(SEEDS[:3], 3))
def test_front_is_that_of_brute_force(seed: int) -> None:
    """So does every plan of every cluster, judged by the witness."""
    family = small_family(seed)
    measure = TimeAndMoney(family)
    assert points_of(measure, found(seed)) == front_of(measure, times_by_force(family))


@pytest.mark.parametrize("seed", one_each(SEEDS[:4], 4))
def test_subsets_are_those_of_every_cluster_solved_alone(seed: int) -> None:
    """Compared by nodes instead of money, too."""
    family = small_family(seed)
    measure = TimeAndNodes(family)
    expected = front_of(measure, solved(seed))
    assert points_of(measure, searched(family, measure)) == expected


@pytest.mark.parametrize("seed", one_each(SEEDS, 5))
def test_gap_is_kept(seed: int) -> None:
    """With a gap, every plan of every cluster is dominated by some point but for that gap."""
    family, gap = small_family(seed), 0.2
    measure = TimeAndMoney(family)
    points = points_of(measure, searched(family, measure, gap))
    for counts, ns in solved(seed).items():
        if ns is not None:
            own = measure.figures(counts, ns, measure.terms(counts)[0])
            reached = [
                all(a * (1 - gap) <= b * (1 + 1e-9) for a, b in zip(one, own, strict=True))
                for one in points
            ]
            assert any(reached)


@pytest.mark.parametrize("seed", one_each(SEEDS[:4], 4))
def test_wider_range_worsens_no_point(seed: int) -> None:
    """Every point of a narrower family is reached or beaten by one of the whole family."""
    family = small_family(seed)
    measure = TimeAndMoney(family)
    whole = points_of(measure, found(seed))
    narrow = family.but(fewest=(family.most[0], 0))
    for point in points_of(measure, searched(narrow)):
        assert any(all(a <= b for a, b in zip(one, point, strict=True)) for one in whole)


@pytest.mark.parametrize("seed", one_each(SEEDS[:4], 4))
def test_doubled_prices_keep_the_front(seed: int) -> None:
    """The same clusters with the same step times stay on the front, at twice the cost."""
    known, dear = found(seed), searched(with_prices(small_family(seed), 2))
    ours, theirs = (
        [(point.nodes, point.result.step_time_ns) for point in one.points] for one in (known, dear)
    )
    assert ours == theirs


def test_free_nodes_leave_the_fastest() -> None:
    """Where nothing costs anything the fastest cluster is the only point."""
    free = searched(with_prices(small_family(SEEDS[0]), 0))
    times = [ns for ns in solved(SEEDS[0]).values() if ns is not None]
    assert [point.result.step_time_ns for point in free.points] == [min(times)]


@pytest.mark.parametrize("seed", one_each(SEEDS[:4], 4))
def test_budget_and_deadline_pick_points(seed: int) -> None:
    """The fastest within a budget, and the cheapest within a time, are points of the front."""
    family = small_family(seed)
    measure = TimeAndMoney(family)
    front = sorted(points_of(measure, found(seed)))
    for time_ns, cost in front:
        usd_per_step = cost / 3600e9 * (1 + 1e-9)
        rich = with_limits(family, max_cost_usd_per_step=usd_per_step)
        fast = searched(rich, TimeAndMoney(rich, money=False)).points
        assert [point.result.step_time_ns for point in fast] == [time_ns]
        early = with_limits(family, max_step_time_s=time_ns / 1e9)
        cheap = searched(early, TimeAndMoney(early, time=False))
        assert {one[1] for one in points_of(measure, cheap)} == {cost}


def test_nodes_that_must_be_rented_may_idle() -> None:
    """A cluster of the fewest nodes runs the best plan of any of them, at the price of all."""
    for seed in SEEDS[:4]:
        times = solved(seed)
        family = small_family(seed, small_family(seed).most)
        known = [ns for ns in times.values() if ns is not None]
        points = searched(family).points
        assert [point.result.step_time_ns for point in points] == [min(known)]
        assert [point.nodes for point in points] == [family.most]


@pytest.mark.parametrize("seed", one_each(SEEDS[:3], 3))
def test_bug_nodes_that_idle_were_not_paid_from_the_budget(seed: int) -> None:
    """What must be rented costs money whether or not the plan uses it; with a gap, too."""
    family = small_family(seed, (1, 1))
    measure = TimeAndMoney(family)
    figures = sorted(points_of(measure, searched(family)))
    for limit, within in ((figures[-1][1] * 0.9, []), (figures[-1][1], [figures[-1][0]])):
        poor = with_limits(family, max_cost_usd_per_step=limit * (1 + 1e-9) / 3600e9)
        found = searched(poor, own := TimeAndMoney(poor, money=False), gap=0.2)
        assert [one[0] for one in points_of(own, found)] == within
        assert verify_front(build_front(found, own.aim)).complete


def test_bug_family_with_degrees_per_stage() -> None:
    """Configurations that whole blocks bound no further stopped the search."""
    family = small_family(SEEDS[2])
    wider = family.but(instance={"search": {"degrees": "per_stage"}})
    times = {counts: solve(wider.member(counts)).step_time_ns for counts in wider.members()}
    measure = TimeAndMoney(wider)
    assert points_of(measure, searched(wider)) == front_of(measure, times)


def test_limit_on_rent_leaves_clusters_out() -> None:
    """Clusters above the limit on rent do not count."""
    family = with_limits(small_family(SEEDS[0]), max_price_usd_per_hour=0.5)
    assert searched(family).clusters == ()


def test_interrupted_search_keeps_the_front_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a cluster's search leaves the points known, and says what is open."""
    family = small_family(SEEDS[1])
    search = FamilySearch(family, TimeAndMoney(family), SolveOptions())
    close, calls = Members.close, list[Counts]()

    def interrupted(self: Members, task: MemberTask, *rest: Any) -> MemberClosing:
        calls.append(task.counts)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return close(self, task, *rest)

    monkeypatch.setattr(Members, "close", interrupted)
    assert search.run() is Termination.INTERRUPTED
    assert len(search.clusters.front.points) == 1
    assert search.clusters.gap
    assert search.clusters.open


def test_no_time_leaves_all_open() -> None:
    """Without time nothing is known, and nothing is claimed."""
    family = small_family(SEEDS[0])
    measure: Measure = TimeAndMoney(family)
    search = FamilySearch(family, measure, SolveOptions(time_limit_s=1e-9))
    assert search.run() is Termination.TIME_LIMIT
    assert not search.clusters.front.points
    assert search.clusters.open == [*search.clusters.bounds]


def test_bug_cluster_that_workers_die_of_was_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its configs stay open, the others are closed, and a study does not take it for closed."""
    family, turns, close = few(2), list[Counts](), Members.close

    def fatal(self: Members, task: MemberTask, *rest: Any) -> MemberClosing:
        closing = close(self, task, *rest)
        turns.append(task.counts)
        if task.counts != (2, 0):
            return closing
        left_open = tuple(record.but(reason="open", bound_ns=0) for record in closing.records)
        return replace(closing, found=None, bound_ns=0, records=left_open)

    def search() -> tuple[Termination, FamilySearch]:
        with open_study(tmp_path / "study.db", family.instance) as study:
            ended = FamilySearch(family, TimeAndMoney(family), SolveOptions(gap=0.01), study)
            return ended.run(), ended

    with monkeypatch.context() as patch:
        patch.setattr(Members, "close", fatal)
        termination, ended = search()
    assert termination is Termination.UNFINISHED
    assert ended.clusters.open == [(2, 0)]
    assert turns.count((2, 0)) == 1
    assert verify_front(build_front(outcome(ended, termination), "front")).ok
    assert search()[0] is Termination.CLOSED
