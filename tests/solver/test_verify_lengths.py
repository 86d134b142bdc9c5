"""Tests of solver.verify.mixed_file: files of mixed lengths, right and forged."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from math import inf

import pytest
from pydantic import ValidationError

from formulations.instance.length_classes import log_normal_classes
from formulations.lengths.problem import Atom, Mixed, Replica, Rows, RowTime, Strategy, Switching
from solver.document import sealed
from solver.lengths.choose import choose
from solver.lengths.content import build_lengths
from solver.lengths_document import LengthsDocument, Order, ProblemDocument
from solver.verify import Effort, verify_lengths
from solver.verify.clock import Clock
from solver.verify.mixed_assignments import Assignments
from solver.verify.mixed_times import MixedTimes
from tests.mixed_lengths import random_mixed, set_ns
from tests.mutations import mutations
from tests.seeds import few_and_many, one_each

#: What describes the run, or where the problem is from; names are free.
UNCHECKED = {
    "digest",
    "hetplan_version",
    "problem.strategies.name",
    "runtime_s",
    "workload",
}
#: What is said of a problem that was not made of an instance.
OF_NO_INSTANCE = "what strategies and switches take: the file holds no instance"


@cache
def written(seed: int, order: Order, rows: Rows = "packed") -> LengthsDocument:
    """The file of a random problem."""
    return build_lengths(choose(random_mixed(seed, rows=rows), order), "toy")


def proved(document: LengthsDocument) -> bool:
    """Whether all is, but where the problem is from."""
    found = verify_lengths(document)
    return found.ok and found.reservations == (OF_NO_INSTANCE,)


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("seeds", few_and_many(range(40), 4))
def test_what_was_chosen_is_proved(seeds: range, rows: Rows) -> None:
    """All figures and the bound, in ascending order as in any."""
    for seed in seeds:
        for order in ("ascending", "free"):
            assert proved(written(seed, order, rows))


@pytest.mark.parametrize("order", ["ascending", "free"])
@pytest.mark.parametrize("seed", one_each([3, 5], 2))
def test_no_field_can_be_forged(seed: int, order: Order) -> None:
    """Whatever is changed and sealed anew is refused, or leaves a claim that is not proved."""
    document = written(seed, order)
    judged = 0
    for mutation in mutations(document.model_dump(mode="json")):
        if mutation.field in UNCHECKED:
            continue
        try:
            forged = sealed(LengthsDocument.model_validate_json(json.dumps(mutation.value)))
        except ValidationError:
            continue
        if forged == document:
            continue
        judged += 1
        if proved(forged):
            assert _still_true(mutation.field, forged), str(mutation)
    assert judged > 100


def _still_true(field: str, forged: LengthsDocument) -> bool:
    """Another problem, to which the same step is as good an answer."""
    if not (field.startswith("problem") or field in ("order", "requested_gap", "termination")):
        return False
    chosen = choose(forged.problem.mixed, forged.order)
    honest = build_lengths(replace(chosen, requested_gap=forged.requested_gap), "toy")
    same = ("step_time_s", "lower_bound_s", "single", "status")
    return all(getattr(honest, name) == getattr(forged, name) for name in same)


def test_a_slower_step_is_no_optimum() -> None:
    """A right step with a bound of its own time is refused where a faster one is known."""
    mixed = random_mixed(5)
    best = choose(mixed, "ascending")
    single = best.single
    assert single is not None
    assert single[1] > best.step_ns
    tour = replace(
        best.tour,
        anchor=single[0],
        groups=(
            replace(best.tour.groups[0], strategy=single[0], atoms=tuple(range(len(mixed.atoms)))),
        ),
    )
    claimed = replace(best, tour=tour, step_ns=single[1], bound_ns=single[1])
    found = verify_lengths(build_lengths(claimed, "toy"))
    assert any(problem.startswith("lower_bound_s") for problem in found.problems)


def test_large_free_orders_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not all can be tried, sets of strategies are; cut short, the own bound is said."""
    chosen = choose(_large(), "free")
    document = build_lengths(chosen, "toy")
    assert proved(document)
    monkeypatch.setattr("solver.verify.mixed_minimum.MOST_TRIALS", 1)
    found = verify_lengths(document)
    assert found.ok
    [_, left] = found.reservations
    assert "none is below" in left
    slower = replace(chosen, bound_ns=chosen.step_ns * 96 // 100, requested_gap=0.05)
    assert proved(build_lengths(slower, "toy"))


def test_long_tails_in_any_order_are_proved_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few sequences so long that they take most of a visit leave few assignments to look at."""
    monkeypatch.setattr("solver.verify.mixed_minimum.MOST_TRIALS", 2000)
    classes = log_normal_classes(400, 1.4, 32768, 512, 32)
    atoms = tuple(Atom(one.tokens, one.count) for one in classes)
    strategies = tuple(
        Strategy(f"of {longest}", (Replica(1, longest, RowTime(a, b, 10**8)),) * dp, dp * 7 * 10**7)
        for dp, longest, a, b in (
            (4, 24832, 1.9, 140692.0),
            (4, 32768, 2.46, 192033.0),
            (8, 5632, 3.79, 248743.0),
            (8, 32768, 4.92, 335876.0),
        )
    )
    switches = tuple(tuple(10**7 * (a != b) for a in range(4)) for b in range(4))
    chosen = choose(Mixed(atoms, strategies, Switching(switches, switches)), "free")
    assert len(chosen.tour.groups) > 1
    assert proved(build_lengths(chosen, "toy"))


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("seeds", few_and_many(range(40), 6))
def test_assignments_are_closed_up_to_the_best(seeds: range, rows: Rows) -> None:
    """Of any strategies, each given some atom: nothing is below the least time, something above."""
    for seed in seeds:
        mixed = random_mixed(seed, rows=rows)
        few = replace(mixed, atoms=tuple(replace(one, count=seed % 3 + 1) for one in mixed.atoms))
        for problem in (mixed, few):
            times = MixedTimes(ProblemDocument.of(problem))
            for used in combinations(range(len(mixed.strategies)), seed % 2 + 2):
                if all(any(times.strategies[q].fits[k] for q in used) for k in range(4)):
                    least_ns = _least_assigned_ns(problem, used)
                    assert Assignments(times, used, least_ns, 1000, Clock()).none_is_below()
                    search = Assignments(times, used, least_ns + 1, 1000, Clock())
                    assert search.none_is_below() == (least_ns == inf)


def _least_assigned_ns(mixed: Mixed, used: Sequence[int]) -> float:
    """Least time of all strategies together, each with some atom; inf if there is none."""
    least = inf
    for chosen in product(used, repeat=len(mixed.atoms)):
        if set(chosen) == set(used):
            sets = {q: [k for k, own in enumerate(chosen) if own == q] for q in used}
            parts = [set_ns(mixed, q, atoms) for q, atoms in sets.items()]
            least = min(least, inf if None in parts else sum(ns or 0 for ns in parts))
    return least


def test_a_free_order_that_is_not_the_best_is_not_proved() -> None:
    """The best ascending step is not said to be the best in any order where that is faster."""
    mixed = _large()
    free, ascending = choose(mixed, "free"), choose(mixed, "ascending")
    assert free.step_ns < ascending.step_ns
    claimed = replace(ascending, order="free")
    assert not proved(build_lengths(claimed, "toy"))


def test_no_time_leaves_the_bound_at_its_word() -> None:
    """Nothing is wrong, and nothing proved."""
    found = verify_lengths(written(5, "free"), Effort(time_limit_s=0.0))
    assert found.ok
    assert found.reservations == (OF_NO_INSTANCE, "the bound: no time was left")


def _large() -> Mixed:
    """Nine lengths, four strategies: long rows cost short sequences time."""
    atoms = tuple(Atom(128 * 2**n // 3, 3000 // 2**n + 1) for n in range(1, 10))
    strategies = tuple(
        Strategy(
            f"dp {dp}",
            (Replica(pp, 32768 // dp, RowTime(1 / dp, 9000 / dp**1.2 * 8, 10**6)),) * dp,
        )
        for dp, pp in ((1, 2), (2, 2), (4, 2), (8, 1))
    )
    switches = tuple(
        tuple(10**7 * (a != b) * (a + b + 1) for a in range(len(strategies)))
        for b in range(len(strategies))
    )
    return Mixed(atoms, strategies, Switching(switches, switches))
