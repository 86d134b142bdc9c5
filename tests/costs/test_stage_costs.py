"""What stages recompute: as little as fits, however it is worked out."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from formulations.costs.stage_costs import (
    NEVER,
    StageCosts,
    least_recomputed,
    memory_parts,
    recomputed_ns,
)
from formulations.costs.tables import CostTables
from tests import brute_force
from tests.best_plans import prover_of
from tests.chain_instances import equal_nodes
from tests.oracles.agreement import pages_suffice
from tests.random_configs import cramped_tables
from tests.recorded import Cases, recorded, summary
from tests.seeds import few_and_many

test_pages_suffice = pages_suffice(11, 23, 46)

SCHEDULES = ("1f1b", "gpipe", "zb-h1")


def all_stages(tables: CostTables) -> list[tuple[int, int, int, int, int]]:
    """Stage, group, micro-batches, first layer and one after the last."""
    layers = range(tables.num_layers + 1)
    kinds = product(range(tables.config.pp), range(len(tables.capacity_bytes)), (1, 2, 5))
    return [(*kind, a, b) for kind in kinds for a, b in product(layers, layers) if a < b]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seeds", few_and_many(range(40), 20))
def test_least_time_is_that_of_all_options(seeds: list[int], schedule: str) -> None:
    recomputed = 0
    for seed in seeds:
        tables = cramped_tables(seed, schedule)
        stages, prover = StageCosts(tables), prover_of(tables)
        for k, j, m, a, b in all_stages(tables):
            choices = brute_force.options(tables, range(a, b))
            chunks = [range(0)] * k + [range(a, b)]
            times = [
                sum(int(tables.recompute_ns[i][x, j]) for x, i in ways.items())
                for ways in choices
                if brute_force.device_bytes(tables, chunks, k, m, ways) <= tables.capacity_bytes[j]
            ]
            least = min(times, default=None)
            for found in (stages.extra(j, k, m)[a, b], prover.extra(tables.config, k, m)[j, a, b]):
                assert (None if found >= 1 << 59 else int(found)) == least
            recomputed += bool(least)
    assert recomputed


@pytest.mark.parametrize("schedule", [*SCHEDULES, "interleaved"])
@recorded("stage_costs")
def test_stages_are_the_recorded_ones(schedule: str) -> Cases:
    """What is recomputed, and of devices the ways."""
    for seed in range(6):
        tables = cramped_tables(seed, schedule)
        stages, config = StageCosts(tables), tables.config
        m, p, groups = tables.num_micro_batches // config.dp, config.pp, tables.config.groups_used
        extra = [stages.extra(j, k, m) % NEVER for j in groups for k in range(p)]
        split = np.linspace(0, tables.num_layers, config.num_stages + 1).astype(np.int64)[None]
        alike = [stages.extra_of_devices(np.full((p, 1), j), m, split)[:, 0] for j in groups]
        if not stages.shares_memory:  # 0 where there is no room
            runs = [*pairwise(split[0].tolist())]
            times = [[stages.extra(j, k, m)[run] for k, run in enumerate(runs)] for j in groups]
            alike = [np.where(row < NEVER, row, 0)[:, None] for row in np.array(times)]
        chunks = list(pairwise(split[0].tolist()))[::p]
        chosen = [list(one) for j in groups for one in stages.recomputed(0, j, m, chunks)]
        least = list(least_recomputed(tables, (0, tables.num_layers)))
        if not stages.shares_memory:  # what is said to be recomputed takes that time
            (first,) = stages.recomputed(0, groups[0], m, chunks[:1])
            assert recomputed_ns(tables, groups[0], chunks[0], first) == extra[0][chunks[0]]
        yield f"{schedule} {seed}", summary([*extra, *alike, chosen, least])


def test_what_fills_a_gpu_to_the_last_byte_fits() -> None:
    tables = equal_nodes(2, 2, 2, 2)
    need = sum(memory_parts(tables, [(0, 4)], 0, 0, 1, [least_recomputed(tables, (0, 4))]))
    for room in (need, need - 1):
        stages = StageCosts(replace(tables, capacity_bytes=np.array([room])))
        _, fits = stages.way_of_chunks(0, 0, 1, np.array([[0]]), np.array([[4]]))
        assert (stages.extra(0, 0, 1)[0, 4] < NEVER) == fits[0] == (room == need)
