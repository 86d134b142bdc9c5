"""Promises where some GPUs have no flash attention: plans have it if all GPUs that they use do."""

import pytest

from formulations.instance import Instance
from formulations.instance.instance import Counts, Family
from solver.clusters.front import TimeAndMoney, TimeAndNodes
from solver.files import sealed
from solver.options import Method, SolveOptions
from solver.plan_figures import build_document
from solver.search.driver import solve
from solver.verify.front_file import verify_front
from solver.verify.plan_file import verify_document
from tests.best_plans import check_verified
from tests.flash_families import mixed, mixed_family, solved_alone
from tests.seeds import one_each
from tests.small_families import front_of, points_of, searched, times_by_force

#: With several kinds of clusters on the front.
SEEDS = (9, 19, 23, 34, 36)
CASES = [*((seed, "") for seed in SEEDS), (28, ", flash_attention: false")]


@pytest.mark.parametrize("case", one_each(CASES, 5))
def test_bug_one_old_gpu_took_flash_attention_from_clusters_without_it(
    case: tuple[int, str],
) -> None:
    """Fronts and subsets are those of every cluster read and solved by itself, by brute force."""
    family, alone = mixed_family(*case), solved_alone(*case)
    assert times_by_force(family) == alone
    for measure in (TimeAndMoney(family), TimeAndNodes(family)):
        front = searched(family, measure)
        assert points_of(measure, front) == front_of(measure, alone)
        found = verify_front(front)
        assert found.complete, found.problems


def test_sequences_are_shared_where_attention_is_fused() -> None:
    """Only plans of new nodes may do so, and where all have to, old nodes have no plan."""
    search = "target: any, context_parallel: [2]"
    family = Family(instance=mixed(105, search=search), fewest=(0, 0))
    new: dict[Counts, int | None] = {
        (n, 0): solve(mixed(105, (n, 0), search=search)).step_time_ns for n in (1, 2)
    }
    front, measure = searched(family), TimeAndMoney(family)
    assert points_of(measure, front) == front_of(measure, new)
    old = {cluster.nodes for cluster in front.clusters if cluster.standing == "infeasible"}
    assert old == set(family.members()) - set(new)
    assert verify_front(front).complete


@pytest.mark.parametrize("fewest", one_each([(0, 2), (0, 1), (1, 0), (2, 2)], 4))
def test_nodes_that_may_not_be_left_out_may_idle(fewest: Counts) -> None:
    """Where a family asks for old nodes, plans that leave all of them idle have flash attention."""
    family, alone = mixed_family(9, fewest=fewest), solved_alone(9)
    times = {
        counts: min((ns for used in family.uses(counts) if (ns := alone[used])), default=None)
        for counts in family.members()
    }
    measure, front = TimeAndMoney(family), searched(family)
    assert points_of(measure, front) == front_of(measure, times)
    assert verify_front(front).complete


@pytest.mark.parametrize("method", ["exact", "cpsat", "milp"])
@pytest.mark.parametrize("seed", one_each([28, *SEEDS], 6))
def test_solve_has_plans_of_new_nodes_with_flash_attention(seed: int, method: Method) -> None:
    """The best plan is that of the best choice of nodes, each solved by itself."""
    options = SolveOptions(method=method)
    result = solve(mixed(seed), options)
    assert result.step_time_ns == min(ns for ns in solved_alone(seed).values() if ns is not None)
    check_verified(result, options)


def as_if(instance: Instance, flash: bool) -> Instance:
    workload = instance.fused if flash else instance.workload
    return instance.model_copy(update={"workload": workload, "fused": None})


@pytest.mark.parametrize("flash", [False, True])
def test_verify_refuses_proofs_of_other_attention(flash: bool) -> None:
    """Plans of new nodes are faster than without it, plans of old ones slower than with it."""
    instance = mixed(28)
    document = build_document(solve(as_if(instance, flash)), SolveOptions())
    assert verify_document(document).complete
    assert verify_document(sealed(document.but(instance=instance))).problems
    family = mixed_family(34)
    front = searched(family.model_copy(update={"instance": as_if(family.instance, flash)}))
    assert verify_front(front).complete
    points = tuple(
        point.but(plan=sealed(point.plan.but(instance=family.member(point.nodes_used))))
        for point in front.points
    )
    for kept in (front.points, points):
        assert verify_front(sealed(front.but(family=family, points=kept))).problems
