"""Whether the product's costs are those that docs/cost.md says, plan by plan.

Every module of costs has its own seeds of `cases`, whose plans use what it works out.
"""

from collections.abc import Callable

import numpy as np
import pytest

from formulations.costs.memory import MemoryParts
from formulations.costs.plan_costs import plan_costs
from formulations.instance import Instance
from formulations.plan import Plan
from tests.oracles.cases import cases
from tests.oracles.layers import Model
from tests.oracles.stages import Memory, Passes
from tests.oracles.traffic import Messages, Places, Rings


def counted(instance: Instance, plan: Plan, model: Model) -> dict[str, object]:
    """All costs of a plan, by their names in `PlanCosts`."""
    at = Places(instance, plan, model)
    rings, messages, memory = Rings(at), Messages(at), Memory(at)
    passes, replicas, devices = Passes(at, rings), range(plan.config.dp), range(plan.config.pp)
    times = [[passes.times_ns(s, r) for r in replicas] for s in range(len(at.stages))]
    forward, backward, weight = ([[one[i] for one in row] for row in times] for i in range(3))
    sync = [rings.after_ns(d, rings.sync_factor, model.gradient_bytes) for d in devices]
    gather = [rings.after_ns(d, rings.gather_factor, model.parameter_bytes, False) for d in devices]
    usable = 1 - instance.limits.memory_headroom
    boundaries = range(len(at.stages) - 1)
    return {
        "forward_ns": forward,
        "backward_ns": backward,
        "weight_ns": weight,
        "send_ns": [[messages.time_ns(s, r) for r in replicas] for s in boundaries],
        "sync_ns": sync,
        "optimizer_ns": [max(memory.optimizer_ns(d, r) for r in replicas) for d in devices],
        "gather_ns": gather,
        "embedding_ns": rings.embedding_ns(),
        "memory_bytes": [[sum(memory.parts(d, r).values()) for r in replicas] for d in devices],
        "limit_bytes": [
            [int(at.of(at.stages[d][r].group.node).gpu.memory_bytes * usable) for r in replicas]
            for d in devices
        ],
    }


def check_costs(seed: int) -> None:
    for case in cases(seed):
        costs = plan_costs(case.instance, case.plan)
        for name, figures in counted(*case).items():
            stated = np.asarray(getattr(costs, name))
            worked_out = np.array(figures, dtype=np.int64).reshape(stated.shape)
            assert np.array_equal(worked_out, stated), (seed, case.plan.config, name)


def check_memory(seed: int) -> None:
    for case in cases(seed):
        memory, costs = Memory(Places(*case)), plan_costs(case.instance, case.plan)
        for k, r in np.ndindex(costs.limit_bytes.shape):
            parts = MemoryParts(*costs.memory[:, k, r].tolist())
            assert memory.parts(k, r) == parts._asdict(), (seed, case.plan.config)


def check_layers(seed: int) -> None:
    for case in cases(seed, number=1):
        for row, layer in zip(case.model.layers(), case.instance.workload.layers, strict=True):
            assert case.model.flops(row) == layer.forward_flops, (seed, row.kind)
            stated = layer.forward_all_reduces, layer.backward_all_reduces
            assert row.all_reduces == stated, (seed, row.kind)
            for tp, pp in ((1, 1), (2, 2), (4, 1)):
                stated = layer.dense_per_gpu(tp, pp), layer.expert_parameters
                assert case.model.parameters(row, tp, pp) == stated, (seed, row.kind)


def pages_suffice(*seeds: int, check: Callable[[int], None] = check_costs) -> Callable[[int], None]:
    """A test that random plans, which use a module, cost what docs/cost.md says."""

    def test(seed: int) -> None:
        check(seed)

    marked: Callable[[int], None] = pytest.mark.parametrize("seed", seeds)(test)
    return marked
