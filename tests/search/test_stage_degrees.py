"""Stages with degrees of their own, against trying every plan."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.instance import Instance
from formulations.instance.load import load_instance
from formulations.plan import Shape
from formulations.space import PlanSpace, shapes
from solver.bounds.stage_choice import StageChoice
from solver.enumeration.engine import ShapeAnswer
from solver.export import flagscale
from solver.export.job import Job
from solver.export.registry import EXPORTERS
from solver.files import sealed
from solver.graph.problem import Intervals
from solver.heuristics.time_tables import TimeTables
from solver.options import Method, SolveOptions
from solver.report.document import build_document
from solver.result import Status
from solver.search.driver import solve
from solver.search.enumeration import enumerate_shape
from solver.search.plan_search import PlanSearch
from solver.simulate import step_time_ns
from solver.verify import verify_document
from solver.verify.bounds import Clock, Prover
from solver.verify.stage_degrees import StageWork, exhaust_stages
from tests.best_plans import check_space
from tests.search.test_unlike_degrees import permuted
from tests.seeds import few_and_many, one_each
from tests.stage_degrees import Bench, meshed_instance, stage_instance

ROOT = Path(__file__).parents[2]
NO_CUTOFF = 1 << 56
EXACT = SolveOptions(gap=0.0)
Make = Callable[[int], Instance]
both_targets = pytest.mark.parametrize("make", [stage_instance, meshed_instance])


def small_shapes(instance: Instance) -> list[Shape]:
    """Few enough stages and replicas to try everything."""
    return [s for s in shapes(instance) if s.per_stage and s.pp <= 4 and s.dp <= 4]


def answer(instance: Instance, shape: Shape) -> ShapeAnswer:
    """The best plan of a shape."""
    intervals = Intervals(TimeTables(instance).costs(shape))
    return enumerate_shape(intervals, NO_CUTOFF, 0.0, lambda: False)


@both_targets
@pytest.mark.parametrize("seeds", few_and_many(range(90), 13))
def test_search_equals_brute_force(seeds: Sequence[int], make: Make) -> None:
    """The best plan of every shape; bounds are no higher, and the verifier finds none below it."""
    for seed in seeds:
        instance = make(seed)
        prover, choice = Prover(PlanSpace(instance)), StageChoice(instance)
        work = StageWork(prover)
        for shape in small_shapes(instance):
            best = Bench(instance, shape).optimum_ns()
            found = answer(instance, shape)
            assert (found.step_time_ns, found.complete) == (best, True), (seed, shape)
            if best is None or found.plan is None:
                continue
            bound = choice.bound_ns(shape)
            assert max(bound, work.bound_ns(shape)) <= best, (seed, shape)
            assert step_time_ns(plan_costs(instance, found.plan)) == best, (seed, shape)
            below = exhaust_stages(prover, shape, best, Clock())
            above = exhaust_stages(prover, shape, best + 1, Clock())
            assert below is not None, (seed, shape)
            assert above is not None, (seed, shape)
            assert (below.plan, above.step_time_ns) == (None, best), (seed, shape)


@both_targets
@pytest.mark.parametrize("seeds", few_and_many(range(40), 13))
def test_plan_space_and_certificate_are_those_of_the_verifier(
    seeds: Sequence[int], make: Make
) -> None:
    """Two enumerations list the same shapes, and the whole file is proved again."""
    for seed in seeds:
        instance = make(seed)
        instance = instance.but(search={"pipeline_parallel": (1, 2, 3)})
        check_space(instance)
        report = verify_document(build_document(solve(instance, EXACT), EXACT))
        assert report.complete, (seed, report.problems)


@pytest.mark.parametrize("seed", one_each(range(40), 6))
def test_flagscale_runs_some_plans_of_all_and_all_by_group(seed: int) -> None:
    """What it runs with degrees per stage is no faster than any plan, no slower than by group."""
    own = meshed_instance(seed)
    others: list[dict[str, Any]] = [{"target": "any"}, {}, {"degrees": "per_group"}]
    spaces = [own.search.model_copy(update=fields) for fields in others]
    found = [solve(own.but(search=s), EXACT).objective for s in spaces]
    known = [float("inf") if one is None else one for one in found]
    assert known == sorted(known), seed


@pytest.mark.parametrize("seed", one_each(range(40), 4))
def test_plans_for_flagscale_are_meshes_that_start(seed: int) -> None:
    """Stages of unlike degrees in one node too: each mesh is a run of ranks."""
    instance = meshed_instance(seed)
    for plan in (answer(instance, shape).plan for shape in small_shapes(instance)):
        if plan is not None:
            job = Job(instance, plan)
            assert not list(EXPORTERS["flagscale"].faults(job)), (seed, plan)
            flagscale.check(job, flagscale.files(job))


@pytest.mark.parametrize("seed", one_each(range(30), 7))
def test_more_choice_is_never_slower_and_groups_have_no_order(seed: int) -> None:
    """Each stage its own, each group its own, all alike; nor do names change what is found."""
    own = stage_instance(seed)
    found = [solve(one, EXACT).objective for one in (own, permuted(own))]
    assert found[0] == found[1], seed
    for degrees in ("per_group", "uniform"):
        found.append(solve(own.but(search={"degrees": degrees}), EXACT).objective)
    known = [float("inf") if one is None else one for one in found]
    assert known[1] <= known[2] <= known[3], seed


def test_figure_of_hetero_small() -> None:
    """775.8 ms, proved to 0.1 %, where degrees by node group take 806.1 ms; of two replicas."""
    one = load_instance(ROOT / "instances" / "hetero_small.yaml")
    chosen = {"degrees": "per_stage", "data_parallel": (2,), "micro_batch": (16,)}
    result = solve(one.but(search=chosen), SolveOptions(gap=0.001))
    assert result.status is Status.OPTIMAL
    assert result.step_time_ns == 775_833_724


@both_targets
@pytest.mark.parametrize("method", ["cpsat", "milp"])
@pytest.mark.parametrize("seeds", few_and_many(range(60), 13))
def test_models_find_what_the_search_finds(
    seeds: Sequence[int], method: Method, make: Make
) -> None:
    """A part of the model for every layout; the log is proved again."""
    for seed in seeds:
        instance = make(seed)
        small = {"pipeline_parallel": (2 + seed % 2,), "data_parallel": (1 + seed // 2 % 2,)}
        instance = instance.but(search=small)
        result = solve(instance, SolveOptions(gap=0.0, method=method))
        exact = solve(instance, EXACT)
        assert (result.status, result.objective) == (exact.status, exact.objective), seed
        report = verify_document(build_document(result, EXACT))
        assert report.complete, (seed, report.problems)


@pytest.mark.parametrize("method", ["cpsat", "milp"])
def test_bug_shapes_without_a_layout_stayed_open(method: Method) -> None:
    """Nodes of four GPUs and one have no two stages of two replicas each: no part of a model."""
    small = {"pipeline_parallel": (2,), "data_parallel": (2,)}
    result = solve(stage_instance(2).but(search=small), SolveOptions(method=method))
    assert result.status is Status.INFEASIBLE


@pytest.mark.parametrize("seed", [2, 26])
def test_shapes_near_the_best_by_group_lead_to_better_plans(seed: int) -> None:
    """Here to the best one, before any bound is looked at."""
    search = PlanSearch(stage_instance(seed), EXACT)
    search.run({shape for shape in search.space if not shape.per_stage})
    before = search.incumbents.best
    search.climb()
    after = search.incumbents.best
    search.run()
    assert before is not None
    assert after is not None
    assert search.incumbents.best == after < before


def test_forged_places_are_refused() -> None:
    """Other degrees of a stage, or GPUs that are not next, under a seal that fits."""
    instance = stage_instance(0)
    found = next(one for one in (answer(instance, s) for s in small_shapes(instance)) if one.plan)
    assert found.plan is not None
    result = replace(solve(instance, EXACT), plan=found.plan, step_time_ns=found.step_time_ns)
    document = build_document(result, EXACT)
    stage = document.replicas[0].stages[0]
    forged: list[dict[str, Any]] = [
        {"degrees": stage.degrees.but(tp=2 * stage.degrees.tp)},
        {"gpus": tuple(gpu + 1 for gpu in stage.gpus)},
    ]
    for fields in forged:
        first = document.replicas[0]
        stages = (stage.model_copy(update=fields), *first.stages[1:])
        replicas = (first.but(stages=stages), *document.replicas[1:])
        report = verify_document(sealed(document.but(replicas=replicas)))
        assert any("replicas[0].stages[0]" in str(one) for one in report.problems), fields
