"""Least costs of nodes, held against every place where they can stand."""

from itertools import product

import numpy as np
import pytest

from formulations.costs.placement import Placer
from formulations.costs.tables import build_tables
from solver.bounds.node_classes import Resources, _least_ring, _starts, least_costs, steps
from tests.chain_instances import FAST, SLOW, chain_instance
from tests.equal_nodes import OUTSIDE, equal_nodes
from tests.seeds import one_each
from tests.small_instances import plain_config


def two_groups(sizes: tuple[int, ...], counts: tuple[int, ...], dp: int) -> Placer:
    """Twelve blocks; groups of nodes of these sizes, with slow links and 8 MB to send."""
    instance = chain_instance([1] * 12, [SLOW, FAST])
    groups = tuple(
        group.but(gpus_per_node=size, nodes=count, inter_node=OUTSIDE)
        for group, size, count in zip(instance.cluster.groups, sizes, counts, strict=True)
    )
    instance = instance.but(cluster={"groups": groups}, workload={"boundary_bytes": 8 * 10**6})
    slots = sum(size * count for size, count in zip(sizes, counts, strict=True))
    return Placer(build_tables(instance, plain_config(counts, dp=dp, pp=slots // dp)))


def test_bug_least_costs_were_those_near_both_ends() -> None:
    """8-GPU nodes and stages of 11: a node in the middle sends one micro-batch in 8.01 ms.

    One lane of 8 MB at 1 GB/s and 10 us: the node has one slot on a stage before or after.
    """
    placer = two_groups((8, 8), (5, 6), 11)
    assert [least_costs(placer, j).outside for j in range(2)] == [8_010_000, 8_010_000]
    assert max(_starts(placer, 0)) == 80  # of 88 slots


def test_ring_starts_with_the_latencies_of_its_steps() -> None:
    """Four GPUs of a node: 2 x 3/4 of 10 MB at 10 GB/s, after 2 x 3 times 1 us."""
    sync, start = least_costs(Placer(equal_nodes(nodes=2, gpus=4, tp=1, dp=4, pp=2)), 0).sync
    assert (sync.tolist(), start) == ([1_500_000] * 4, 6_000)


def test_the_least_ring_undercuts_both() -> None:
    """Layer by layer, and its start."""
    layers, start = _least_ring([(np.array([3, 1]), 5), (np.array([2, 4]), 6)])
    assert (layers.tolist(), start) == ([2, 1], 5)


def test_stages_to_come_take_the_least_of_any_class() -> None:
    """Of 11: 3 + 2 leave 6 for three stages more, 4 + 2 do not. Two stages of 2 take all of 4."""
    resources = Resources(usage=((2,), (3,)), most=(11,))
    assert [resources.after((n,), 0, 3) for n in (3, 4)] == [(5,), None]
    moves = steps([{0: 1}] * 2, Resources(usage=((2,),), most=(4,)))
    assert moves is not None
    assert [len(stage) for stage in moves] == [1, 1]


@pytest.mark.parametrize("dp", one_each(range(1, 13), 4))
def test_no_place_is_cheaper(dp: int) -> None:
    """Nodes of 1 to 8 slots, as many as fill whole stages, wherever in an order they stand."""
    cases = product(product((1, 2, 4, 6, 8), repeat=2), product(range(1, 6), repeat=2))
    for sizes, counts in cases:
        slots = sum(size * count for size, count in zip(sizes, counts, strict=True))
        if slots % dp or not 2 <= slots // dp <= 9:
            continue
        placer = two_groups(sizes, counts, dp)
        for j, size in enumerate(sizes):
            least = least_costs(placer, j)
            before = [range(count + (i != j)) for i, count in enumerate(counts)]
            for start in {a * sizes[0] + b * sizes[1] for a, b in product(*before)}:
                for slot, (time,) in placer.terms(j, start).send_ns.items():
                    inside = start <= slot and slot + dp < start + size
                    assert ((least.inside or 0) if inside else least.outside) <= time
