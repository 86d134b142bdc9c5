"""Unlike shares lane by lane: bounds that hold, and the best plan where the ways are exact."""

from collections.abc import Sequence
from functools import cache

import pytest

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import LayerRun
from formulations.instance.search import ScheduleName
from formulations.space import configs
from solver.enumeration import uneven_shares
from solver.enumeration.uneven_shares import Uneven, best_dealing
from solver.graph.problem import Intervals
from solver.search.enumeration import enumerate_config
from solver.simulate import step_time_ns
from tests import brute_force
from tests.random_configs import random_optimum_ns, random_tables, scheduled, unlike_replicas
from tests.seeds import few_and_many
from tests.small_instances import two_tensors

NO_CUTOFF = 1 << 50


def lanes_of(tables: CostTables) -> Uneven:
    return Uneven(Intervals(tables), Placer(tables))


def bound_ns(lanes: Uneven, cutoff: int) -> int:
    """Lower bound of all plans; the cutoff if none is below it."""
    remaining = lanes.thinned(lanes.everything(cutoff), cutoff)
    return cutoff if remaining is None else lanes.bound_ns(0, cutoff, remaining)


def unlike_tables(seed: int, single: bool = True) -> CostTables:
    """Tables of the configuration of two replicas; every fifth with ZB-H1."""
    instance = unlike_replicas(seed, single)
    instance = scheduled(instance, "zb-h1", seed) if seed % 5 == 1 else instance
    (config, *_) = (config for config in configs(instance) if config.zero == seed % 2)
    return build_tables(instance, config)


@cache
def optimum_ns(seed: int, single: bool = True) -> int | None:
    """Least step time of `unlike_tables`, by trying every plan."""
    return brute_force.optimum_ns(unlike_tables(seed, single))


@pytest.mark.parametrize("seeds", few_and_many(range(120), 20))
def test_search_equals_brute_force(seeds: Sequence[int]) -> None:
    """Equal nodes: the least step time over all orders, splits and shares, or that none fits.

    Two and three types, three schedules, ZeRO 1, tied embeddings, blocking sends, short memory, two
    to four replicas. Also by cutoffs that grow from the bound, below which there may be no plan.
    """
    for seed in seeds:
        tables, best = unlike_tables(seed), optimum_ns(seed)
        assert lanes_of(tables).exact
        answer = best_dealing(lanes_of(tables), NO_CUTOFF)
        assert (answer.complete, answer.step_time_ns) == (True, best), seed
        if answer.plan is not None:
            assert step_time_ns(plan_costs(tables.instance, answer.plan)) == best, seed
        for share in (1.0, 1.3, 1e6):
            cutoff = NO_CUTOFF if best is None else int(best * share)
            answer = enumerate_config(Intervals(tables), cutoff, 0.0, lambda: False)
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
    tables = build_tables(instance, next(configs(instance)))
    answer = enumerate_config(Intervals(tables), NO_CUTOFF, 0.0, lambda: False)
    assert (answer.complete, answer.step_time_ns) == (True, brute_force.optimum_ns(tables))


@pytest.mark.parametrize("seeds", few_and_many(range(80), 40))
def test_bug_zero_bubbles_missed_too_little_with_blocking_sends(seeds: Sequence[int]) -> None:
    """What a path leaves out of a stage takes no less than its operations with their sends."""
    for seed in seeds:
        instance = unlike_replicas(seed, single=False)
        instance = instance.but(search={"schedule": ("zb-h1",), "blocking_sends": True})
        tables = build_tables(instance, next(configs(instance)))
        best, lanes = brute_force.optimum_ns(tables), lanes_of(tables)
        if best is not None:
            assert lanes.thinned(lanes.everything(best + 1), best + 1) is not None, seed
            answer = enumerate_config(Intervals(tables), NO_CUTOFF, 0.0, lambda: False)
            assert answer.step_time_ns == best, seed


@pytest.mark.parametrize("schedule", [None, "zb-h1"])
@pytest.mark.parametrize("seeds", few_and_many(range(100), 25))
def test_bound_holds_for_any_config(seeds: Sequence[int], schedule: ScheduleName | None) -> None:
    """Even shares, several GPUs per node, links of zones: the optimum stays, none is below."""
    for seed in seeds:
        cases = [
            (unlike_tables(seed, single=False), optimum_ns(seed, single=False)),
            *(
                (random_tables(seed, zones, schedule), random_optimum_ns(seed, zones, schedule))
                for zones in (False, True)
            ),
        ]
        for tables, best in cases:
            lanes = lanes_of(tables)
            if best is not None:
                assert lanes.thinned(lanes.everything(best + 1), best + 1) is not None, seed
                assert bound_ns(lanes, 2 * best) <= best, seed


@pytest.mark.parametrize("seeds", few_and_many(range(40), 10))
def test_classes_taken_together_only_lower_the_bound(
    seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slowest types as one: the optimum stays possible, and no plan is claimed exact."""
    monkeypatch.setattr("solver.bounds.lanes.MOST_EDGES", 1)
    for seed in seeds:
        tables, best = unlike_tables(seed), optimum_ns(seed)
        lanes = lanes_of(tables)
        assert len(lanes.places.classes) == 2
        assert lanes.exact == (sum(n > 0 for n in tables.config.nodes_used) == 2)
        assert best is None or bound_ns(lanes, 2 * best) <= best


def test_a_search_that_may_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the bound leaves nothing. Stopped at once there is no plan, and none is claimed.

    Beyond the limit of ways nothing is exact, and the bound is that of the work or the known one.
    """
    lanes, best = lanes_of(unlike_tables(4)), optimum_ns(4)
    assert best is not None
    bound = bound_ns(lanes, best + 1)
    assert best * 3 // 4 < bound <= best
    assert bound_ns(lanes, bound // 2) == bound // 2
    answer = best_dealing(lanes, NO_CUTOFF, stop=lambda: True)
    assert (answer.plan, answer.complete) == (None, False)
    monkeypatch.setattr(uneven_shares, "MOST_EDGES", 0)
    lanes = lanes_of(unlike_tables(4))
    assert not lanes.exact
    everything = lanes.everything(best)
    assert lanes.thinned(everything, best) == everything
    assert 0 < lanes.bound_ns(0, best, everything) < best
    assert lanes.bound_ns(best - 1, best, everything) == best - 1
