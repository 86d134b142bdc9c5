"""Fronts are those of every cluster solved alone, with flash attention where its GPUs have it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formulations.instance import Instance
from formulations.instance.instance import Counts, Family
from solver.clusters.front import Measure
from solver.clusters.member import MemberClosing, Members
from solver.clusters.search import FamilySearch, outcome
from solver.files import sealed
from solver.options import Method, SolveOptions
from solver.plan_figures import build_document
from solver.result import Termination
from solver.search.driver import solve
from solver.study.store import open_study
from solver.verify import verify_document, verify_front
from tests.best_plans import check_verified
from tests.clusters.test_member import few
from tests.seeds import one_each
from tests.small_families import (
    SEEDS,
    front_of,
    mixed,
    mixed_family,
    points_of,
    searched,
    small_family,
    solved_alone,
    step_ns,
    times_by_force,
)


@pytest.mark.parametrize("seed", one_each(SEEDS, 5))
def test_fronts_and_subsets_are_those_of_every_plan(seed: int) -> None:
    """By brute force; within a gap, whatever others reach.

    Where the largest cluster has to be rented, nodes may idle, and money is paid for all.
    """
    family, gap = small_family(seed), 0.2
    times = times_by_force(family)
    for measure in (Measure(family), Measure(family, "subsets")):
        assert points_of(measure, searched(family, measure)) == front_of(measure, times)
    near = points_of(Measure(family), searched(family, gap=gap))
    for reached in front_of(Measure(family), times):
        assert any(
            all(a * (1 - gap) <= b * (1 + 1e-9) for a, b in zip(point, reached, strict=True))
            for point in near
        )
    [point] = searched(small_family(seed, family.most)).points
    assert step_ns(point) == min(ns for ns in times.values() if ns is not None)
    assert point.nodes == family.most


def test_bug_nodes_that_idle_were_not_paid_from_the_budget() -> None:
    """What must be rented costs money whether or not the plan uses it; with a gap, too."""
    family = small_family(SEEDS[0], (1, 1))
    figures = sorted(points_of(Measure(family), searched(family)))
    for limit, within in ((figures[-1][1] * 0.9, []), (figures[-1][1], [figures[-1][0]])):
        limits = {"max_cost_usd_per_step": limit * (1 + 1e-9) / 3600e9}
        poor = family.but(instance={"limits": limits})
        front = searched(poor, Measure(poor, "time"), gap=0.2)
        assert [*map(step_ns, front.points)] == within
        assert verify_front(front).complete


def test_bug_family_with_degrees_per_stage() -> None:
    """Configurations that whole blocks bound no further stopped the search."""
    family = small_family(SEEDS[2], (1, 0))
    wider = family.but(instance={"search": {"degrees": "per_stage"}})
    times = {counts: solve(wider.member(counts)).step_time_ns for counts in wider.members()}
    measure = Measure(wider)
    assert points_of(measure, searched(wider)) == front_of(measure, times)


def test_interrupted_search_keeps_the_front_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a cluster's search leaves the points known, and says what is open."""
    family = small_family(SEEDS[1])
    search = FamilySearch(family, Measure(family), SolveOptions())
    close, calls = Members.close, list[Counts]()

    def interrupted(self: Members, counts: Counts, *rest: Any) -> MemberClosing:
        calls.append(counts)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return close(self, counts, *rest)

    monkeypatch.setattr(Members, "close", interrupted)
    assert search.run() is Termination.INTERRUPTED
    assert len(search.front.points) == 1
    assert search.gap
    assert search.open
    late = FamilySearch(family, Measure(family), SolveOptions(time_limit_s=1e-9))
    assert late.run() is Termination.TIME_LIMIT
    assert late.open == [*late.bounds]


