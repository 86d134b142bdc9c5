"""What collectives and optimizer cost at least: never more than on the nodes of any order."""

from collections.abc import Sequence

import numpy as np
import pytest

from formulations.costs.intervals import interval_sums
from solver.verify.least_costs import LeastCosts, at_least_ns
from solver.verify.orders import OrderGraph
from tests.chain_instances import SLOW, chain_instance, chain_tables
from tests.random_configs import random_tables
from tests.seeds import few_and_many


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(range(120), 8))
def test_no_tail_of_an_order_is_shorter(seeds: Sequence[int], zones: bool) -> None:
    """Of every stage on any nodes, and of every group on them, over all runs of layers."""
    for seed in seeds:
        tables = random_tables(seed, zones)
        least = LeastCosts(tables.instance, tables.config)
        by_run, start = least.tail_ns()
        counts = [run.count for run in tables.instance.workload.layer_runs]
        columns = zip(least.used, np.repeat(by_run, counts, axis=0).T, strict=True)
        tails = {j: interval_sums(column) + start for j, column in columns}
        graph = OrderGraph(tables)
        for step in graph.built:
            for row, groups in zip(step.tail.tolist(), step.group.tolist(), strict=True):
                for j in set(groups):
                    whole = np.triu(graph.epilogues.all_ns[row], 1)
                    assert (np.triu(tails[j], 1) <= whole).all(), seed


@pytest.mark.parametrize(("pp", "nodes"), [(1, [3]), (3, [1])])
def test_nodes_that_a_stage_may_lie_on(pp: int, nodes: list[int]) -> None:
    """One stage of three nodes of one GPU lies on all; of three stages each on one."""
    tables = chain_tables(chain_instance([1, 1, 1], [SLOW] * 3))
    config = tables.config.but(pp=pp, dp=3 // pp)
    assert list(LeastCosts(tables.instance, config).spans()) == nodes


def test_times_are_rounded_up_but_for_noise() -> None:
    """2 ns and a bit are 3 ns; 2 ns that floats make a little too long are 2."""
    assert at_least_ns([2.1e-9, 2e-9 * (1 + 1e-13), 0.0]).tolist() == [3, 2, 0]
