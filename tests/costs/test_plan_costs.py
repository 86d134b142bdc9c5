"""Costs of one plan, by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from formulations.costs.plan_costs import plan_costs, rounding_error_ns, synced_ns
from formulations.costs.stage_costs import StageCosts
from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.plan import Recomputed, uniform_plan
from solver.simulate import step_time_ns
from tests.chain_instances import equal_nodes
from tests.conftest import present
from tests.hand_made import results
from tests.oracles.agreement import pages_suffice
from tests.oracles.cases import drawn
from tests.random_configs import slower
from tests.recorded import Cases, recorded, summary
from tests.seeds import few_and_many

test_pages_suffice = pages_suffice(5, 12, 46)


@recorded("plan_costs")
def test_costs_are_the_recorded_ones() -> Cases:
    for name, instance, plan, tables in drawn(5, 11, 12, 23, 46):
        costs, config = plan_costs(instance, plan), plan.config
        figures = {**vars(costs), "memory": costs.memory_bytes}
        arrays = [value for value in figures.values() if isinstance(value, np.ndarray)]
        ready = np.arange(config.pp)[:, None] * 1000
        rounding = rounding_error_ns(config, tables.num_layers, max(costs.micro_batches))
        yield name, summary([*arrays, synced_ns(costs, ready), costs.embedding_ns, rounding])


SCALE = 1 << 18  # times of the slowest instances stay within the longest step


def slowed(instance: Instance) -> Instance:
    """The instance with every time SCALE times as long: its rounding is SCALE times smaller."""
    slow, groups = slower(instance, SCALE), []
    for group in slow.cluster.groups:
        links = {"intra_node": group.intra_node, "inter_node": group.inter_node}
        late = {at: {"latency_s": SCALE * link.latency_s} for at, link in links.items()}
        overhead = {"launch_overhead_s": SCALE * group.gpu.launch_overhead_s}
        groups.append(group.but(gpu=overhead, **late))
    return slow.but(cluster={"groups": tuple(groups)})


@pytest.mark.parametrize("seeds", few_and_many(range(30), 15))
def test_rounding_of_random_plans_stays_below_the_bound(seeds: Sequence[int]) -> None:
    """Integer step time minus the one with a millionth of the rounding is within the bound."""
    errors = []
    for result in results(seeds):
        plan = present(result.plan)
        costs = plan_costs(result.instance, plan)
        layers = len(result.instance.workload.layers)
        bound = rounding_error_ns(plan.config, layers, max(costs.micro_batches))
        fine = step_time_ns(plan_costs(slowed(result.instance), plan)) / SCALE
        error = step_time_ns(costs) - fine
        assert -bound / SCALE - 1e-3 <= error <= bound
        errors.append(error)
    assert np.max(errors) > 5  # the comparison does see rounding


def test_bug_each_look_at_one_gpu_added_up_the_memory_of_all() -> None:
    """Files and their proofs look at every GPU: of 64 stages of 512 replicas, 1.4 s for sums."""
    _, instance, plan, _ = next(drawn(5))
    costs = plan_costs(instance, plan)
    assert costs.memory_bytes is costs.memory_bytes


def test_replicas_alike_recompute_alike() -> None:
    tables = equal_nodes(1, 2, 2, 1)
    instance, config = tables.instance, tables.config
    choose = StageCosts(tables).recomputed
    plan = uniform_plan(instance, config, [0], (0, tables.num_layers), (1, 1), choose)
    first, second = plan.replicas
    stage = second.stages[0].but(recomputed=Recomputed(way="full", blocks=1))
    unlike = plan.but(replicas=(first, second.but(stages=(stage,))))
    with pytest.raises(PlanError, match="unlike recomputation"):
        plan_costs(instance, unlike)