def test_bug_cluster_that_workers_die_of_was_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its configs stay open, the others are closed, and a study does not take it for closed."""
    family, turns, close = few(2), list[Counts](), Members.close

    def fatal(self: Members, counts: Counts, *rest: Any) -> MemberClosing:
        closing = close(self, counts, *rest)
        turns.append(counts)
        if counts != (2, 0):
            return closing
        left_open = tuple(record.but(reason="open", bound_ns=0) for record in closing.records)
        return replace(closing, found=None, bound_ns=0, records=left_open)

    def search() -> tuple[Termination, FamilySearch]:
        with open_study(tmp_path / "study.db", family.instance) as study:
            ended = FamilySearch(family, Measure(family), SolveOptions(gap=0.01), study)
            return ended.run(), ended

    with monkeypatch.context() as patch:
        patch.setattr(Members, "close", fatal)
        termination, ended = search()
    assert termination is Termination.UNFINISHED
    assert ended.open == [(2, 0)]
    assert turns.count((2, 0)) == 1
    assert not verify_front(outcome(ended, termination)).problems
    assert search()[0] is Termination.CLOSED


# Clusters of GPUs with flash attention and others without

#: With several kinds of clusters on the front.
MIXED = ((9, ""), (19, ""), (23, ""), (34, ""), (36, ""), (28, "flash_attention: false"))


def check_front(family: Family, measure: Measure, times: dict[Counts, int | None]) -> None:
    front = searched(family, measure)
    assert points_of(measure, front) == front_of(measure, times)
    checked = verify_front(front)
    assert checked.complete, checked.problems


@pytest.mark.parametrize("case", one_each(MIXED, 6))
def test_bug_one_old_gpu_took_flash_attention_from_clusters_without_it(
    case: tuple[int, str],
) -> None:
    """Fronts and subsets are those of every cluster read and solved by itself, by brute force.

    Where a family asks for old nodes, plans that leave all of them idle have flash attention.
    """
    family, alone = (
        Family(instance=mixed(case[0], workload=case[1]), fewest=(0, 0)),
        solved_alone(*case),
    )
    assert times_by_force(family) == alone
    check_front(family, Measure(family), alone)
    check_front(family, Measure(family, "subsets"), alone)
    old = family.but(fewest=(0, 2))
    times = {
        counts: min((ns for used in old.uses(counts) if (ns := alone[used])), default=None)
        for counts in old.members()
    }
    check_front(old, Measure(old), times)


def test_sequences_are_shared_where_attention_is_fused() -> None:
    """Only plans of new nodes may do so, and where all have to, old nodes have no plan."""
    search = "target: any, context_parallel: [2]"
    family = mixed_family(105, search=search)
    new: dict[Counts, int | None] = {
        (n, 0): solve(mixed(105, (n, 0), search=search)).step_time_ns for n in (1, 2)
    }
    check_front(family, Measure(family), new)
    old = {one.nodes for one in searched(family).clusters if one.standing == "infeasible"}
    assert old == set(family.members()) - set(new)


@pytest.mark.parametrize("method", ["exact", "milp"])
@pytest.mark.parametrize("seed", one_each((28, 9, 19, 23, 34, 36), 6))
def test_solve_has_plans_of_new_nodes_with_flash_attention(seed: int, method: Method) -> None:
    options = SolveOptions(method=method)
    result = solve(mixed(seed), options)
    assert result.step_time_ns == min(ns for ns in solved_alone(seed).values() if ns is not None)
    check_verified(result, options)


def as_if(instance: Instance, flash: bool) -> Instance:
    workload = instance.fused if flash else instance.workload
    return instance.model_copy(update={"workload": workload, "fused": None})


@pytest.mark.parametrize("flash", one_each([True, False], 2))
def test_verify_refuses_proofs_of_other_attention(flash: bool) -> None:
    """Plans of new nodes are faster than without it, plans of old ones slower than with it."""
    instance = mixed(28)
    document = build_document(solve(as_if(instance, flash)), SolveOptions())
    assert verify_document(document).complete
    assert verify_document(sealed(document.but(instance=instance))).problems
    family = mixed_family(34)
    front = searched(family.but(instance=as_if(family.instance, flash)))
    assert verify_front(front).complete
    points = tuple(
        point.but(plan=sealed(point.plan.but(instance=family.member(point.nodes_used))))
        for point in front.points
    )
    for kept in (front.points, points):
        assert verify_front(sealed(front.but(family=family, points=kept))).problems
