"""Unlike shares lane by lane: bounds that hold, and the best plan where the ways are exact."""

import pytest

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import LayerRun
from formulations.space import configs
from solver.enumeration import uneven_shares
from solver.enumeration.uneven_shares import Uneven, best_dealing, dealt_from_below
from solver.graph.problem import Intervals
from solver.interrupt import after
from solver.search.enumeration import enumerate_config
from solver.simulate import step_time_ns
from tests import brute_force
from tests.graph.drawn import NO_CUTOFF, Questions, uneven_optimum_ns, uneven_tables
from tests.random_configs import unlike_replicas
from tests.recorded import Cases, digest, recorded
from tests.seeds import each_of
from tests.small_instances import two_tensors


def lanes_of(costs: CostTables) -> Uneven:
    return Uneven(Intervals(costs), Placer(costs))


def bound_ns(lanes: Uneven, cutoff: int) -> int:
    """Lower bound of all plans; the cutoff if none is below it."""
    remaining = lanes.thinned(lanes.everything(cutoff), cutoff)
    return cutoff if remaining is None else lanes.bound_ns(0, cutoff, remaining)


@each_of(range(120), 30)
def test_search_equals_brute_force(seed: int) -> None:
    """Equal nodes: the least step time over all orders, splits and shares, or that none fits.

    Two and three types, three schedules, ZeRO 1, tied embeddings, blocking sends, short memory, two
    to four replicas. Also by cutoffs that grow from the bound, below which there may be no plan.
    """
    costs, best = uneven_tables(seed), uneven_optimum_ns(seed)
    assert lanes_of(costs).exact
    answer = best_dealing(lanes_of(costs), NO_CUTOFF)
    assert (answer.complete, answer.step_time_ns) == (True, best), seed
    if answer.plan is not None:
        assert step_time_ns(plan_costs(costs.instance, answer.plan)) == best, seed
    for share in (1.0, 1.3, 1e6):
        cutoff = NO_CUTOFF if best is None else int(best * share)
        answer = enumerate_config(Intervals(costs), cutoff, 0.0, lambda: False)
        expected = None if cutoff == best else best
        assert (answer.complete, answer.step_time_ns) == (True, expected), seed


def test_bug_ways_with_messages_of_two_sizes_are_not_exact() -> None:
    """A chain like T5's: lanes know the shorter message only, and the search ended in IndexError.

    Now the orders are looked at one by one, and the best plan is that of brute force.
    """
    instance = unlike_replicas(5)
    chain = two_tensors([run.layer for run in instance.workload.layer_runs], 2)
    runs = tuple(LayerRun(layer=layer, count=1) for layer in chain)
    instance = instance.but(workload={"layer_runs": runs}, search={"zero": (1,)})
    costs = build_tables(instance, next(configs(instance)))
    answer = enumerate_config(Intervals(costs), NO_CUTOFF, 0.0, lambda: False)
    assert (answer.complete, answer.step_time_ns) == (True, brute_force.optimum_ns(costs))


@each_of(range(80), 40)
def test_bug_zero_bubbles_missed_too_little_with_blocking_sends(seed: int) -> None:
    """What a path leaves out of a stage takes no less than its operations with their sends."""
    instance = unlike_replicas(seed, single=False)
    instance = instance.but(search={"schedule": ("zb-h1",), "blocking_sends": True})
    costs = build_tables(instance, next(configs(instance)))
    best, lanes = brute_force.optimum_ns(costs), lanes_of(costs)
    if best is not None:
        assert lanes.thinned(lanes.everything(best + 1), best + 1) is not None, seed
        answer = enumerate_config(Intervals(costs), NO_CUTOFF, 0.0, lambda: False)
        assert answer.step_time_ns == best, seed


@recorded("uneven_shares")
def test_bounds_and_work_are_the_recorded_ones(monkeypatch: pytest.MonkeyPatch) -> Cases:
    """What is left below cutoffs, questions until a plan is proved; few additions, many ways."""
    for seed in range(4):
        costs, best = uneven_tables(seed, seed % 4 > 0), uneven_optimum_ns(seed, seed % 4 > 0)
        left = list[object]()
        if best is None:
            continue
        for additions, edges in ((1 << 28, 1 << 20), (0, 1 << 20), (1 << 28, 0)):
            monkeypatch.setattr(uneven_shares, "MOST_ADDITIONS", additions)
            monkeypatch.setattr(uneven_shares, "MOST_EDGES", edges)
            lanes = lanes_of(costs)
            thin = lanes.thinned(every := lanes.everything(best + 1), best + 1)
            early = lanes.bound_ns(0, best, every, after(3, lambda: False))
            size = None if thin is None else uneven_shares._size(thin)
            left.append([bound_ns(lanes, 3 * best // 2), early, size, lanes.exact])
        monkeypatch.undo()
        if (lanes := lanes_of(costs)).exact:
            asked, every = Questions(), lanes.everything(2 * best)
            for stop, gap in ((asked, 0.0), (after(3, asked), 0.0), (asked, 0.1)):
                answer = best_dealing(lanes, 3 * best // 2, gap, stop)
                below = dealt_from_below(lanes, best * 98 // 100, 2 * best, gap, stop, every)
                told = [(a.step_time_ns, a.bound_ns, a.complete) for a in (answer, below)]
                left.append([*told, digest([answer.plan, below.plan]), asked.number])
        yield f"{seed}", left
