"""Node groups with tensor-parallel degrees and parts of their own, against trying every plan."""

from collections.abc import Sequence

import pytest

from formulations.costs.plan_costs import plan_costs
from solver.bounds.shape_bound import shape_bound_ns
from solver.heuristics.choose import TimeTables
from solver.layered.problem import Intervals
from solver.options import SolveOptions
from solver.report.document import build_document
from solver.search.closing import enumerate_shape
from solver.search.driver import solve
from solver.search.engines import model_engine
from solver.search.shapes import shapes
from solver.simulate import step_time_ns
from solver.verify import verify_document
from solver.verify.recount import Recount
from solver.verify.space import PlanSpace, key_of
from tests import brute_force
from tests.formulations.test_placement import assert_counted
from tests.loop_checks import solve_shape
from tests.seeds import few_and_many
from tests.unlike_degrees import unlike_instance, unlike_tables

NO_CUTOFF = 1 << 56
EXACT = SolveOptions(gap=0.0)


@pytest.mark.parametrize("seeds", few_and_many(range(200), 8))
def test_placement_equals_the_count_from_slots(seeds: Sequence[int]) -> None:
    """Every cost of every order is what slots of unlike width, lanes and parts give."""
    for seed in seeds:
        if tables := unlike_tables(seed):
            assert_counted(tables, brute_force.all_orders(tables))


@pytest.mark.parametrize("seeds", few_and_many(range(150), 15))
def test_search_and_models_equal_brute_force(seeds: Sequence[int]) -> None:
    """The best plan of a shape by enumeration, CP-SAT and MILP; and the verifier recounts it."""
    for seed in seeds:
        tables = unlike_tables(seed)
        if tables is None:
            continue
        best = brute_force.optimum_ns(tables)
        found = enumerate_shape(Intervals(tables), NO_CUTOFF, 0.0, lambda: False)
        assert (found.step_time_ns, found.complete) == (best, True), seed
        if found.plan is not None:
            costs = Recount(tables.instance, found.plan).costs()
            assert step_time_ns(costs) == best, seed
            assert (
                plan_costs(tables.instance, found.plan).memory_bytes == costs.memory_bytes
            ).all()
        for method in ("cpsat", "milp"):
            assert solve_shape(tables, model_engine(method)).step_time_ns == best, seed


@pytest.mark.parametrize("seeds", few_and_many(range(150), 5))
def test_bounds_never_exceed_the_optimum(seeds: Sequence[int]) -> None:
    """Of the search and of the verifier, which also finds no plan below it."""
    for seed in seeds:
        tables = unlike_tables(seed)
        best = None if tables is None else brute_force.optimum_ns(tables)
        if tables is None or best is None:
            continue
        known = TimeTables(tables.instance)
        bounds = [known.forms([tables.shape])[0].bound_ns, *known.packed_ns([tables.shape])]
        bounds.append(shape_bound_ns(Intervals(tables), NO_CUTOFF))
        assert max(bounds) <= best, seed


@pytest.mark.parametrize("seeds", few_and_many(range(40), 8))
def test_plan_space_and_certificate_are_those_of_the_verifier(seeds: Sequence[int]) -> None:
    """Two enumerations list the same shapes, and the whole file is proved again."""
    for seed in seeds:
        instance = unlike_instance(seed)
        space = PlanSpace(instance)
        listed = [key_of(shape) for shape in shapes(instance)]
        keys = [key for nodes in space.nodes for key in space.keys(nodes)]
        assert len(listed) == len(set(listed)), seed
        assert set(listed) == set(keys), seed
        document = build_document(solve(instance, EXACT), EXACT)
        report = verify_document(document)
        assert report.complete, (seed, report.problems)
