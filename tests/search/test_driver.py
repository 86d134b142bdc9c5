"""The search over shapes, held against brute force and the verifier."""

from pathlib import Path

import pytest

from formulations.costs.tables import build_tables
from formulations.instance import Instance
from formulations.instance.load import load_instance
from formulations.space import shapes
from formulations.units import GIB
from solver.backends.outcome import Outcome
from solver.graph.problem import Intervals
from solver.heuristics.baselines import equal_chunks_plan
from solver.heuristics.time_tables import TimeTables
from solver.options import Method, SolveOptions
from solver.result import Result, Status, Termination
from solver.search import plan_search
from solver.search.driver import solve
from solver.search.enumeration import enumerate_shape
from tests.best_plans import check_verified, least_ns, least_objective
from tests.brute_force import optimum_ns
from tests.random_shapes import scheduled, slower, zoned
from tests.seeds import one_each
from tests.small_instances import random_instance

METHODS: tuple[Method, ...] = ("cpsat", "milp")
INSTANCES = Path(__file__).resolve().parents[2] / "instances"
SMALL = load_instance(INSTANCES / "hetero_small.yaml")


def small_space(instance: Instance) -> Instance:
    """At most three stages, so that brute force stays quick."""
    return instance.but(search={"pipeline_parallel": (1, 2, 3)})


def test_bug_without_time_to_list_shapes_a_plan_was_its_own_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan to start from, as of a study, proves nothing of shapes that were not looked at."""
    best = solve(SMALL, SolveOptions(method="minmax"))
    assert best.plan is not None
    assert best.step_time_ns is not None
    monkeypatch.setattr("solver.interrupt.Deadline.over", lambda self: True)
    options = SolveOptions(time_limit_s=1.0)
    result = solve(SMALL, options, start=(best.plan, best.step_time_ns))
    assert (result.plan, result.status) == (best.plan, Status.FEASIBLE)
    assert (result.bound, result.gap) == (None, None)


@pytest.mark.parametrize("seed", one_each(range(40), 3))
def test_search_equals_brute_force_over_the_whole_plan_space(seed: int) -> None:
    """The plan's objective is the least over every shape, order, split and share.

    Steps take minutes for odd seeds.
    """
    instance = small_space(random_instance(seed))
    instance = slower(instance) if seed % 2 else instance
    result = solve(instance)
    assert result.objective == least_objective(instance)
    assert result.status is (Status.INFEASIBLE if result.objective is None else Status.OPTIMAL)
    assert result.gap in (0.0, None)


@pytest.mark.parametrize("method", ["exact", *METHODS])
@pytest.mark.parametrize("seed", one_each(range(45), 13))
def test_search_over_all_schedules_equals_brute_force(seed: int, method: Method) -> None:
    """1F1B, GPipe, interleaved and ZB-H1 in one plan space, or interleaved alone; zones or not."""
    instance = small_space(scheduled(random_instance(seed), "interleaved", seed))
    if seed % 24:
        update = {"schedule": ("1f1b", "gpipe", "interleaved", "zb-h1")}
        instance = instance.but(search=update)
    instance = zoned(instance, seed) if seed % 3 == 0 else instance
    assert solve(instance, SolveOptions(method=method)).objective == least_objective(instance)


@pytest.mark.parametrize("seed", one_each(range(200, 320), 5))
def test_engine_equals_brute_force_on_one_shape(seed: int) -> None:
    """Without any cutoff the engine finds the least step time of the shape, or that none fits."""
    instance = small_space(random_instance(seed))
    space = list(shapes(instance))
    if not space:
        pytest.skip("no shape")
    shape = space[seed * 7919 % len(space)]
    tables = build_tables(instance, shape)
    answer = enumerate_shape(Intervals(tables), 1 << 56, 0.0, lambda: False)
    assert answer.complete
    assert answer.step_time_ns == optimum_ns(tables)


@pytest.mark.parametrize("seed", one_each(range(40), 9))
def test_search_over_zones_equals_brute_force_and_is_verified(seed: int) -> None:
    """So it is for nodes in several zones, and the verifier counts the same."""
    instance = small_space(zoned(random_instance(seed), seed))
    result = solve(instance)
    assert result.step_time_ns == least_ns(instance)
    check_verified(result)


@pytest.mark.parametrize("seed", one_each(range(20), 3))
def test_plan_and_log_pass_verify(seed: int) -> None:
    """What the search claims, the verifier finds again."""
    check_verified(solve(random_instance(seed)))


@pytest.mark.parametrize("minimize", ["step_time", "cost_per_step"])
@pytest.mark.parametrize("seed", one_each(range(6), 3))
def test_exact_methods_agree(seed: int, minimize: str) -> None:
    """All three reach and prove the same objective on a tiny cluster, and verify accepts them."""
    instance = small_space(random_instance(seed))
    objective = instance.objective.but(minimize=minimize)
    instance = instance.but(objective=objective)
    exact = solve(instance)
    for method in METHODS:
        other = solve(instance, SolveOptions(method=method))
        assert (other.status, other.objective) == (exact.status, exact.objective)
        check_verified(other, SolveOptions(method=method))


@pytest.fixture(scope="module")
def proved() -> Result:
    """The README's example, solved."""
    return solve(SMALL)


