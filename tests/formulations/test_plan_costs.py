"""Costs of one plan, by hand."""

import pytest

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import plan_costs, split_costs
from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import build_tables
from formulations.errors import PlanError
from formulations.plan import Recomputed, uniform_plan
from tests.equal_nodes import equal_nodes
from tests.small_instances import layer, plain_shape, workload


@pytest.mark.usefixtures("round_times")
def test_recomputed_blocks_prolong_the_backward_pass() -> None:
    """Of two stages of two blocks of 0.2 ms forward, the first recomputes one, the other none."""
    base = equal_nodes(1, 2, 1, 1, 2).instance
    chain = [layer(kind, 10, 0, 0) for kind in ("embedding", *["block"] * 4, "head")]
    instance = base.model_copy(update={"workload": workload(chain, 4, 10**6, False)})
    tables = build_tables(instance, plain_shape((1,), pp=2, recompute=("none", "full")))
    first, second = Recomputed(way="full", blocks=1), Recomputed(way="none", blocks=0)
    costs = split_costs(
        tables, Placer(tables).costs([0]), (0, 3, 6), (4,), lambda d, *_: [(first, second)[d]]
    )
    # Three layers on each; 10 GFLOPs at 50 TFLOP/s are 0.2 ms, backward twice.
    assert costs.forward_ns.tolist() == [[600_000], [600_000]]
    assert costs.backward_ns.tolist() == [[1_200_000 + 200_000], [1_200_000]]


def test_replicas_alike_recompute_alike() -> None:
    """A plan in which one of two replicas on equal GPUs recomputes has no costs."""
    tables = equal_nodes(1, 2, 1, 2, 1)
    instance, shape = tables.instance, tables.shape
    assert shape.dp == 2
    plan = uniform_plan(
        instance, shape, [0], (0, tables.num_layers), (1, 1), StageCosts(tables).recomputed
    )
    first, second = plan.replicas
    stage = second.stages[0].but(recomputed=Recomputed(way="full", blocks=1))
    unlike = plan.but(replicas=(first, second.but(stages=(stage,))))
    with pytest.raises(PlanError, match="unlike recomputation"):
        plan_costs(instance, unlike)
