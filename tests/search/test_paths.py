"""Paths as cuts: never above any simulated end, for any plan and any larger share."""

from hypothesis import assume, given
from hypothesis import strategies as st

from formulations.costs.placement import Placer
from formulations.decisions import ALL_FREE, Decisions, Given, PathCut
from formulations.instance.search import ScheduleName
from solver.heuristics.balance import SplitSpace
from solver.search.paths import (
    CutPool,
    OpenConfig,
    first_cuts,
    harvest,
    largest_share,
    shares_of,
    whole_weights,
)
from tests import brute_force, recursion
from tests.graph.drawn import drawn_tables
from tests.loop_checks import random_decisions
from tests.random_configs import random_tables
from tests.recorded import Cases, digest, recorded

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
    for seed in range(0, 60, 3):
        costs = random_tables(seed)
        made = random_decisions(costs, seed)
        placed = brute_force.place(costs, made.order)
        placement = Placer(costs).costs(made.order)
        found = harvest(SplitSpace(costs), placement, made, range(1, 9), 0)
        step = brute_force.step_time_ns(costs, placed, made.boundaries, made.micro_batches)
        assert found.step_time_ns == step
        stages = {cut.device for cut in found.cuts if cut.micro_batches in made.micro_batches}
        assert stages == set(range(costs.config.pp))


@recorded("search_paths")
def test_paths_are_the_recorded_ones() -> Cases:
    """First ones, those of plans and near them, shares that replicas may have, and weights."""
    for name, costs in list(drawn_tables().items())[::2]:
        config, pool = costs.config, CutPool()
        orders, splits = brute_force.all_orders(costs), list(brute_force.all_splits(costs))
        shares = list(brute_force.all_shares(costs))
        if not splits or not shares:
            continue
        made = Decisions(orders[-1], splits[-1], shares[-1])
        placement, space = Placer(costs).costs(made.order), SplitSpace(costs)
        near = range(1, 9) if config.vpp == 1 else ()
        first = list(first_cuts(config.schedule, config.pp, 2 * config.pp, config.vpp))
        pool.of(config).update(first)
        known = [len(pool.of(each)) for each in (config, config.but(pp=9), config.but(vpp=9))]
        plans = [harvest(space, placement, made, near, 0)]
        bounds = [plans[0].step_time_ns * tenths // 10 for tenths in (5, 7, 8, 9)]
        plans += [harvest(space, placement, made, near, bound_ns) for bound_ns in bounds]
        given = [shares_of(costs, each) for each in (ALL_FREE, Given(micro_batches=shares[-1]))]
        opened = [OpenConfig(costs, price) for price in (1.0, 0.37, 0.0)]
        counts = [len(first), *(len(plan.cuts) for plan in plans), plans[0].step_time_ns]
        most = [largest_share(costs, ns) for ns in (-1, costs.longest_ns // 3)]
        tail = list(map(list, given)), known, most, whole_weights(opened), whole_weights(opened[:1])
        yield name, [*counts, *tail, digest([first, plans])]
