"""Relaxations to one replica: bounds below every plan, and plans that follow them."""

import pytest

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import plan_costs
from solver.graph.problem import Intervals
from solver.interrupt import after
from solver.search.by_relaxation import ByRelaxation
from solver.simulate import step_time_ns
from tests import brute_force
from tests.graph.drawn import Questions, best_ns, drawn_tables, problems
from tests.random_configs import random_tables
from tests.recorded import Cases, digest, recorded
from tests.seeds import each_of


@each_of(range(120), 24)
def test_bounds_and_plans_enclose_the_optimum(seed: int) -> None:
    costs = random_tables(seed)
    share, over = divmod(costs.num_micro_batches, dp := costs.config.dp)
    best = brute_force.optimum_ns(costs, shares=[(share,) * dp])
    if best is None or over or costs.config.pp == 1:
        return
    for cutoff in (2 * best, best + 1, best):
        search = ByRelaxation(Intervals(costs), Placer(costs), 0.0, lambda: False, cutoff)
        complete = search.run()
        assert search.bound_ns <= best
        assert search.best >= best or search.plan is None
        if search.plan is not None:
            assert step_time_ns(plan_costs(costs.instance, search.plan)) == search.best
        if complete:
            assert search.bound_ns >= search.best or search.bound_ns >= cutoff
        if cutoff == best:
            assert search.plan is None


@recorded("by_relaxation")
def test_work_is_the_recorded_one(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """Questions until it ends, bounds and plans; also stopped early, up to a gap."""
    monkeypatch.setattr("solver.search.by_relaxation.MOVES_PER_STOP", 5)
    for name, costs in list(drawn_tables().items())[::4]:
        dp, all_orders = costs.config.dp, f"{name} all orders"
        if all_orders not in problems() or costs.config.pp == 1 or costs.num_micro_batches % dp:
            continue
        if (best := best_ns(all_orders)) is None:
            continue
        asked, told = Questions(), list[object]()
        for stop, gap, cutoff in ((asked, 0.02, 2 * best), (after(9, asked), 0.0, best + 9)):
            search = ByRelaxation(Intervals(costs), Placer(costs), gap, stop, cutoff)
            told.append([search.run(), search.best, search.bound_ns, digest(search.plan)])
        yield name, [asked.number, *told]
