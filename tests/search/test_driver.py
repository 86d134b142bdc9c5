"""The search over configurations, held against brute force and the verifier."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_instance
from formulations.instance.search import Overlap
from formulations.space import configs
from formulations.units import GIB
from solver.heuristics.baselines import equal_chunks_plan
from solver.heuristics.time_tables import TimeTables
from solver.options import SolveOptions
from solver.result import Result, Status, Termination
from solver.search import plan_search
from solver.search.driver import solve
from tests.best_plans import check_space, check_verified, least_objective
from tests.expert_instances import expert_instance
from tests.search.spaces import SPACES, cases, cramped_chunks
from tests.search.test_enumeration import permuted
from tests.seeds import one_each
from tests.small_instances import random_instance
from tests.stage_degrees import meshed_instance, stage_instance
from tests.unlike_degrees import unlike_instance
from tests.widened import widened

INSTANCES = Path(__file__).resolve().parents[2] / "instances"
SMALL = load_instance(INSTANCES / "hetero_small.yaml")

# The best plan, and its proof


@pytest.mark.parametrize(("name", "seed"), cases())
def test_search_equals_brute_force_and_is_verified(name: str, seed: int) -> None:
    """The plan is the best of every config, order, split and share; the log is proved again."""
    instance = SPACES[name].make(seed)
    result = solve(instance)
    assert result.objective == least_objective(instance)
    assert result.status is (Status.INFEASIBLE if result.objective is None else Status.OPTIMAL)
    assert result.gap in (0.0, None)
    check_space(instance)
    check_verified(result)


def overlap(share: float) -> dict[str, dict[str, object]]:
    """So much of all traffic is hidden; shares are even."""
    hidden = Overlap(tensor_parallel=share, gradient_sync=share, sharding=share)
    return {"search": {"overlap": hidden, "micro_batches": "even"}}


def searched(**fields: object) -> dict[str, dict[str, object]]:
    """Another plan space."""
    return {"search": fields}


Make = Callable[[int], Instance]
#: Instances by seed, and changes of them, each of which can only bring something to the one before.
WIDER: dict[str, tuple[Make, list[dict[str, dict[str, Any]]]]] = {
    "recomputation": (
        widened,
        [searched(recompute=("none",)), searched(recompute=("none", "full")), {}],
    ),
    "ZeRO": (widened, [searched(zero=(0, 1)), {}]),
    "split sequences": (
        widened,
        [
            searched(sequence_parallel=False, scatter_gather=False),
            searched(sequence_parallel=True, scatter_gather=False),
        ],
    ),
    "memory": (widened, [{"limits": {"memory_headroom": 0.3}}, {}]),
    "hidden traffic": (widened, [overlap(share) for share in (0.0, 0.3, 0.9)]),
    "experts": (
        expert_instance,
        [
            searched(expert_parallel=ep, expert_tensor_parallel=etp, context_parallel=cp)
            for ep, etp, cp in (
                ((1,), ("tp",), (1,)),
                ((1, 2), ("tp",), (1,)),
                ((1, 2), (1, "tp"), (1,)),
                ((1, 2, 4), (1, "tp"), (1, 2)),
            )
        ],
    ),
    "ways of chunks": (cramped_chunks, [searched(recompute_per="plan"), {}]),
    "degrees of groups": (unlike_instance, [searched(degrees="uniform"), {}]),
    "degrees of stages": (
        stage_instance,
        [searched(degrees="uniform"), searched(degrees="per_group"), {}],
    ),
    "what FlagScale runs": (
        meshed_instance,
        [searched(degrees="per_group"), {}, searched(target="any")],
    ),
}


@pytest.mark.parametrize("seed", one_each(range(24), 24))
@pytest.mark.parametrize("name", WIDER)
def test_a_wider_space_is_never_slower(name: str, seed: int) -> None:
    """Each choice that is left out can only cost."""
    make, changes = WIDER[name]
    found = [solve(make(seed).but(**change)).objective for change in changes]
    known = [float("inf") if objective is None else objective for objective in found]
    assert known == sorted(known, reverse=True)


def test_own_ways_are_faster_somewhere() -> None:
    """One device recomputes while another does not, which no single way allows."""
    own, alike = solve(cramped_chunks(22)), solve(cramped_chunks(22, recompute_per="plan"))
    assert own.step_time_ns != alike.step_time_ns


@pytest.mark.parametrize("seed", one_each(range(24), 12))
@pytest.mark.parametrize("make", [unlike_instance, stage_instance])
def test_groups_have_no_order(make: Make, seed: int) -> None:
    """Nor do their names change what is found."""
    assert solve(make(seed)).objective == solve(permuted(make(seed))).objective


@pytest.mark.parametrize(
    ("fields", "step_ns"),
    [
        ({"degrees": "per_group"}, 806_111_691),
        (
            {"degrees": "per_stage", "data_parallel": (2,), "micro_batch": (16,)},
            775_833_724,
        ),
    ],
)
def test_figures_of_hetero_small(fields: dict[str, Any], step_ns: int) -> None:
    """Proved to 0.1 %: degrees by node group, and by stage (two replicas); equal ones: 860.6 ms."""
    result = solve(SMALL.but(search=fields), SolveOptions(gap=0.001))
    assert (result.status, result.step_time_ns) == (Status.OPTIMAL, step_ns)


@pytest.fixture(scope="module")
def proved() -> Result:
    """The README's example, solved."""
    return solve(SMALL)


