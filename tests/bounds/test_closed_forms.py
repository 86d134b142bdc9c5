"""Closed-form bounds by hand, recorded, and that none is above the best plan of its config."""

from collections.abc import Sequence

import numpy as np
import pytest

from formulations.costs.compute import layer_times
from formulations.costs.tables import CostTables
from formulations.instance.search import ScheduleName
from formulations.space import PlanSpace
from solver.bounds.closed_forms import ClosedForms
from solver.bounds.packing import Packing
from solver.verify import closed_forms as verified_forms
from solver.verify.bounds import Prover
from solver.verify.closed_forms import ClosedForms as VerifiedForms
from tests.bounds.drawn import drawn_configs
from tests.chain_instances import SLOW, chain_instance, chain_tables
from tests.random_configs import WITH_NEW, random_optimum_ns, random_tables
from tests.recorded import as_recorded
from tests.seeds import few_and_many

#: Optimizer of one layer of a chain: 10,000,007 parameters * (4 + 2 * 12 + 2) B at 1e12 B/s.
OPTIMIZER_NS = 300_001
#: Two layers at least on stage 0, and one transfer each way of 1,000 B at 1e9 B/s.
AFTER_NS = 2 * OPTIMIZER_NS + 2_000


def bounds_of(tables: CostTables) -> ClosedForms:
    config = tables.config
    times = layer_times(tables.instance, config.degrees, config.micro_batch, config.recompute[0])
    return ClosedForms(tables.instance, [config], [times])


@pytest.mark.parametrize("schedule", WITH_NEW)
@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(range(150), 15))
def test_bounds_never_exceed_the_optimum(
    schedule: ScheduleName | None, zones: bool, seeds: Sequence[int]
) -> None:
    """Work, filling and packing of search and verifier, brute force over all plans."""
    for seed in seeds:
        best = random_optimum_ns(seed, zones, schedule)
        if best is None:
            continue
        tables = random_tables(seed, zones, schedule)
        forms = bounds_of(tables)
        verified = VerifiedForms(Prover(PlanSpace(tables.instance)), [tables.config])
        assert max(forms.work_ns()[0], forms.filling_ns()[0], verified.work_ns()[0]) <= best
        assert not Packing(forms).refutes(np.array([best + 1]))[0]
        assert not verified_forms.refuted(verified, [best + 1])[0]


@pytest.mark.usefixtures("round_times")
def test_bounds_of_two_equal_stages() -> None:
    """4 micro-batches, 1 ms + 2 ms on each of 2 equal GPUs: half the work, and the filling.

    Work: 4 times 6 ms and the optimizer of 4 layers, halved. Forward passes are a third of the
    work, so c = 3 - 1/3 on the first stage and 3 on the second; weight v loads
    3/8 v + 1/3 v = 17/24 v. Less by d = 0.300001 / 3 on stage 0, v is 24/17 (1 + 3/8 d); the blocks
    count (1 + v - d) 3 + (1 + v) 3 ms.
    """
    bounds = bounds_of(chain_tables(chain_instance([1, 1], [SLOW, SLOW])))
    assert bounds.work_ns()[0] == 12_000_000 + 2 * OPTIMIZER_NS
    d = OPTIMIZER_NS / 3e6
    v = 24 / 17 * (1 + 3 / 8 * d)
    expected = 3e6 * (2 + 2 * v - d) + AFTER_NS
    assert bounds.filling_ns()[0] == pytest.approx(expected, abs=1)


def test_bounds_are_the_recorded_ones() -> None:
    figures: dict[str, object] = {}
    for name, (instance, configs, times) in drawn_configs().items():
        forms = ClosedForms(instance, configs, times)
        figures[name] = [sorted(ns.tolist()) for ns in (forms.work_ns(), forms.filling_ns())]
    as_recorded("closed_forms", figures)
