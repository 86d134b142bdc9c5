"""No bound of a configuration is above its best plan, by brute force over all plans."""

import numpy as np
import pytest

from formulations.costs.placement import Placer
from formulations.costs.tables import CostTables
from formulations.instance.search import ScheduleName
from solver.bounds.largest_share import config_bound_ns
from solver.bounds.node_classes import classes_of
from solver.bounds.packing import Packing
from solver.bounds.surrogate_replica import Relaxation, SurrogateReplica
from solver.enumeration.engine import solve_split
from solver.enumeration.uneven_shares import Uneven
from solver.graph.problem import Intervals
from solver.heuristics.time_tables import TimeTables
from solver.verify import closed_forms as verified_forms
from tests.best_plans import prover_of
from tests.bounds.test_closed_forms import bounds_of
from tests.conftest import present
from tests.graph.drawn import NO_CUTOFF, uneven_optimum_ns, uneven_tables
from tests.random_configs import (
    WITH_NEW,
    extreme_optimum_ns,
    extreme_tables,
    random_optimum_ns,
    random_tables,
)
from tests.seeds import each_of


def check(costs: CostTables, best: int) -> None:
    """Closed forms of search and verifier, all node orders, lanes, and one replica for all."""
    intervals, placer, forms = Intervals(costs), Placer(costs), bounds_of(costs)
    verified = verified_forms.ClosedForms(prover_of(costs), [costs.config])
    assert max(forms.work_ns()[0], forms.filling_ns()[0], verified.work_ns()[0]) <= best
    assert not Packing(forms).refutes(np.array([best + 1]))[0]
    assert not verified_forms.refuted(verified, np.array([best + 1]))[0]
    assert TimeTables(costs.instance).forms([costs.config])[0].bound_ns <= best
    for cutoff in (NO_CUTOFF, best + 1):
        bound = config_bound_ns(intervals, cutoff)
        assert bound <= best
    assert config_bound_ns(intervals, bound // 2) in (0, bound // 2)
    if costs.config.vpp > 1:  # lanes and one replica are not for devices with several chunks
        return
    lanes = Uneven(intervals, placer)
    remaining = present(lanes.thinned(lanes.everything(best + 1), best + 1))
    assert lanes.bound_ns(0, best + 1, remaining) <= best
    if costs.instance.search.micro_batches == "even" and costs.config.pp > 1:
        replica = SurrogateReplica(intervals, placer, classes_of(intervals))
        relaxation = Relaxation(replica, best + 1)
        assert not relaxation.refutes(lambda: False)
        assert relaxation.bound_ns <= best
        if relaxation.problem is not None:
            assert solve_split(relaxation.problem, best + 1).bound_ns <= best


@pytest.mark.parametrize("schedule", WITH_NEW)
@pytest.mark.parametrize("zones", [False, True])
@each_of(range(160), 80)
def test_bounds_never_exceed_the_optimum(
    schedule: ScheduleName | None, zones: bool, seed: int
) -> None:
    """Random configurations; over extreme links, and of replicas with unlike shares."""
    cases = [(random_tables(seed, zones, schedule), random_optimum_ns(seed, zones, schedule))]
    if zones and schedule is None:
        cases.append((extreme_tables(seed), extreme_optimum_ns(seed)))
    elif schedule is None:
        cases += [(uneven_tables(seed, one), uneven_optimum_ns(seed, one)) for one in (0, 1)]
    for costs, best in cases:
        if best is not None:
            check(costs, best)
