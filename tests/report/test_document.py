"""The content of a plan file is that of the plan, the simulator and the prices."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from formulations.errors import PlanError
from formulations.instance import Objective
from solver.document import PlanDocument
from solver.files import sealed
from solver.plan_figures import costs_of, plan_of
from solver.result import Status, Termination
from tests.hand_made import (
    document_of,
    pipelined_result,
    planless_result,
    results,
)
from tests.seeds import few_and_many


@pytest.mark.parametrize("seeds", few_and_many(range(25), 3))
def test_documents_of_plans(seeds: Sequence[int]) -> None:
    """They give the plan back; step and memory are sums of their parts, to the ns and the byte."""
    for result in results(seeds):
        document = document_of(result)
        assert plan_of(document) == result.plan
        assert document.critical_path is not None
        parts_s = document.critical_path.model_dump().values()
        assert sum(round(1e9 * part) for part in parts_s) == result.step_time_ns
        for stage in (stage for replica in document.replicas for stage in replica.stages):
            assert sum(stage.memory.model_dump().values()) == stage.memory_bytes


def test_document_has_the_simulated_figures(document: PlanDocument) -> None:
    """Step time, throughput and money follow from the simulator, the batch and the rent."""
    result = pipelined_result()
    assert result.step_time_ns is not None
    step_s = result.step_time_ns / 1e9
    price = 2 * result.instance.cluster.groups[0].price_usd_per_hour  # nodes_used is (2,)
    assert document.config is not None
    assert document.config.nodes_used == (2,)
    assert document.step_time_s == document.lower_bound_s == pytest.approx(step_s)
    batch = result.instance.workload.global_batch
    assert document.throughput_sequences_per_s == pytest.approx(batch / step_s)
    assert document.price_usd_per_hour == pytest.approx(price)
    assert document.cost_usd_per_step == pytest.approx(price * step_s / 3600)
    assert document.gap == 0
    assert document.time_sources == ("analytic",)


def test_training_cost_is_that_of_all_steps() -> None:
    """1,000 steps cost 1,000 times one step."""
    result = pipelined_result()
    objective = Objective(minimize="training_cost", steps=1000)
    instance = result.instance.but(objective=objective)
    document = document_of(replace(result, instance=instance))
    assert document.cost_usd_per_step is not None
    assert document.training_cost_usd == pytest.approx(1000 * document.cost_usd_per_step)


def test_bound_of_money_is_shown_at_the_rent_of_the_plan() -> None:
    """Where money is minimised, bound / rent is a time that leaves the same gap."""
    result = pipelined_result()
    instance = result.instance.but(objective=Objective(minimize="cost_per_step"))
    assert result.step_time_ns is not None
    rent = 2 * instance.cluster.groups[0].price_usd_per_hour
    objective = rent * result.step_time_ns
    document = document_of(
        replace(
            result,
            instance=instance,
            objective=objective,
            bound=objective * 0.75,
            requested_gap=0.25,
        )
    )
    assert document.step_time_s is not None
    assert document.gap == pytest.approx(0.25)
    assert document.lower_bound_s == pytest.approx(0.75 * document.step_time_s)


def test_document_without_plan_has_no_figures() -> None:
    """Unknown figures are null, not zero."""
    document = document_of(planless_result(Status.UNKNOWN, Termination.TIME_LIMIT))
    figures = document.model_dump(include={"config", "step_time_s", "gap", "cost_usd_per_step"})
    assert set(figures.values()) == {None}
    assert document.replicas == ()
    assert document.node_order == ()


def test_documents_that_hold_no_plan_are_not_shown(document: PlanDocument) -> None:
    """One that was edited, one with a node that the cluster lacks, one without a plan."""
    with pytest.raises(PlanError, match=r"digest: the plan file was changed"):
        plan_of(document.but(step_time_s=1.0))
    with pytest.raises(PlanError, match=r"a plan that verify accepts"):
        costs_of(sealed(document.but(node_order=("moon-0", "fast-1"))))
    planless = document_of(planless_result(Status.INFEASIBLE, Termination.CLOSED))
    with pytest.raises(PlanError, match=r"no plan \(status infeasible\)"):
        plan_of(planless)
