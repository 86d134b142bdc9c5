"""What follows the last backward of a stage: tied embeddings, and at least on any nodes."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import pytest

from formulations.costs.intervals import interval_sums
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Link
from solver.verify.epilogue import Epilogues, LeastCosts, at_least_ns
from solver.verify.orders import OrderGraph
from tests import brute_force
from tests.best_plans import question_of, refutes
from tests.chain_instances import SLOW, chain_instance, chain_tables
from tests.conftest import present
from tests.random_configs import random_tables
from tests.recorded import Cases, digest, recorded, summary
from tests.seeds import few_and_many
from tests.small_instances import with_groups, workload
from tests.stage_degrees import unlike_tables


def tied_chain(dp: int = 1) -> CostTables:
    """Two blocks on two equal GPUs, tied embeddings; one of the nodes has half of the others' link.

    Their all-reduce takes 4.096 ms over the faster link, and as both have it, 8.192 ms.
    """
    tables = chain_tables(chain_instance([1, 1], [SLOW] * 2 * dp))
    first, second, *others = tables.instance.cluster.groups
    slower = Link(bandwidth_bytes_per_s=0.5e9, latency_s=0)
    groups = (first, second.but(inter_node=slower), *others)
    layers = list(tables.instance.workload.layers)
    update = {
        "workload": workload(layers, 4, 1000, tied=True),
        "cluster": tables.instance.cluster.but(groups=groups),
    }
    return build_tables(tables.instance.model_copy(update=update), tables.config.but(dp=dp, pp=2))


def test_outer_stages_wait_for_the_slower_link_to_their_tied_embeddings() -> None:
    """Whichever node is first, so a claim that is 0.1 % too high is not refuted, the optimum is."""
    tables = tied_chain()
    best = present(brute_force.optimum_ns(tables))
    question = question_of(tables)
    assert refutes(question, best)
    assert not refutes(question, best * 1001 // 1000)
    epilogues = Epilogues(tied_chain(dp=2))
    assert epilogues.embeddings[epilogues.row(0, [(0, 0), (1, 1)])] == 8_192_000


def late(tables: CostTables) -> CostTables:
    """The same where links inside nodes start as late as no other group's."""
    starts = [{"latency_s": 1e-6 * j} for j, _ in enumerate(tables.instance.cluster.groups, 1)]
    return build_tables(with_groups(tables.instance, intra_node=starts), tables.config)


@pytest.mark.parametrize("zones", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(range(120), 8))
@recorded("verify_epilogue")
def test_no_tail_of_an_order_is_shorter(seeds: Sequence[int], zones: bool) -> Cases:
    """Of every stage on any nodes, and of every group on them, over all runs of layers."""
    unlike = filter(None, map(unlike_tables, seeds))
    for n, tables in enumerate(chain((late(random_tables(seed, zones)) for seed in seeds), unlike)):
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
                    assert (np.triu(tails[j], 1) <= whole).all(), tables.config
        rows = graph.epilogues
        parts = [list(least.spans()), by_run, start, *rows.all_ns, *rows.syncs, *rows.embeddings]
        yield f"{tables.instance.name} {n}, zones {zones}", digest(summary(parts))


def test_times_are_rounded_up_but_for_noise() -> None:
    """2 ns and a bit are 3 ns; 2 ns that floats make a little too long are 2."""
    assert at_least_ns([2.1e-9, 2e-9 * (1 + 1e-13), 0.0]).tolist() == [3, 2, 0]
