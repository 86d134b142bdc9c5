"""The verifier's filling bound: below every plan, and what a search claims by it is checked."""

import pytest

from formulations.costs.compute import layer_times
from solver.document import PlanDocument
from solver.heuristics.estimates import filling_bound_ns
from solver.options import SolveOptions
from solver.report.document import build_document
from solver.search.driver import solve
from solver.verify import verify_document
from solver.verify.bounds import Prover
from solver.verify.filling import FillingBound
from solver.verify.space import PlanSpace
from tests import brute_force
from tests.random_shapes import random_tables
from tests.resealed import forged
from tests.small_instances import random_instance


@pytest.mark.parametrize("seed", range(0, 120, 10))
def test_bound_never_exceeds_the_optimum_and_is_that_of_the_search(seed: int) -> None:
    """Random shapes, brute force over all plans; the search rounds its own down a little."""
    for number in range(seed, seed + 10):
        tables = random_tables(number)
        instance, shape = tables.instance, tables.shape
        own = FillingBound(Prover(PlanSpace(instance)), shape).bound_ns()
        times = layer_times(instance, shape.tp, shape.micro_batch, shape.recompute)
        claimed = filling_bound_ns(instance, shape, times)
        assert claimed <= own <= claimed * (1 + 1e-8) + 1
        best = brute_force.optimum_ns(tables)
        assert best is None or own <= best


def by_filling() -> PlanDocument:
    """A plan file in which a shape is closed by its filling bound."""
    for seed in range(40):
        document = build_document(solve(random_instance(seed)), SolveOptions())
        if any(one.proof == "filling" for one in document.closed_shapes):
            return document
    raise AssertionError("no shape is closed by its filling bound")


def test_filling_bounds_of_a_search_are_proved_again() -> None:
    """As they stand the document passes, and the summary counts them."""
    found = verify_document(by_filling())
    assert not found.problems
    assert any("filling" in line for line in found.checked)


def test_filling_bound_that_is_too_high_is_refused() -> None:
    """By half; the largest one allowed is named."""
    document = by_filling()
    index, record = next(
        (i, one) for i, one in enumerate(document.closed_shapes) if one.proof == "filling"
    )
    assert record.bound_ns is not None
    wrong = forged(document, {f"closed_shapes.{index}.bound_ns": record.bound_ns * 3 // 2})
    problems = verify_document(wrong).problems
    assert any("the filling bound" in problem for problem in problems)
