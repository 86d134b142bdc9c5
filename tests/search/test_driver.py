"""The search over configurations, held against brute force and the verifier."""

from itertools import product
from math import inf
from pathlib import Path
from typing import Any

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_instance
from formulations.instance.search import Overlap
from formulations.instance.targets import TARGETS
from formulations.space import configs
from formulations.space.launch import widened
from solver.heuristics.baselines import equal_chunks_plan
from solver.heuristics.time_tables import TimeTables
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.report.text import outcome
from solver.result import OtherTarget, Status, Termination
from solver.search import driver, plan_search
from solver.search.driver import solve, solve_with_targets
from tests.best_plans import check_space, check_verified, least_objective
from tests.conftest import ROOT, present
from tests.search.spaces import SPACES, cases
from tests.seeds import one_each
from tests.small_instances import expert_instance, random_instance

SMALL = load_instance(ROOT / "instances" / "hetero_small.yaml")

# The best plan, and its proof


@pytest.mark.parametrize(("name", "seed"), cases())
def test_search_equals_brute_force_and_is_verified(name: str, seed: int) -> None:
    """The plan is the best of every config, order, split and share; the log is proved again."""
    instance = SPACES[name](seed)
    result = solve(instance)
    assert result.objective == least_objective(instance)
    assert result.status is (Status.INFEASIBLE if result.objective is None else Status.OPTIMAL)
    assert result.gap in (0.0, None)
    check_space(instance)
    check_verified(result)


@pytest.mark.parametrize("seed", one_each(range(44), 22))
def test_keeping_gradients_too_gives_the_better_of_both(seed: int) -> None:
    hidden = Overlap(sharding=0.9 * (seed % 4 > 1))  # where all of it hides, what is kept is seen
    made = SPACES["shard groups"](seed).but(search={"zero": (3,), "overlap": hidden})
    each, other, both = (
        solve(made.but(search={"sync_each_batch": syncs})).objective or inf
        for syncs in ((True,), (False,), (True, False))
    )
    assert both == min(each, other)


# Limits of a search


def test_a_heuristic_ends_by_itself_or_by_its_limit() -> None:
    ended = solve(random_instance(3), SolveOptions("minmax"))
    assert ended.termination is Termination.HEURISTIC
    late = solve(random_instance(3), SolveOptions("minmax", time_limit_s=1e-9))
    assert late.termination is Termination.TIME_LIMIT


@pytest.mark.parametrize("seed", [3, 5, 8, 12])
def test_bug_gap_with_a_budget_never_makes_an_instance_infeasible(seed: int) -> None:
    """A gap loosens the proof, never a limit: the plan that just keeps the budget is found.

    Limits at the optimum of one configuration, no incumbent: the engine still finds the plan.
    """
    instance = random_instance(seed).but(search={"pipeline_parallel": (1, 2, 3)})
    best = solve(instance).step_time_ns
    if best is not None:
        limited = instance.but(limits={"max_step_time_s": best / 1e9})
        result = solve(limited, SolveOptions(gap=0.2))
        assert (result.status, result.step_time_ns) == (Status.OPTIMAL, best)


def test_time_limit_returns_the_incumbent_with_its_gap() -> None:
    """A search that stops early keeps its plan and a valid bound; minutes do not prove this one."""
    options = SolveOptions(time_limit_s=1.0)
    result = solve(load_instance(ROOT / "bench/hard/zones_uneven_28_gpus.yaml"), options)
    assert result.status is Status.FEASIBLE
    assert 0 < present(result.gap) < 1
    check_verified(result, options)


def test_models_are_written_and_reasons_told_where_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is asked for; a reason where there is no plan, within 20 s and the time left."""
    path, instance, limits = tmp_path / "model.pb", random_instance(0), list[float]()
    result = solve(instance, SolveOptions(method="cpsat", write_model=path))
    assert path.exists()
    assert result.infeasibility is None
    monkeypatch.setattr(driver, "explain", lambda _, limit_s: limits.append(limit_s))
    none = instance.but(limits={"max_step_time_s": 1e-9})
    for limit_s in (None, 3600.0, 5.0):
        solve(none, SolveOptions(time_limit_s=limit_s))
    assert limits[:2] == [20.0, 20.0]
    assert limits[2] < 6


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def never_end(*_: object) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("engine", "limit_s", "termination"),
    [(interrupt, None, Termination.INTERRUPTED), (never_end, 0.5, Termination.TIME_LIMIT)],
)
def test_bug_an_engine_that_seldom_asks_kept_no_limit(
    engine: object, limit_s: float | None, termination: Termination, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not stop by itself is ended, by Ctrl-C too; its configuration stays open."""
    monkeypatch.setattr("solver.search.plan_search.enumerate_config", engine)
    result = solve(SMALL, SolveOptions(time_limit_s=limit_s))
    assert (result.termination, result.status) == (termination, Status.FEASIBLE)
    assert result.plan is not None


