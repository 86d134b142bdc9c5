"""docs/cost.md suffices to work the traffic of a plan out: `tests.oracles.traffic` does so."""

from collections.abc import Sequence

import numpy as np
import pytest

from formulations.costs.compute import layer_times
from formulations.costs.plan_costs import plan_costs
from tests.oracles.cases import Case, cases, without_traffic
from tests.oracles.passes import Compute
from tests.oracles.traffic import traffic
from tests.seeds import few_and_many


def compute_of(case: Case) -> Compute:
    """What layers take without traffic; nothing where the GPUs are as fast as that."""
    if not case.computes:
        return lambda _, __: (0, 0, 0)
    shape = case.plan.shape
    free = without_traffic(case.instance)
    times = layer_times(free, shape.degrees, shape.micro_batch, "none")
    rows = np.stack([times.forward_ns, times.backward_ns, times.weight_ns])
    return lambda x, j: tuple(rows[:, x, j].tolist())


@pytest.mark.parametrize("seeds", few_and_many(range(240), 6))
def test_pages_suffice_for_the_traffic_of_a_plan(seeds: Sequence[int]) -> None:
    """What the page says gives every time of random plans, but for rounding of layers."""
    for seed in seeds:
        for case in cases(seed):
            costs = plan_costs(case.instance, case.plan)
            counted = traffic(case.instance, case.plan, case.model, compute_of(case))
            # forward, backward, and weight gradients apart may each be rounded once more
            layers = 3 * len(case.instance.workload.layers)
            for name, times in vars(counted).items():
                rounding = layers if name in ("forward_ns", "backward_ns") else 0
                stated = np.asarray(getattr(costs, name))
                worked_out = np.array(times, dtype=np.int64).reshape(stated.shape)
                apart = np.abs(worked_out - stated)
                assert apart.max(initial=0) <= rounding, (seed, case.plan.shape, name)
