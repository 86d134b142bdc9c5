"""Tests of solver.verify.lengths_file: files of mixed lengths, right and forged."""

import json
from dataclasses import replace
from functools import cache

import pytest
from pydantic import ValidationError

from formulations.lengths.problem import Order, Rows
from formulations.lengths.strategy_time import NEVER
from solver.files import sealed
from solver.lengths.choose import build_lengths, choose
from solver.lengths_document import LengthsDocument
from solver.verify import Effort, verify_lengths
from solver.verify.lengths_file import least_ascending_ns
from tests.mixed_lengths import ascending_tours, least_ns, random_mixed
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


@pytest.mark.parametrize("order", ["ascending", "free"])
@pytest.mark.parametrize("seed", one_each([3, 5], 2))
def test_no_field_can_be_forged(seed: int, order: Order) -> None:
    """Whatever is changed and sealed anew is refused, or leaves a claim that is not proved."""
    document = written(seed, order)
    judged = 0
    for mutation in mutations(document.model_dump(mode="json")):
        word = order == "free" and mutation.field.startswith("problem")  # CP-SAT's
        if mutation.field in UNCHECKED or word:
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
    assert judged > 60


def _still_true(field: str, forged: LengthsDocument) -> bool:
    """Another problem, to which the same step is as good an answer."""
    if not (field.startswith("problem") or field in ("order", "requested_gap", "termination")):
        return False
    chosen = choose(forged.problem, forged.order)
    honest = build_lengths(replace(chosen, requested_gap=forged.requested_gap), "toy")
    same = ("step_time_s", "lower_bound_s", "single", "status")
    return all(getattr(honest, name) == getattr(forged, name) for name in same)


def test_a_slower_step_is_no_optimum() -> None:
    """A right step with a bound of its own time is refused where a faster one is known."""
    mixed = random_mixed(5)
    best = choose(mixed, "ascending")
    single = best.single
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
