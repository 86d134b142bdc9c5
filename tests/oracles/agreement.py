"""Whether the product's costs are those that docs/cost.md says, plan by plan.

Every module of costs has its own seeds of `cases`, whose plans use what it works out.
"""

from collections.abc import Callable

import numpy as np
import pytest

from formulations.costs.plan_costs import plan_costs, plan_memory
from tests.oracles.cases import cases
from tests.oracles.costs import counted
from tests.oracles.stages import Memory
from tests.oracles.traffic import Places


def check_costs(seed: int) -> None:
    for case in cases(seed):
        costs = plan_costs(case.instance, case.plan)
        for name, figures in counted(*case).items():
            stated = np.asarray(getattr(costs, name))
            worked_out = np.array(figures, dtype=np.int64).reshape(stated.shape)
            assert np.array_equal(worked_out, stated), (seed, case.plan.config, name)


def check_memory(seed: int) -> None:
    for case in cases(seed):
        memory = Memory(Places(*case))
        for r, replica in enumerate(plan_memory(case.instance, case.plan)):
            for k, parts in enumerate(replica):
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
