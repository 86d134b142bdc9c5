"""Paths as cuts: never above any simulated end, for any plan and any larger share."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from formulations.costs.placement import Placer
from formulations.costs.stage_costs import StageCosts
from formulations.decisions import Decisions, PathCut
from formulations.instance.search import ScheduleName
from formulations.plan import Degrees
from solver.search.paths import CutPool, _nearby, first_cuts, harvest, largest_share
from tests import brute_force, recursion
from tests.loop_checks import feasible, judge, random_decisions
from tests.random_configs import random_tables
from tests.seeds import few_and_many

Schedules = st.sampled_from(["1f1b", "gpipe", "zb-h1", "interleaved"])
Times = list[list[int]]  #: forward, backward, weight gradients of stages; transfers


@st.composite
def pipelines(draw: st.DrawFn) -> Times:
    """Two to four stages, or chunks."""
    p = draw(st.integers(2, 6))
    own = st.lists(st.integers(0, 9), min_size=p, max_size=p)
    return [draw(own), draw(own), draw(own), draw(own)[1:]]


def length(cut: PathCut, times: Times, blocking: bool = False) -> int:
    """Time along a path, given those of each kind of operation."""
    parts = [*zip(cut.operations, times, strict=False), (cut.sends(blocking), times[-1])]
    return sum(n * t for counts, own in parts for n, t in zip(counts, own, strict=True))


@given(pipelines(), st.integers(1, 5), st.integers(0, 3), st.booleans(), Schedules)
def test_first_cuts_bound_every_pipeline(
    times: Times, m: int, more: int, blocking: bool, schedule: ScheduleName
) -> None:
    """A path of m micro-batches bounds the ends of pipelines with m; in 1F1B and GPipe with more.

    Of interleaved stages those of two devices, of two micro-batches.
    """
    forward, backward, weight, send = times
    weights, v, total = None, 1, m
    if schedule == "interleaved":
        v, m, total = len(forward) // 2, 2, 2
        assume(v > 1)
        assume(len(forward) % 2 == 0)
    elif schedule == "zb-h1":
        weights = weight
    else:
        total += more
    ends = recursion.stage_ends(
        schedule, total, forward, backward, send, blocking, weight=weights, v=v
    )
    for cut in first_cuts(schedule, len(forward) // v, m, v):
        assert length(cut, times, blocking) <= ends[cut.device]


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


def test_nearby_splits_move_one_boundary() -> None:
    """Stages of two layers: the split itself, one and three layers, three and one."""
    assert _nearby((0, 2, 4), 9).tolist() == [[0, 2, 4], [0, 1, 4], [0, 3, 4]]


def test_pool_keeps_schedules_and_stages_apart() -> None:
    """Cuts are shared by configurations of one schedule and number of stages only."""
    pool, config = CutPool(), random_tables(0).config
    pool.of(config).update(first_cuts(config.schedule, config.pp, 2))
    assert pool.of(config.but(degrees=(Degrees(tp=8),)))
    assert not pool.of(config.but(pp=config.pp + 1))
    assert not pool.of(config.but(vpp=2))


@pytest.mark.parametrize("seeds", few_and_many(range(0, 80, 4), 6))
def test_largest_share_never_excludes_a_plan(seeds: Sequence[int]) -> None:
    """No plan within a step time has a replica with more micro-batches than the bound."""
    for tables, _ in feasible(seeds):
        for order in brute_force.all_orders(tables):
            for shares in brute_force.all_shares(tables):
                made = Decisions(order, next(brute_force.all_splits(tables)), shares)
                step = judge(tables, made)
                assert step is None or max(shares) <= largest_share(tables, step)
