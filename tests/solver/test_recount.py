"""The verifier's recount of a plan is what the cost model says, to the nanosecond."""

from collections.abc import Sequence

import numpy as np
import pytest

from formulations.costs.plan_costs import plan_costs
from solver.verify.recount import Recount
from tests.oracles.cases import cases
from tests.seeds import few_and_many


@pytest.mark.parametrize("seeds", few_and_many(range(240), 6))
def test_recount_of_plans_of_every_feature(seeds: Sequence[int]) -> None:
    """Each field of the costs, on random small plans."""
    for seed in seeds:
        for case in cases(seed):
            stated = vars(plan_costs(case.instance, case.plan))
            counted = vars(Recount(case.instance, case.plan).costs())
            names = stated.keys() - {"shape"}  # by place where every stage has degrees of its own
            unlike = [name for name in names if not np.array_equal(stated[name], counted[name])]
            assert not unlike, (seed, case.plan.shape)
