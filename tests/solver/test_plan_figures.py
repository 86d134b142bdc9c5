"""The figures of a plan file are those of its costs, its memory and its machines."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from formulations.costs.plan_costs import plan_costs
from formulations.errors import PlanError
from formulations.instance import Objective
from solver.document import PlanDocument
from solver.files import sealed
from solver.plan_figures import (
    NO_FIGURES,
    PATH_FIELDS,
    costs_of,
    peak_flop_per_s,
    plan_figures,
    plan_of,
)
from solver.result import Status, Termination
from tests.conftest import present
from tests.hand_made import document_of, pipelined_result, planless_result, results
from tests.recorded import as_recorded, digest
from tests.seeds import few_and_many


def test_figures_fill_what_is_empty_without_a_plan() -> None:
    result = pipelined_result()
    assert result.plan is not None
    costs = plan_costs(result.instance, result.plan)
    figures = plan_figures(result.instance, result.plan, costs, present(result.step_time_ns))
    assert figures.keys() == NO_FIGURES.keys() <= PlanDocument.model_fields.keys()
    planless = document_of(planless_result(Status.UNKNOWN, Termination.TIME_LIMIT))
    assert {name: getattr(planless, name) for name in NO_FIGURES} == NO_FIGURES
    assert set(PATH_FIELDS.values()) <= type(figures["critical_path"]).model_fields.keys()
    # 2 nodes of 2 GPUs of 120 TFLOP/s
    assert peak_flop_per_s(result.instance, result.plan.config) == pytest.approx(4 * 120e12)


@pytest.mark.parametrize("seeds", few_and_many(range(25), 8))
def test_documents_of_plans(seeds: Sequence[int]) -> None:
    """They give the plan back; step and memory are sums of their parts, to the ns and the byte.

    Figures of the costs, of model FLOPs and of all parts of the memory are the recorded ones.
    """
    figures = {}
    for n, result in enumerate(results(seeds)):
        document = document_of(result)
        told = digest([getattr(document, name) for name in NO_FIGURES])
        figures[f"{n}"] = [document.step_time_s, document.mfu, told]
        assert plan_of(document) == result.plan
        parts_s = present(document.critical_path).model_dump().values()
        assert sum(round(1e9 * part) for part in parts_s) == result.step_time_ns
        for stage in (stage for replica in document.replicas for stage in replica.stages):
            assert sum(stage.memory.model_dump().values()) == stage.memory_bytes
    if seeds[0] == 0:
        as_recorded("plan_figures", figures)


def test_bound_of_money_is_shown_at_the_rent_of_the_plan() -> None:
    """Where money is minimised, bound / rent is a time that leaves the same gap."""
    result = pipelined_result()
    instance = result.instance.but(objective=Objective(minimize="cost_per_step"))
    rent = 2 * instance.cluster.groups[0].price_usd_per_hour
    objective = rent * present(result.step_time_ns)
    document = document_of(
        replace(
            result,
            instance=instance,
            objective=objective,
            bound=objective * 0.75,
            requested_gap=0.25,
        )
    )
    assert document.gap == pytest.approx(0.25)
    assert document.lower_bound_s == pytest.approx(0.75 * present(document.step_time_s))


def test_documents_that_hold_no_plan_are_not_shown(document: PlanDocument) -> None:
    with pytest.raises(PlanError, match=r"digest: the plan file was changed"):
        plan_of(document.but(step_time_s=1.0))
    with pytest.raises(PlanError, match=r"a plan that verify accepts"):
        costs_of(sealed(document.but(node_order=("moon-0", "fast-1"))))
    planless = document_of(planless_result(Status.INFEASIBLE, Termination.CLOSED))
    with pytest.raises(PlanError, match=r"no plan \(status infeasible\)"):
        plan_of(planless)
