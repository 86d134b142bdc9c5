"""The bound of a configuration over all node orders and shares: as sharp as it was."""

from dataclasses import replace

import numpy as np
import pytest

from solver.bounds import largest_share
from solver.bounds.largest_share import config_bound_ns, most_shares
from solver.graph.edges import build_layers
from solver.graph.problem import Intervals
from solver.interrupt import after
from tests.graph.drawn import NO_CUTOFF, best_ns, drawn_tables, problems, uneven_tables
from tests.recorded import Cases, digest, recorded, summary


@recorded("largest_share")
def test_bounds_are_the_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """Also stopped early; without a graph of all orders the bound is 0, which holds for any plan.

    Shares of lanes for cutoffs near the optimum, with as much room as there is and with less.
    """
    uneven = {
        f"uneven {seed} {one}": uneven_tables(seed, one > 0) for seed in range(4) for one in (0, 1)
    }
    for name, costs in (drawn_tables() | uneven).items():
        intervals, stop = Intervals(costs), after(5, lambda: False)
        bounds = [config_bound_ns(intervals, ns) for ns in (NO_CUTOFF, costs.least_work_ns)]
        yield name, [*bounds, config_bound_ns(intervals, costs.longest_ns, stop)]
    for name, problem in list(problems().items())[::2]:
        best = best_ns(name)
        if best is None or problem.chunks > 1:
            continue
        room = np.minimum.accumulate(problem.work % 5 + 1, axis=0)
        for cutoff in (best + 1, best * 9 // 10, best * 11 // 10, best * 8 // 5):
            layers = build_layers(problem, cutoff)
            if all(map(len, layers)):
                rooms = room, np.full_like(room, 1 << 40)
                shares = [most_shares(problem, each, layers, cutoff) for each in rooms]
                alone = replace(problem, micro_batches=(1,)) if problem.num_lanes == 1 else None
                most = alone and largest_share.largest_share(alone, room, 50, cutoff)
                yield f"{name} {cutoff}", [most, digest(summary(shares))]
    monkeypatch.setattr(largest_share, "order_graph", lambda *_: None)
    assert config_bound_ns(Intervals(drawn_tables()["even 5"]), NO_CUTOFF) == 0
