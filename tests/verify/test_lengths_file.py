"""Tests of solver.verify.lengths_file: files of mixed lengths, right and forged."""

from dataclasses import replace
from functools import cache

import pytest

from formulations.lengths.problem import Order, Rows
from formulations.lengths.strategy_time import NEVER
from formulations.lengths.tour import best_single
from solver.lengths.choose import build_lengths, choose
from solver.lengths_document import LengthsDocument
from solver.verify import Effort, verify_lengths
from solver.verify.lengths_file import least_ascending_ns
from tests.mixed_lengths import ascending_tours, least_ns, random_mixed
from tests.seeds import few_and_many

#: What is said of a problem that was not made of an instance.
OF_NO_INSTANCE = "what strategies and switches take: the file holds no instance"


@cache
def written(seed: int, order: Order, rows: Rows = "packed") -> LengthsDocument:
    """The file of a random problem."""
    return build_lengths(choose(random_mixed(seed, rows=rows), order), "toy")


def proved(document: LengthsDocument) -> bool:
    """Whether all is, but where the problem is from, and what CP-SAT says of any order."""
    found = verify_lengths(document)
    left = [text for text in found.reservations if not text.endswith("CP-SAT's word")]
    return found.ok and left == [OF_NO_INSTANCE]


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("seeds", few_and_many(range(40), 4))
def test_what_was_chosen_is_proved(seeds: range, rows: Rows) -> None:
    """All figures and the bound, in ascending order as in any."""
    for seed in seeds:
        for order in ("ascending", "free"):
            assert proved(written(seed, order, rows))


def test_a_slower_step_is_no_optimum() -> None:
    """A right step with a bound of its own time is refused where a faster one is known."""
    mixed = random_mixed(5)
    best = choose(mixed, "ascending")
    single = best_single(mixed)
    assert single is not None
    assert single.step_ns > best.step_ns
    tour = replace(
        best.tour,
        anchor=single.strategy,
        groups=(
            replace(
                best.tour.groups[0], strategy=single.strategy, atoms=tuple(range(len(mixed.atoms)))
            ),
        ),
    )
    claimed = replace(best, tour=tour, step_ns=single.step_ns, bound_ns=single.step_ns)
    found = verify_lengths(build_lengths(claimed, "toy"))
    assert any(problem.startswith("lower_bound_s") for problem in found.problems)


def test_a_bound_in_any_order_is_the_engine_s_word() -> None:
    """It is said so, and the exit code is that of a claim that is not proved."""
    document = written(5, "free")
    found = verify_lengths(document)
    assert found.ok
    assert found.reservations[-1].endswith("CP-SAT's word")
    assert not found.complete


def test_no_time_leaves_the_file_at_its_word() -> None:
    """Nothing is wrong, and nothing proved."""
    found = verify_lengths(written(5, "ascending"), Effort(time_limit_s=0.0))
    assert found.ok
    assert len(found.reservations) == 1


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("seeds", few_and_many(range(60), 6))
def test_least_ascending_time_is_that_of_all_steps(seeds: range, rows: Rows) -> None:
    """Worked out from the last sequences back, it is the least over all steps there are."""
    for seed in seeds:
        mixed = random_mixed(seed, rows=rows)
        expected = least_ns(mixed, ascending_tours(mixed))
        found = least_ascending_ns(mixed)
        assert (found if found < NEVER else None) == expected
