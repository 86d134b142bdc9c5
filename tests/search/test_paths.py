"""Paths as cuts: never above any simulated end, for any plan and any larger share."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formulations.costs.placement import Placer
from formulations.costs.stage_costs import StageCosts
from formulations.decisions import Decisions
from formulations.instance.search import ScheduleName
from formulations.paths import PathCut
from formulations.plan import Degrees
from solver.search.paths import CutPool, first_cuts, harvest, largest_share
from tests import brute_force, recursion
from tests.loop_checks import feasible, judge, random_decisions
from tests.random_configs import random_tables
from tests.seeds import few_and_many

Schedules = st.sampled_from(["1f1b", "gpipe"])


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """Forward, backward and transfer times of two to four stages."""
    p = draw(st.integers(2, 4))
    times = st.integers(0, 9)
    forward = draw(st.lists(times, min_size=p, max_size=p))
    backward = draw(st.lists(times, min_size=p, max_size=p))
    return forward, backward, draw(st.lists(times, min_size=p - 1, max_size=p - 1))


def length(cut: PathCut, times: Sequence[Sequence[int]], send: list[int], blocking: bool) -> int:
    """Time along a path, given those of each kind of operation."""
    parts = [*zip(cut.operations, times, strict=True), (cut.sends(blocking), send)]
    return sum(n * t for counts, own in parts for n, t in zip(counts, own, strict=True))


@given(pipelines(), st.integers(1, 5), st.integers(0, 3), st.booleans(), Schedules)
def test_first_cuts_bound_every_pipeline(
    pipeline: tuple[list[int], list[int], list[int]],
    m: int,
    more: int,
    blocking: bool,
    schedule: ScheduleName,
) -> None:
    """A path of m micro-batches bounds the ends of all pipelines with m or more."""
    ends = recursion.stage_ends(schedule, m + more, *pipeline, blocking)
    for cut in first_cuts(schedule, len(pipeline[0]), m):
        assert length(cut, pipeline[:2], pipeline[2], blocking) <= ends[cut.device]


@given(pipelines(), st.integers(1, 6))
def test_first_cuts_imply_latency_plus_bottleneck(
    pipeline: tuple[list[int], list[int], list[int]], m: int
) -> None:
    """PROBLEM 6.3: latency + (m-1) t_i - w min(f_i, b_i), w = min(p-1-i, m-1), for every i."""
    forward, backward, send = pipeline
    p = len(forward)
    latency = sum(forward) + sum(backward) + 2 * sum(send)
    longest = max(length(cut, (forward, backward), send, False) for cut in first_cuts("1f1b", p, m))
    for i in range(p):
        f, b, w = forward[i], backward[i], min(p - 1 - i, m - 1)
        assert longest >= latency + (m - 1) * (f + b) - w * min(f, b)


def test_harvest_values_the_plan_at_its_step_time() -> None:
    """The harvested paths, with the tails, reach the simulated step time of the plan itself."""
    for seed in range(0, 60, 3):
        tables = random_tables(seed)
        made = random_decisions(tables, seed)
        placed = brute_force.place(tables, made.order)
        placement = Placer(tables).costs(made.order)
        found = harvest(StageCosts(tables), placement, made, range(1, 9), 0)
        step = brute_force.step_time_ns(tables, placed, made.boundaries, made.micro_batches)
        assert found.step_time_ns == step
        stages = {cut.device for cut in found.cuts if cut.micro_batches in made.micro_batches}
        assert stages == set(range(tables.config.pp))


def test_harvest_never_exceeds_any_plan() -> None:
    """Paths found on one plan bound the ends of the stages of every other."""
    for seed in range(0, 40, 4):
        rng, tables = random.Random(seed), random_tables(seed)
        orders = brute_force.all_orders(tables)
        splits, shares = list(brute_force.all_splits(tables)), list(brute_force.all_shares(tables))
        made = Decisions(rng.choice(orders), rng.choice(splits), rng.choice(shares))
        found = harvest(StageCosts(tables), Placer(tables).costs(made.order), made, range(1, 9), 0)
        config, blocking = tables.config, tables.instance.search.blocking_sends
        layers = tables.instance.workload.layers
        for boundaries in splits:
            placed = brute_force.place(tables, rng.choice(orders))
            share = rng.choice(shares)
            for r, m in enumerate(share):
                groups = [placed.groups[k * config.dp + r] for k in range(config.pp)]
                forward, backward = (
                    [
                        int(table[a:b, j].sum())
                        for a, b, j in zip(boundaries, boundaries[1:], groups, strict=False)
                    ]
                    for table in (tables.forward_ns, tables.backward_ns)
                )
                last = [layers[end - 1].output_tensors for end in boundaries[1:-1]]
                send = [placed.send[k * config.dp + r][n] for k, n in enumerate(last)]
                ends = recursion.stage_ends(config.schedule, m, forward, backward, send, blocking)
                for cut in found.cuts:
                    if cut.micro_batches <= m:
                        value = length(cut, (forward, backward), send, blocking)
                        assert value <= ends[cut.device]


@given(pipelines(), st.integers(1, 5), st.booleans(), st.lists(st.integers(0, 9), min_size=4))
def test_first_cuts_with_weight_gradients_bound_every_pipeline(
    pipeline: tuple[list[int], list[int], list[int]], m: int, blocking: bool, weight: list[int]
) -> None:
    """ZB-H1: a path of m micro-batches bounds the ends of pipelines with as many."""
    forward, backward, send = pipeline
    own = weight[: len(forward)]
    ends = recursion.stage_ends("zb-h1", m, *pipeline, blocking, weight=own)
    for cut in first_cuts("zb-h1", len(forward), m):
        assert length(cut, (forward, backward, own), send, blocking) <= ends[cut.device]


@given(st.lists(st.integers(0, 9), min_size=15, max_size=15), st.sampled_from([(2, 2), (1, 3)]))
def test_first_cuts_of_chunks_bound_every_pipeline(times: list[int], size: tuple[int, int]) -> None:
    """Interleaved 1F1B of two devices and two or three chunks."""
    groups, v = size
    forward, backward, send = times[: 2 * v], times[-2 * v :], times[4 : 4 + 2 * v - 1]
    ends = recursion.stage_ends("interleaved", 2 * groups, forward, backward, send, v=v)
    for cut in first_cuts("interleaved", 2, 2 * groups, v):
        assert length(cut, (forward, backward), send, False) <= ends[cut.device]


def test_pool_keeps_schedules_and_stages_apart() -> None:
    """Cuts are shared by configurations of one schedule and number of stages only."""
    pool, config = CutPool(), random_tables(0).config
    pool.of(config).update(first_cuts(config.schedule, config.pp, 2))
    deeper = config.but(pp=config.pp + 1)
    assert pool.of(config.but(degrees=(Degrees(tp=8),)))
    assert not pool.of(deeper)
    assert not pool.of(config.but(vpp=2))


def test_first_cuts_of_one_stage() -> None:
    """A single stage has one path, through all operations."""
    assert {(cut.operations, cut.transfers) for cut in first_cuts("1f1b", 1, 5)} == {
        (((5,), (5,)), ())
    }
    assert np.array(list(first_cuts("gpipe", 1, 1))).size


@pytest.mark.parametrize("seeds", few_and_many(range(0, 80, 4), 6))
def test_largest_share_never_excludes_a_plan(seeds: Sequence[int]) -> None:
    """No plan within a step time has a replica with more micro-batches than the bound."""
    for tables, _ in feasible(seeds):
        for order in brute_force.all_orders(tables):
            for shares in brute_force.all_shares(tables):
                made = Decisions(order, next(brute_force.all_splits(tables)), shares)
                step = judge(tables, made)
                assert step is None or max(shares) <= largest_share(tables, step)