def test_hetero_small_is_proved_and_verified(proved: Result) -> None:
    """The README's example: gap 0, closed, and the verifier agrees; a second run is the same."""
    assert (proved.status, proved.termination) == (Status.OPTIMAL, Termination.CLOSED)
    assert proved.gap == 0.0
    check_verified(proved)
    assert solve(SMALL).plan == proved.plan


# Limits of a plan


def test_too_little_memory_names_the_remedy() -> None:
    """An instance that no GPU can hold is infeasible for memory, with a figure."""
    groups = tuple(group.but(gpu={"memory_bytes": GIB}) for group in SMALL.cluster.groups)
    few = {"micro_batch": (4,), "recompute": ("none",), "pipeline_parallel": (4,)}
    result = solve(SMALL.but(cluster={"groups": groups}, search=few))
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
    """Limits at the optimum of one configuration, no incumbent: the engine still finds the plan."""
    instance = random_instance(seed).but(search={"pipeline_parallel": (1, 2, 3)})
    best = solve(instance).step_time_ns
    if best is None:
        pytest.skip("no plan")
    limited = instance.but(limits={"max_step_time_s": best / 1e9})
    assert solve(limited, SolveOptions(gap=0.2)).step_time_ns == best


# Limits of a search


def test_time_limit_returns_the_incumbent_with_its_gap() -> None:
    """A search that stops early keeps its plan and a valid bound; minutes do not prove this one."""
    hard = INSTANCES.parent / "bench" / "hard" / "zones_uneven_28_gpus.yaml"
    options = SolveOptions(time_limit_s=1.5)
    result = solve(load_instance(hard), options)
    assert result.status is Status.FEASIBLE
    assert result.gap is not None
    assert 0 < result.gap < 1
    check_verified(result, options)


def test_interrupt_returns_the_incumbent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of the proof loses nothing."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("solver.search.plan_search.enumerate_config", interrupt)
    result = solve(SMALL)
    assert result.termination is Termination.INTERRUPTED
    assert result.plan is not None
    assert result.status is Status.FEASIBLE


def test_bug_an_engine_that_seldom_asks_kept_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not stop by itself is ended, and its configuration stays open."""

    def never_ends(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr("solver.search.plan_search.enumerate_config", never_ends)
    result = solve(SMALL, SolveOptions(time_limit_s=1.0))
    assert result.termination is Termination.TIME_LIMIT
    assert result.plan is not None
    assert result.status is Status.FEASIBLE


def test_bug_without_time_to_list_configs_a_plan_was_its_own_bound(
    monkeypatch: pytest.MonkeyPatch, proved: Result
) -> None:
    """A plan to start from, as of a study, proves nothing of configs that were not looked at."""
    assert proved.plan is not None
    assert proved.step_time_ns is not None
    monkeypatch.setattr("solver.interrupt.Deadline.over", lambda self: True)
    options = SolveOptions(time_limit_s=1.0)
    result = solve(SMALL, options, start=(proved.plan, proved.step_time_ns))
    assert (result.plan, result.status) == (proved.plan, Status.FEASIBLE)
    assert (result.bound, result.gap) == (None, None)


@pytest.mark.slow
def test_bug_first_plan_of_chunks_was_worse_than_equal_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GPT-3 175B on 1,024 GPUs: the first incumbent is as good as the best equal chunks."""
    instance = load_instance(INSTANCES.parent / "bench/calculon/its_figures.yaml")
    monkeypatch.setattr(plan_search.PlanSearch, "run", lambda search: None)
    found = solve(instance)
    equal = equal_chunks_plan(configs(instance), TimeTables(instance), lambda: False)
    assert equal is not None
    assert found.step_time_ns is not None
    assert found.step_time_ns <= equal[1]


@pytest.mark.parametrize(("limit_s", "status"), [(None, Status.INFEASIBLE), (0.0, Status.UNKNOWN)])
def test_bug_listing_choices_of_nodes_without_a_config_took_no_notice_of_the_time(
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
