"""docs/cost.md suffices to work all costs of a plan out: `tests.oracles.costs` does so."""

from collections.abc import Sequence

import numpy as np
import pytest

from formulations.costs.plan_costs import plan_costs, plan_memory
from tests.oracles.cases import cases
from tests.oracles.costs import counted
from tests.oracles.memory import Memory
from tests.oracles.places import Places
from tests.seeds import few_and_many


@pytest.mark.parametrize("seeds", few_and_many(range(240), 6))
def test_pages_suffice_for_the_costs_of_a_plan(seeds: Sequence[int]) -> None:
    """What the page says gives every time and size of random plans, to the ns and the byte."""
    for seed in seeds:
        for case in cases(seed):
            costs = plan_costs(case.instance, case.plan)
            for name, figures in vars(counted(*case)).items():
                stated = np.asarray(getattr(costs, name))
                worked_out = np.array(figures, dtype=np.int64).reshape(stated.shape)
                assert np.array_equal(worked_out, stated), (seed, case.plan.shape, name)


@pytest.mark.parametrize("seeds", few_and_many(range(240), 12))
def test_pages_suffice_for_what_the_memory_holds(seeds: Sequence[int]) -> None:
    """Part by part."""
    for seed in seeds:
        for case in cases(seed):
            memory = Memory(Places(*case))
            for r, replica in enumerate(plan_memory(case.instance, case.plan)):
                for k, parts in enumerate(replica):
                    assert memory.parts(k, r) == parts._asdict(), (seed, case.plan.shape)


@pytest.mark.parametrize("seeds", few_and_many(range(240), 12))
def test_pages_suffice_for_flops_and_parameters(seeds: Sequence[int]) -> None:
    """Of every layer, from the sizes of the model."""
    for seed in seeds:
        for case in cases(seed, number=1):
            stated = case.instance.workload.layers
            for row, layer in zip(case.model.layers(), stated, strict=True):
                assert case.model.flops(row) == layer.forward_flops, (seed, row.kind)
                for tp, pp in ((1, 1), (2, 2), (4, 1)):
                    alike, experts = case.model.parameters(row, tp, pp)
                    own = layer.dense_per_gpu(tp, pp), layer.expert_parameters
                    assert (alike, experts) == own, (seed, row.kind)
