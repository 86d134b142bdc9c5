"""Least costs of nodes, held against every place where they can stand."""

from itertools import product

import numpy as np
import pytest

from formulations.costs.placement import Placer
from formulations.costs.tables import build_tables
from solver.bounds import node_classes
from solver.graph.problem import Intervals
from tests.chain_instances import FAST, OUTSIDE, SLOW, chain_instance
from tests.graph.drawn import drawn_tables, figures
from tests.recorded import Cases, recorded
from tests.seeds import one_each
from tests.small_instances import plain_config, with_groups


def two_groups(sizes: tuple[int, ...], counts: tuple[int, ...], dp: int) -> Placer:
    """Twelve blocks; groups of nodes of these sizes, with slow links and 8 MB to send."""
    nodes = {"gpus_per_node": [*sizes], "nodes": [*counts], "inter_node": OUTSIDE}
    instance = with_groups(chain_instance([1] * 12, [SLOW, FAST]), **nodes)
    instance = instance.but(workload={"boundary_bytes": 8 * 10**6})
    slots = sum(size * count for size, count in zip(sizes, counts, strict=True))
    return Placer(build_tables(instance, plain_config(counts, dp=dp, pp=slots // dp)))


def test_bug_least_costs_were_those_near_both_ends() -> None:
    """8-GPU nodes and stages of 11: a node in the middle sends one micro-batch in 8.01 ms.

    One lane of 8 MB at 1 GB/s and 10 us: the node has one slot on a stage before or after.
    """
    placer = two_groups((8, 8), (5, 6), 11)
    assert [node_classes.least_costs(placer, j).outside for j in range(2)] == [8_010_000, 8_010_000]
    assert max(node_classes._starts(placer, 0)) == 80  # of 88 slots


@recorded("node_classes")
def test_graphs_are_the_recorded_ones() -> Cases:
    for name, costs in drawn_tables().items():
        intervals, placer, config = Intervals(costs), Placer(costs), costs.config
        if config.vpp > 1:
            continue
        classes = node_classes.classes_of(intervals)
        each = [node_classes.least_costs(placer, j) for j in classes]
        alone = [[cost.inside, cost.outside, cost.embedding] for cost in each]
        graph, number = node_classes.ClassGraph(intervals, placer, classes, 2), len(classes)
        usage = tuple((n + 1, number - n) for n in range(number))
        resources = node_classes.Resources(usage, (2 * config.pp, 2 * config.pp + 1))
        per_stage = [dict.fromkeys(range(number), 3)] * config.pp
        fewer = [node_classes.steps(per_stage, resources, most) is None for most in (3, 9, 27)]
        masks, rows = [graph.allowed(0, 2)] * config.pp, [np.arange(number)] * config.pp
        ways = [stage for stage in node_classes.steps(per_stage, resources) or [] if stage]
        problem = figures(graph.problem(ways, masks, rows, graph.tails, 2))
        yield name, [classes, alone, fewer, problem]


@pytest.mark.parametrize("dp", one_each(range(1, 13), 6))
def test_no_place_is_cheaper(dp: int) -> None:
    """Nodes of 1 to 8 slots, as many as fill whole stages, wherever in an order they stand."""
    cases = product(product((1, 2, 4, 6, 8), repeat=2), product(range(1, 6), repeat=2))
    for sizes, counts in cases:
        slots = sum(size * count for size, count in zip(sizes, counts, strict=True))
        if slots % dp or not 2 <= slots // dp <= 9:
            continue
        placer = two_groups(sizes, counts, dp)
        for j, size in enumerate(sizes):
            least = node_classes.least_costs(placer, j)
            before = [range(count + (i != j)) for i, count in enumerate(counts)]
            for start in {a * sizes[0] + b * sizes[1] for a, b in product(*before)}:
                for slot, (time,) in placer.terms(j, start).send_ns.items():
                    inside = start <= slot and slot + dp < start + size
                    assert ((least.inside or 0) if inside else least.outside) <= time
