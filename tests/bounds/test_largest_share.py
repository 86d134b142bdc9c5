"""The bound of a configuration over all node orders and shares: valid, and as strong as it says."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Link, SearchSpace
from formulations.instance.search import ScheduleName
from solver.bounds import largest_share
from solver.bounds.largest_share import _by_time, config_bound_ns
from solver.graph.edges import build_layers
from solver.graph.problem import Intervals
from tests.enumeration.test_engine import random_chain
from tests.random_configs import WITH_NEW, random_optimum_ns, random_tables
from tests.seeds import few_and_many
from tests.small_instances import gpu, instance_of, layer, nodes_of, plain_config, workload

NO_CUTOFF = 1 << 50

#: Links that take no time for what is sent here.
FREE = Link(bandwidth_bytes_per_s=1e18, latency_s=0)


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("schedule", WITH_NEW)
@pytest.mark.parametrize("seeds", few_and_many(range(160), 16))
def test_never_above_the_optimum(
    seeds: Sequence[int], schedule: ScheduleName | None, zones: bool
) -> None:
    """Even and uneven, all schedules, ZeRO 1, tied, blocking, memory: no plan is faster.

    A cutoff below the bound is returned itself.
    """
    for seed in seeds:
        intervals = Intervals(random_tables(seed, zones, schedule))
        best = random_optimum_ns(seed, zones, schedule) or NO_CUTOFF
        for cutoff in (NO_CUTOFF, min(best + 1, NO_CUTOFF)):
            bound = config_bound_ns(intervals, cutoff)
            assert bound <= best, seed
        assert config_bound_ns(intervals, bound // 2) in (0, bound // 2), seed


def two_speeds(micro_batches: int, shares: Literal["even", "uneven"]) -> CostTables:
    """Two nodes of one GPU, one three times as fast; the one block takes 3 s and 9 s."""
    groups = tuple(
        nodes_of(one.but(memory_bandwidth_bytes_per_s=1e18), intra_node=FREE, inter_node=FREE)
        for one in (gpu("fast", 3 * 2, 80), gpu("slow", 2, 80))
    )
    chain = [layer("embedding", 0, 0, 0), layer("block", 3000, 0, 0), layer("head", 0, 0, 0)]
    search = SearchSpace(micro_batches=shares, embedding_only_stages=True)
    work = workload(chain, micro_batches, 1, False)
    instance = instance_of("two speeds", work, groups, search=search)
    return build_tables(instance, plain_config((1, 1), dp=2, pp=1))


@pytest.mark.parametrize(("shares", "seconds"), [("even", 36), ("uneven", 18)])
def test_replicas_of_unlike_speed_share_the_work(
    shares: Literal["even", "uneven"], seconds: int
) -> None:
    """Eight micro-batches of 3 s and 9 s: four on the slow GPU take 36 s, two beside six 18 s."""
    tables = two_speeds(8, shares)
    time = tables.forward_ns + tables.backward_ns
    assert time.sum(axis=0).tolist() == [3 * 10**9, 9 * 10**9]
    bound = config_bound_ns(Intervals(tables), NO_CUTOFF)
    assert seconds * 10**9 * (1 - 1 / largest_share.RESOLUTION) <= bound <= seconds * 10**9


def test_too_many_orders_have_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a graph of all orders the bound is 0, which holds for any plan."""
    monkeypatch.setattr(largest_share, "order_graph", lambda *_: None)
    assert config_bound_ns(Intervals(two_speeds(8, "even")), NO_CUTOFF) == 0


def test_micro_batches_that_fit_above_the_latency() -> None:
    """20 // 3 are not below the 3 that save 2 ns each, so (20 + 3 * 2) // 5."""
    work, ahead, behind, room = np.array([5, 2, 3, 20]).reshape(4, 1, 1)
    first = build_layers(random_chain(1), NO_CUTOFF)[0]
    edges = replace(first, work=work, ahead=ahead, behind=behind)
    assert _by_time(room, edges, 3).tolist() == [[5]]