def test_bug_without_time_to_list_configs_a_plan_was_its_own_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan to start from, as of a study, proves nothing of configs that were not looked at."""
    proved = solve(SMALL)
    check_verified(proved)
    assert (proved.termination, proved.gap) == (Termination.CLOSED, 0.0)
    monkeypatch.setattr("solver.interrupt.Deadline.over", lambda self: True)
    options = SolveOptions(time_limit_s=1.0)
    result = solve(SMALL, options, start=(present(proved.plan), present(proved.step_time_ns)))
    assert (result.plan, result.status) == (proved.plan, Status.FEASIBLE)
    assert (result.bound, result.gap) == (None, None)


@pytest.mark.slow
def test_bug_first_plan_of_chunks_was_worse_than_equal_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GPT-3 175B on 1,024 GPUs: the first incumbent is as good as the best equal chunks."""
    instance = load_instance(ROOT / "bench/calculon/its_figures.yaml")
    monkeypatch.setattr(plan_search.PlanSearch, "run", lambda search: None)
    step_ns = solve(instance).step_time_ns
    equal = present(equal_chunks_plan(configs(instance), TimeTables(instance), lambda: False))
    assert present(step_ns) <= equal[1]


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


# What other launch targets may gain


@pytest.fixture(autouse=True)
def _time_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to look at every target on a machine that has other work."""
    monkeypatch.setattr(driver, "LEAST_S", 60.0)


def for_megatron(seed: int, **search: Any) -> Instance:
    fields = {"schedule": ("1f1b",), "micro_batches": "even", "zero": (0, 1), **search}
    instance = random_instance(seed).but(
        search={"target": "megatron", "recompute_per": "plan", **fields}
    )
    return instance.but(objective={"minimize": "cost_per_step"}) if seed % 3 == 1 else instance


@pytest.mark.parametrize("seed", one_each(range(60), 30))
def test_gain_of_another_target_is_a_bound(seed: int) -> None:
    """Solved with the words that are offered, no plan is better than the gain allows."""
    instance = for_megatron(seed)
    result = solve_with_targets(instance)
    if result.objective is None:
        return
    assert {other.target for other in result.other_targets} <= {"flagscale", "torchtitan", "any"}
    offered = {other.search: other for other in result.other_targets}
    others = [(target, added) for target in TARGETS for added in widened(instance, target)]
    for target, added in others:
        wider = instance.but(search={"target": target, **added})
        best = solve(wider, SolveOptions(time_limit_s=20)).objective
        other = offered.get(driver._line(target, added))
        gain, seen = (other.gain, other.found_gain) if other else (0.001, 0.0)
        assert best is None or best >= result.objective * (1 - present(gain)) * (1 - 1e-9)
        if seen:
            assert present(best) <= result.objective * (1 - seen) * (1 + 1e-9)


def test_bug_another_target_was_offered_an_empty_list() -> None:
    """Where it runs nothing of what was listed, all that it runs."""
    lists: dict[str, tuple[object, ...]] = {
        "zero": (0, 1, 2, 3),
        "schedule": ("1f1b", "gpipe", "interleaved", "zb-h1"),
        "recompute": ("none", "selective", "full"),
    }
    choices = [(name, value) for name, values in lists.items() for value in values]
    for target, wider, (name, value) in product(TARGETS, TARGETS, choices):
        instance = random_instance(0).but(search={"target": target, name: (value,)})
        for added in widened(instance, wider):
            assert all(added.values()), (target, wider, name, value)


def test_bug_split_parameters_for_torchtitan_ended_in_a_traceback() -> None:
    """Of Megatron-LM and FlagScale, which split states alone, the plans were none at all."""
    chosen = {"target": "torchtitan", "zero": (3,), "schedule": ("1f1b",), "micro_batches": "even"}
    result = solve_with_targets(expert_instance(1).but(search=chosen | {"expert_parallel": (1,)}))
    assert present(result.plan).config.zero == 3
    offered = {other.target: other.search for other in result.other_targets}
    assert "zero: [0, 1]" in offered["flagscale"]


def test_interrupt_keeps_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("solver.search.driver.seen_within", interrupted)
    result = solve_with_targets(for_megatron(0))
    assert result.plan is not None
    assert result.other_targets == ()


@pytest.mark.parametrize(
    ("gain", "found_gain", "text"),
    [
        (0.1, 0.0, "not yet ruled out that a plan is up to 10.0 % faster"),
        (0.1, 0.05, "5.0 % faster, at most 10.0 %"),
        (0.1, 0.1, "10.0 % faster"),
        (None, 0.0, "not yet looked at for want of time: any target; `explain` does"),
    ],
)
def test_bug_what_time_left_open_read_like_a_gain(
    gain: float | None, found_gain: float, text: str
) -> None:
    """What was seen, what cannot be, and what nobody had the time to rule out."""
    result = solve(for_megatron(0))
    late = list(driver._gains(result, [("any", {})], -1.0))
    seen = OtherTarget(target="any", gain=gain, found_gain=found_gain, search="{target: any}")
    lines = outcome(build_document(result, SolveOptions()), late if gain is None else [seen])
    expected = text if gain is None else f"any target: {text}, with search: {{target: any}}"
    assert [line for label, line in lines if label == "elsewhere"] == [expected]
