"""Promises where some GPUs have no flash attention: plans have it if all GPUs that they use do."""

import pytest

from formulations.instance.family import Counts
from solver.clusters.measure import TimeAndMoney, TimeAndNodes
from solver.options import Method, SolveOptions
from solver.report.document import build_document
from solver.report.front import build_front
from solver.search.driver import solve
from solver.verify.front_file import verify_front
from solver.verify.plan_file import verify_document
from tests.flash_families import mixed, mixed_family, solved_alone
from tests.small_families import front_of, points_of, searched, times_by_force

#: With several kinds of clusters on the front.
SEEDS = (9, 19, 23, 28, 34, 36)


@pytest.mark.parametrize(
    ("seed", "workload"), [*((seed, "") for seed in SEEDS), (28, ", flash_attention: false")]
)
def test_bug_one_old_gpu_took_flash_attention_from_clusters_without_it(
    seed: int, workload: str
) -> None:
    """Fronts and subsets are those of every cluster read and solved by itself."""
    family = mixed_family(seed, workload)
    for measure in (TimeAndMoney(family), TimeAndNodes(family)):
        expected = front_of(measure, solved_alone(seed, workload))
        result = searched(family, measure)
        assert points_of(measure, result) == expected
        found = verify_front(build_front(result, measure.aim))
        assert found.complete, found.problems


@pytest.mark.parametrize("seed", [8, 9, 28])
def test_solved_alone_is_brute_force(seed: int) -> None:
    """So does every plan of every cluster, judged by the witness."""
    assert times_by_force(mixed_family(seed)) == solved_alone(seed)


@pytest.mark.parametrize("fewest", [(0, 1), (1, 0), (0, 2), (2, 2)])
def test_nodes_that_may_not_be_left_out_may_idle(fewest: Counts) -> None:
    """Where a family asks for old nodes, plans that leave all of them idle have flash attention."""
    family = mixed_family(SEEDS[0], fewest=fewest)
    alone, times = solved_alone(SEEDS[0]), dict[Counts, int | None]()
    for counts in family.members():
        known = [alone[used] for used in family.uses(counts)]
        times[counts] = min((ns for ns in known if ns is not None), default=None)
    measure = TimeAndMoney(family)
    result = searched(family)
    assert points_of(measure, result) == front_of(measure, times)
    assert verify_front(build_front(result, "front")).complete


@pytest.mark.parametrize(
    ("seed", "method"), [*((seed, "exact") for seed in SEEDS), (28, "cpsat"), (28, "milp")]
)
def test_solve_has_plans_of_new_nodes_with_flash_attention(seed: int, method: Method) -> None:
    """The best plan is that of the best choice of nodes, each solved by itself."""
    options = SolveOptions(method=method)
    result = solve(mixed(seed), options)
    assert result.step_time_ns == min(ns for ns in solved_alone(seed).values() if ns is not None)
    verified = verify_document(build_document(result, options))
    assert verified.complete, verified.problems
