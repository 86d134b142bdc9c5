"""Promises where some GPUs have no flash attention: plans have it if all GPUs that they use do."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.instance.family import Counts, Family
from solver.clusters.front import TimeAndMoney, TimeAndNodes
from solver.evaluate.megatron_flags import read_flags
from solver.evaluate.megatron_run import launched
from solver.evaluate.run_plan import planned
from solver.export.registry import exported
from solver.files import sealed
from solver.options import Method, SolveOptions
from solver.report.document import build_document, build_front
from solver.search.driver import solve
from solver.verify.front_file import verify_front
from solver.verify.plan_file import verify_document
from tests.flash_families import mixed, mixed_family, solved_alone
from tests.seeds import one_each
from tests.small_families import front_of, points_of, searched, times_by_force

#: With several kinds of clusters on the front.
SEEDS = (9, 19, 23, 28, 34, 36)


def slow(cases: Iterable[tuple[object, ...]]) -> list[object]:
    """Parameters of the long runs."""
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


@pytest.mark.parametrize(
    ("seed", "workload"),
    [(SEEDS[0], ""), (28, ", flash_attention: false"), *slow((seed, "") for seed in SEEDS[2::2])],
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


def test_sequences_are_shared_where_attention_is_fused() -> None:
    """Only plans of new nodes may do so, and where all have to, old nodes have no plan."""
    search = "target: any, context_parallel: [2]"
    family = Family(instance=mixed(105, search=search), fewest=(0, 0))
    new: dict[Counts, int | None] = {
        (n, 0): solve(mixed(105, (n, 0), search=search)).step_time_ns for n in (1, 2)
    }
    result, measure = searched(family), TimeAndMoney(family)
    assert points_of(measure, result) == front_of(measure, new)
    old = {one.nodes for one in result.clusters if one.standing == "infeasible"}
    assert old == set(family.members()) - set(new)
    assert verify_front(build_front(result, "front")).complete


@pytest.mark.parametrize("seed", one_each([9, 8, 28], 3))
def test_solved_alone_is_brute_force(seed: int) -> None:
    """So does every plan of every cluster, judged by the witness."""
    assert times_by_force(mixed_family(seed)) == solved_alone(seed)


@pytest.mark.parametrize("fewest", one_each([(0, 2), (0, 1), (1, 0), (2, 2)], 4))
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
    ("seed", "method"),
    [(28, "exact"), (28, "cpsat"), (28, "milp"), *slow((seed, "exact") for seed in SEEDS)],
)
def test_solve_has_plans_of_new_nodes_with_flash_attention(seed: int, method: Method) -> None:
    """The best plan is that of the best choice of nodes, each solved by itself."""
    options = SolveOptions(method=method)
    result = solve(mixed(seed), options)
    assert result.step_time_ns == min(ns for ns in solved_alone(seed).values() if ns is not None)
    verified = verify_document(build_document(result, options))
    assert verified.complete, verified.problems


def as_if(instance: Instance, flash: bool) -> Instance:
    """The instance with or without flash attention on all GPUs."""
    workload = instance.fused if flash else instance.workload
    return instance.model_copy(update={"workload": workload, "fused": None})


@pytest.mark.parametrize("flash", [False, True])
def test_verify_refuses_proofs_of_other_attention(flash: bool) -> None:
    """Plans of new nodes are faster than without it, plans of old ones slower than with it."""
    instance = mixed(28)
    document = build_document(solve(as_if(instance, flash)), SolveOptions())
    assert verify_document(document).complete
    other = sealed(document.model_copy(update={"instance": instance}))
    assert verify_document(other).problems


@pytest.mark.parametrize("flash", [False, True])
def test_verify_refuses_fronts_of_other_attention(flash: bool) -> None:
    """The same of the points of a front, and of its other clusters."""
    family = mixed_family(34)
    found = searched(family.model_copy(update={"instance": as_if(family.instance, flash)}))
    document = build_front(found, "front")
    assert verify_front(document).complete
    points = tuple(
        point.model_copy(update={"plan": sealed(point.plan.model_copy(update={"instance": own}))})
        for point in document.points
        for own in [family.member(point.nodes_used)]
    )
    for kept in (document.points, points):
        update = {"family": family, "points": kept}
        assert verify_front(sealed(document.model_copy(update=update))).problems


@pytest.mark.parametrize(("order", "flash"), [((0,), True), ((1,), False), ((0, 1), False)])
def test_launches_have_flash_attention_as_their_nodes_do(
    order: tuple[int, ...], flash: bool
) -> None:
    """Files that ask for it are read for new nodes alone, and written for these alone."""
    instance = mixed(1, search="target: megatron")
    flags = "--micro-batch-size 1\n--global-batch-size 4\n--attention-backend flash"
    run = launched(read_flags(flags, "a.txt"), instance)
    own = planned(instance, replace(run, flash=None), order)
    texts, _ = exported(instance, own.plan, "megatron", "plan.json")
    assert any("--attention-backend flash" in text for text in texts.values()) == flash
    if flash:
        assert planned(instance, run, order).plan == own.plan
    else:
        with pytest.raises(PlanError, match=r"^a\.txt:3: .* flash; allowed: --order"):
            planned(instance, run, order)
