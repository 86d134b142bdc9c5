"""Orders of whole stages: their times, moves and blocks, and plans no single move finds."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import split_costs
from formulations.costs.stage_costs import least_recomputed, memory_parts
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Link, SearchSpace
from formulations.instance.search import ScheduleName
from solver.heuristics.balance import Order, SplitSpace
from solver.heuristics.config_search import ConfigSearch, State
from solver.heuristics.stage_orders import (
    StageNodes,
    StageOrders,
    StageTrial,
    block_sizes,
    in_blocks,
    near_orders,
    shaken,
    with_stage_orders,
)
from solver.heuristics.trial import PathPool
from solver.simulate import step_time_ns
from tests.conftest import present
from tests.recorded import Cases, as_recorded, digest, recorded, summary
from tests.seeds import one_each
from tests.small_instances import (
    ROOMY,
    gpu,
    instance_of,
    nodes_of,
    plain_config,
    random_layers,
    workload,
)

LAYERS = 12
#: Replicas on fast, middle, middle and slow nodes, with two fast nodes that are left in the middle.
ALIKE: Order = (0, 0, 0, 0, *(0, 0, 1, 1), *(1, 1, 1, 1), *(2, 2, 2, 2))


def random_tables(seed: int) -> CostTables:
    """4 replicas of 4 stages on 6 fast, 6 middle, 4 slow nodes of one GPU; 12 blocks, 8 sequences.

    ZeRO 1 or none; embeddings may be tied.
    """
    rng = Random(seed)
    chain = random_layers(rng, ["block"] * LAYERS)
    groups = tuple(
        nodes_of(
            gpu(name, tflops, 8),
            nodes=count,
            intra_node=Link(bandwidth_bytes_per_s=4e10, latency_s=1e-6),
            inter_node=Link(bandwidth_bytes_per_s=rng.choice([1e9, 5e9]), latency_s=1e-5),
        )
        for name, tflops, count in (("fast", 120, 6), ("middle", 40, 6), ("slow", 30, 4))
    )
    search = SearchSpace(
        micro_batch=(1,),
        idle_nodes=False,
        blocking_sends=seed % 3 == 0,
        schedule=("gpipe" if seed % 5 == 0 else "1f1b",),
    )
    work = workload(chain, 8, rng.randint(1, 20) * 10**6, seed % 2 == 0)
    instance = instance_of("blocks", work, groups, (2, 0.9), (4, 0.7), search=search, limits=ROOMY)
    return build_tables(instance, plain_config((6, 6, 4), dp=4, pp=4, zero=1 if seed % 4 else 0))


def start(search: ConfigSearch) -> State:
    state = present(search.judged(ALIKE, (2,) * 4, (0, 3, 6, 9, 12)))
    return state


def cramped(tables: CostTables) -> CostTables:
    """Fast nodes have just room for three layers of any first stage, with two micro-batches."""

    def need(layers: tuple[int, int]) -> int:
        return sum(memory_parts(tables, [layers], 0, 0, 2, [least_recomputed(tables, layers)]))

    three, whole = max(need((k, k + 3)) for k in range(LAYERS - 2)), need((0, LAYERS))
    return replace(tables, capacity_bytes=np.array([three, whole, whole]))


def stages_of(tables: CostTables, size: int = 2) -> StageNodes:
    """Of two blocks, one of which has so many of the four nodes of each stage."""
    space = SplitSpace(tables)
    return StageNodes(space, in_blocks(tables, space.work[-1], ALIKE, size))


def walk(nodes: StageNodes, steps: int, seed: int) -> Iterator[StageOrders]:
    """Orders that fit, each near the one before."""
    random = Random(seed)
    order = StageOrders(np.arange(4)[None], np.array([[0, 3, 6, 9, 12]]))
    for _ in range(steps):
        near = near_orders(shaken(order, random))
        near = near.take(nodes.fits(near))
        if len(near):
            order = near.take(np.array([random.randrange(len(near))]))
            yield order


def test_blocks_are_as_large_as_what_whole_stages_leave() -> None:
    """43 nodes at 4 a stage leave 3 or lack 1, 42 leave or lack 2; 8 fill stages."""
    tables = random_tables(1)
    for nodes, pp, sizes in (((43, 43, 42), 32, [1, 2]), ((8, 0, 8), 4, [])):
        assert block_sizes(replace(tables, config=plain_config(nodes, dp=4, pp=pp))) == sizes


@pytest.mark.parametrize("schedule", ["", "zb-h1"])
@pytest.mark.parametrize("seed", one_each(range(3, 23), 10))
def test_bug_orders_of_stages_are_judged_as_the_simulator_does(
    seed: int, schedule: ScheduleName
) -> None:
    """Every tail, transfer and kind of replica; ZB-H1 had weight gradients that took no time."""
    tables = random_tables(seed)
    config = tables.config.but(schedule=schedule or tables.config.schedule)
    tables = build_tables(tables.instance, config)
    for nodes in (stages_of(tables), stages_of(tables, 1)):
        for order in walk(nodes, 20, seed):
            placement = Placer(tables).costs(nodes.order(order.places[0]))
            split = tuple(order.splits[0].tolist())
            time_ns = step_time_ns(split_costs(tables, placement, split, (2,) * 4))
            trial = StageTrial(nodes, order.places)
            assert trial.simulated(order.splits, False)[0].tolist() == [time_ns]


@recorded("stage_orders")
def test_stages_and_orders_near_them_are_the_recorded_ones() -> Cases:
    for seed in range(8):
        tables = random_tables(seed)
        nodes = stages_of(cramped(tables) if seed % 2 else tables, 1 + seed % 3)
        assert (np.bincount(nodes.groups.ravel()) == tables.config.nodes_used).all()
        near = [near_orders(order) for order in walk(nodes, 6, seed)]
        fits = [nodes.fits(orders) for orders in near]
        arrays = [summary([x.places, x.splits, kept]) for x, kept in zip(near, fits, strict=True)]
        yield f"stages {seed}", [nodes.groups.tolist(), digest(arrays)]


@pytest.mark.parametrize("seed", one_each(range(12), 3))
def test_plans_fit_are_never_slower_and_are_the_recorded_ones(seed: int) -> None:
    tables = random_tables(seed)
    tables = cramped(tables) if seed % 2 else tables
    search = ConfigSearch(tables, PathPool())
    state = start(search)
    found = with_stage_orders(search, state, Random(seed), lambda: False)
    costs = split_costs(tables, Placer(tables).costs(found.order), found.split, found.shares)
    assert step_time_ns(costs) == found.step_time_ns <= state.step_time_ns
    assert (costs.memory_bytes <= costs.limit_bytes).all()
    halted = with_stage_orders(search, state, Random(0), lambda: True)
    assert halted.step_time_ns <= state.step_time_ns
    as_recorded("stage_orders", {f"plan {seed}": [found.order, found.split, found.step_time_ns]})