def test_numerical_trouble_leaves_shapes_open(
    proved: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where HiGHS ends oddly, the plan is feasible, its bound that of the work, and it says why."""

    def odd(model: object, options: SolveOptions) -> Outcome:
        return Outcome(
            Status.UNKNOWN, Termination.UNFINISHED, None, None, 0.0, None, "HiGHS: Solve error"
        )

    monkeypatch.setattr("solver.backends.highs.run", odd)
    result = solve(SMALL, SolveOptions(method="milp"))
    assert (result.status, result.termination) == (Status.FEASIBLE, Termination.UNFINISHED)
    assert result.bound is not None
    assert proved.objective is not None
    assert result.bound < proved.objective
    check_verified(result, SolveOptions(method="milp"))


def test_hetero_small_is_proved_and_verified(proved: Result) -> None:
    """The README's example: gap 0, closed, and the verifier agrees."""
    assert (proved.status, proved.termination) == (Status.OPTIMAL, Termination.CLOSED)
    assert proved.gap == 0.0
    check_verified(proved)


def test_time_limit_returns_the_incumbent_with_its_gap() -> None:
    """A search that stops early keeps its plan and a valid bound; minutes do not prove this one."""
    hard = INSTANCES.parent / "bench" / "hard" / "zones_uneven_28_gpus.yaml"
    instance = load_instance(hard)
    options = SolveOptions(time_limit_s=1.5)
    result = solve(instance, options)
    assert result.status is Status.FEASIBLE
    assert result.gap is not None
    assert 0 < result.gap < 1
    check_verified(result, options)


def test_interrupt_returns_the_incumbent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of the proof loses nothing."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("solver.search.plan_search.enumerate_shape", interrupt)
    result = solve(SMALL)
    assert result.termination is Termination.INTERRUPTED
    assert result.plan is not None
    assert result.status is Status.FEASIBLE


def test_bug_an_engine_that_seldom_asks_kept_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not stop by itself is ended, and its shape stays open."""

    def never_ends(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr("solver.search.plan_search.enumerate_shape", never_ends)
    result = solve(SMALL, SolveOptions(time_limit_s=1.0))
    assert result.termination is Termination.TIME_LIMIT
    assert result.plan is not None
    assert result.status is Status.FEASIBLE


def test_same_seed_gives_the_same_plan(proved: Result) -> None:
    """Two runs choose the same plan, ties included."""
    assert solve(SMALL).plan == proved.plan


def test_too_little_memory_names_the_remedy() -> None:
    """An instance that no GPU can hold is infeasible for memory, with a figure."""
    groups = tuple(group.but(gpu={"memory_bytes": GIB}) for group in SMALL.cluster.groups)
    cluster = SMALL.cluster.but(groups=groups)
    result = solve(SMALL.but(cluster=cluster, search={"micro_batch": (4,), "recompute": ("none",)}))
    assert result.status is Status.INFEASIBLE
    assert result.infeasibility is not None
    assert result.infeasibility.constraint.startswith("memory")
    assert "GiB more memory on every GPU" in result.infeasibility.remedy


@pytest.mark.slow
def test_budget_below_the_best_plan_is_infeasible(proved: Result) -> None:
    """One nanosecond below the optimum no plan is left; at the optimum there is one."""
    best = proved.step_time_ns
    assert best is not None
    for limit_ns, status in ((best, Status.OPTIMAL), (best - 1, Status.INFEASIBLE)):
        assert solve(SMALL.but(limits={"max_step_time_s": limit_ns / 1e9})).status is status


def test_bug_gap_is_not_taken_off_a_budget(proved: Result) -> None:
    """A gap loosens the proof, never a limit: the plan that just keeps the budget is found."""
    best = proved.step_time_ns
    assert best is not None
    result = solve(SMALL.but(limits={"max_step_time_s": best / 1e9}), SolveOptions(gap=0.1))
    assert (result.status, result.step_time_ns) == (Status.OPTIMAL, best)


@pytest.mark.parametrize("seed", [3, 5, 8, 12])
def test_bug_gap_with_a_budget_never_makes_an_instance_infeasible(seed: int) -> None:
    """Limits at the optimum of one shape, no incumbent: the engine still finds the plan."""
    instance = small_space(random_instance(seed))
    best = solve(instance).step_time_ns
    if best is None:
        pytest.skip("no plan")
    limited = instance.but(limits={"max_step_time_s": best / 1e9})
    assert solve(limited, SolveOptions(gap=0.2)).step_time_ns == best


def test_bug_first_plan_of_chunks_was_worse_than_equal_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GPT-3 175B on 1,024 GPUs: the first incumbent is as good as the best equal chunks."""
    instance = load_instance(INSTANCES.parent / "bench/calculon/its_figures.yaml")
    monkeypatch.setattr(plan_search.PlanSearch, "run", lambda search: None)
    found = solve(instance)
    equal = equal_chunks_plan(shapes(instance), TimeTables(instance), lambda: False)
    assert equal is not None
    assert found.step_time_ns is not None
    assert found.step_time_ns <= equal[1]


@pytest.mark.parametrize(("limit_s", "status"), [(None, Status.INFEASIBLE), (0.0, Status.UNKNOWN)])
def test_bug_listing_choices_of_nodes_without_a_shape_took_no_notice_of_the_time(
    limit_s: float | None, status: Status
) -> None:
    """A thousand nodes for a batch of one sequence and nine stages of six layers."""
    instance = random_instance(0)
    first = instance.cluster.groups[0].but(nodes=1000)
    many = instance.but(
        cluster={"groups": (first,)},
        workload={"global_batch": 1},
        search={"pipeline_parallel": (9,), "micro_batch": (1,)},
    )
    assert solve(many, SolveOptions(time_limit_s=limit_s)).status is status
