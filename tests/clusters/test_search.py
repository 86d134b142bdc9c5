"""Promises of searches over clusters: fronts are those of every cluster solved alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formulations.instance.instance import Counts
from solver.clusters.front import TimeAndMoney, TimeAndNodes
from solver.clusters.member import MemberClosing, Members, MemberTask
from solver.clusters.search import FamilySearch, outcome
from solver.options import SolveOptions
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
    step_ns,
    times_by_force,
)


@pytest.mark.parametrize("seed", one_each(SEEDS, 3))
def test_fronts_and_subsets_are_those_of_every_cluster_solved_alone(seed: int) -> None:
    """By the exact search of each cluster, and by every plan of it, judged by the witness.

    Where the largest cluster has to be rented, nodes may idle, and money is paid for all.
    """
    family = small_family(seed)
    measure, subsets = TimeAndMoney(family), TimeAndNodes(family)
    assert points_of(measure, found(seed)) == front_of(measure, times_by_force(family))
    assert points_of(measure, found(seed)) == front_of(measure, solved(seed))
    assert points_of(subsets, searched(family, subsets)) == front_of(subsets, solved(seed))
    [point] = searched(small_family(seed, family.most)).points
    assert step_ns(point) == min(ns for ns in solved(seed).values() if ns is not None)
    assert point.nodes == family.most


@pytest.mark.parametrize("seed", one_each(SEEDS, 5))
def test_gap_is_kept(seed: int) -> None:
    """With a gap, every plan of every cluster is dominated by some point but for that gap."""
    family, gap = small_family(seed), 0.2
    measure = TimeAndMoney(family)
    points = points_of(measure, searched(family, measure, gap))
    for reached in front_of(measure, solved(seed)):
        assert any(
            all(a * (1 - gap) <= b * (1 + 1e-9) for a, b in zip(point, reached, strict=True))
            for point in points
        )


@pytest.mark.parametrize("seed", one_each(SEEDS[:4], 4))
def test_prices_limits_and_rent_decide(seed: int) -> None:
    """The fastest within a budget, and the cheapest within a time, are points of the front."""
    family = small_family(seed)
    measure = TimeAndMoney(family)
    for time_ns, cost in points_of(measure, found(seed)):
        limits = {"max_cost_usd_per_step": cost / 3600e9 * (1 + 1e-9)}
        rich = family.but(instance={"limits": limits})
        assert [*map(step_ns, searched(rich, TimeAndMoney(rich, money=False)).points)] == [time_ns]
        early = family.but(instance={"limits": {"max_step_time_s": time_ns / 1e9}})
        cheap = searched(early, TimeAndMoney(early, time=False))
        assert {figures[1] for figures in points_of(measure, cheap)} == {cost}
    poor = family.but(instance={"limits": {"max_price_usd_per_hour": 0.5}})
    assert searched(poor).clusters == ()
    groups = [group.but(price_usd_per_hour=0) for group in family.instance.cluster.groups]
    free = searched(family.but(instance={"cluster": {"groups": tuple(groups)}}))
    assert [*map(step_ns, free.points)] == [min(ns for ns, _ in points_of(measure, found(seed)))]


def test_bug_nodes_that_idle_were_not_paid_from_the_budget() -> None:
    """What must be rented costs money whether or not the plan uses it; with a gap, too."""
    family = small_family(SEEDS[0], (1, 1))
    measure = TimeAndMoney(family)
    figures = sorted(points_of(measure, searched(family)))
    for limit, within in ((figures[-1][1] * 0.9, []), (figures[-1][1], [figures[-1][0]])):
        limits = {"max_cost_usd_per_step": limit * (1 + 1e-9) / 3600e9}
        poor = family.but(instance={"limits": limits})
        front = searched(poor, TimeAndMoney(poor, money=False), gap=0.2)
        assert [*map(step_ns, front.points)] == within
        assert verify_front(front).complete


def test_bug_family_with_degrees_per_stage() -> None:
    """Configurations that whole blocks bound no further stopped the search."""
    family = small_family(SEEDS[2])
    wider = family.but(instance={"search": {"degrees": "per_stage"}})
    times = {counts: solve(wider.member(counts)).step_time_ns for counts in wider.members()}
    measure = TimeAndMoney(wider)
    assert points_of(measure, searched(wider)) == front_of(measure, times)


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
    late = FamilySearch(family, TimeAndMoney(family), SolveOptions(time_limit_s=1e-9))
    assert late.run() is Termination.TIME_LIMIT
    assert not late.clusters.front.points
    assert late.clusters.open == [*late.clusters.bounds]


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
    assert verify_front(outcome(ended, termination)).ok
    assert search()[0] is Termination.CLOSED
