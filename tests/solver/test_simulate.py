"""The simulator: hand-computed cases, closed forms, and a plain recursion as witness."""

import json
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import PlanCosts, plan_costs, split_costs
from formulations.costs.tables import CostTables
from formulations.decisions import Decisions
from formulations.instance.search import ScheduleName
from formulations.schedules import schedule_graph
from solver.simulate import Operation, Times, simulate, simulate_step, step_time_ns, trace
from tests import brute_force, recursion
from tests.hand_made import timeline
from tests.loop_checks import random_decisions
from tests.random_configs import WITH_NEW, random_tables

Pipeline = tuple[list[int], list[int], list[int]]


def column(values: list[int]) -> NDArray[np.int64]:
    """One pipeline, [p, 1]."""
    return np.array(values, dtype=np.int64)[:, None]


def ends(
    schedule: ScheduleName,
    m: int,
    forward: list[int],
    backward: list[int],
    send: list[int],
    blocking: bool = False,
) -> list[int]:
    """End of the last backward of every stage."""
    graph = schedule_graph(schedule, len(forward), m)
    times = Times(column(forward), column(backward), column(send), blocking)
    found: list[int] = simulate(graph, times)[graph.last, 0].tolist()
    return found


@st.composite
def pipelines(draw: st.DrawFn, most_stages: int = 4) -> Pipeline:
    """Forward, backward and transfer times of a random pipeline."""
    p = draw(st.integers(1, most_stages))
    times = st.integers(1, 9)
    forward = draw(st.lists(times, min_size=p, max_size=p))
    backward = draw(st.lists(times, min_size=p, max_size=p))
    return forward, backward, draw(st.lists(st.integers(0, 9), min_size=p - 1, max_size=p - 1))


def test_gpipe_two_stages_two_micro_batches() -> None:
    """GPipe, by hand."""
    # Stage 0: F0 0-2, F1 2-4. Stage 1: F0 3-6, F1 6-9, B0 9-14, B1 14-19. Stage 0: B0 15-19,
    # B1 20-24.
    assert ends("gpipe", 2, [2, 3], [4, 5], [1]) == [24, 19]


def test_three_stages_three_micro_batches() -> None:
    """1F1B with three equal stages without transfers, by hand."""
    # f = 1, b = 2. Stage 2: F0 2-3, B0 3-5, F1 5-6, B1 6-8, F2 8-9, B2 9-11. Stage 1: F0 1-2,
    # F1 2-3, B0 5-7, F2 7-8, B1 8-10, B2 11-13. Stage 0: F0 F1 F2 0-3, B0 7-9, B1 10-12, B2 13-15.
    # F2 of stage 2 waits for F2 of stage 1 until 8.
    assert ends("1f1b", 3, [1, 1, 1], [2, 2, 2], [0, 0]) == [15, 13, 11]


@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 9), st.integers(1, 9))
def test_equal_stages_take_m_plus_p_minus_one_rounds(p: int, m: int, f: int, b: int) -> None:
    """GPipe and 1F1B on equal stages without transfers: (m + p - 1)(f + b) (Huang et al. 2019)."""
    for schedule in ("gpipe", "1f1b"):
        assert ends(schedule, m, [f] * p, [b] * p, [0] * (p - 1))[0] == (m + p - 1) * (f + b)


@given(pipelines(), st.integers(1, 6), st.booleans(), st.sampled_from(["1f1b", "gpipe"]))
def test_equals_the_recursion(
    pipeline: Pipeline, m: int, blocking: bool, schedule: ScheduleName
) -> None:
    """Walking the graph by levels gives what asking each operation for its predecessors gives."""
    expected = recursion.stage_ends(schedule, m, *pipeline, blocking)
    assert ends(schedule, m, *pipeline, blocking) == expected


@given(pipelines(), st.integers(1, 6))
def test_gpipe_is_two_flow_shops(pipeline: Pipeline, m: int) -> None:
    """GPipe: all micro-batches down, then all up, each way latency + (m - 1) times the slowest.

    The last stage starts its backwards after its last forward; all others are idle by then.
    """
    forward, backward, send = pipeline
    down = sum(forward) + sum(send) + (m - 1) * max(forward)
    up = sum(backward) + sum(send) + (m - 1) * max(backward)
    assert ends("gpipe", m, forward, backward, send)[0] == down + up


def steady_period(pipeline: Pipeline) -> float:
    """PROBLEM section 5: the slowest loop over neighbouring stages i..j, per micro-batch."""
    forward, backward, send = pipeline
    p = len(forward)
    loops = [
        (sum(forward[i : j + 1]) + sum(backward[i : j + 1]) + 2 * sum(send[i:j])) / (j - i + 1)
        for i in range(p)
        for j in range(i, p)
    ]
    return max(loops)


@settings(max_examples=6, deadline=None)
@given(pipelines())
def test_growth_per_micro_batch_is_the_steady_period(pipeline: Pipeline) -> None:
    """Far into the step 12 more micro-batches take 12 periods.

    Loops have 1 to 4 stages, so their periods differ by 1/12 at least, or not at all; no head
    start of a slower loop, at most 200 here, lasts for 2,400 micro-batches.
    """
    longer, shorter = (ends("1f1b", m, *pipeline)[0] for m in (2412, 2400))
    assert longer - shorter == pytest.approx(12 * steady_period(pipeline), abs=1e-9)


def test_pipelines_of_a_batch_do_not_touch() -> None:
    """A batch of pipelines gives each what it gets alone."""
    rng = np.random.default_rng(7)
    forward, backward = rng.integers(1, 50, (2, 4, 30))
    send = rng.integers(0, 50, (3, 30))
    graph = schedule_graph("1f1b", 4, 9)
    together = simulate(graph, Times(forward, backward, send))
    for n in range(30):
        one = slice(n, n + 1)
        alone = simulate(graph, Times(forward[:, one], backward[:, one], send[:, one]))
        assert (alone[:, 0] == together[:, n]).all()


@given(pipelines(), st.integers(1, 6), st.booleans(), st.sampled_from(["1f1b", "gpipe"]))
def test_traced_path_is_as_long_as_its_end(
    pipeline: Pipeline, m: int, blocking: bool, schedule: ScheduleName
) -> None:
    """Counts along the critical path times the times give the simulated end, for every stage."""
    p = len(pipeline[0])
    graph = schedule_graph(schedule, p, m)
    forward, backward, send = (np.repeat(column(values), p, axis=1) for values in pipeline)
    times = Times(forward, backward, send, blocking)
    end = simulate(graph, times)
    counts = trace(graph, times, end, np.arange(end.shape[1]), graph.last)
    length = (counts.weights * times.weights).sum(axis=0)
    length += (counts.transfers * times.transfers).sum(axis=0)
    assert length.tolist() == end[graph.last, 0].tolist()
    assert not counts.transfers[-1].any()  # the row of operations that wait for no transfer


def costs_of(tables: CostTables, made: Decisions) -> PlanCosts:
    """Costs of a plan, in memory or not."""
    placement = Placer(tables).costs(made.order)
    return split_costs(tables, placement, made.boundaries, made.micro_batches)


def random_costs(seed: int, schedule: ScheduleName | None = None) -> PlanCosts:
    """Costs of a random plan."""
    tables = random_tables(seed, schedule=schedule)
    return costs_of(tables, random_decisions(tables, seed))


@pytest.mark.parametrize("schedule", WITH_NEW)
@pytest.mark.parametrize("seed", range(80))
def test_step_time_equals_the_witness(seed: int, schedule: ScheduleName | None) -> None:
    """Split, placement, shares, pipelines and tail together, against an independent recount."""
    tables = random_tables(seed, seed % 5 == 0, schedule)
    made = random_decisions(tables, seed)
    costs, placed = costs_of(tables, made), brute_force.place(tables, made.order)
    parts = tables, placed, made.boundaries, made.micro_batches
    assert step_time_ns(costs) == brute_force.step_time_ns(*parts)
    assert bool((costs.memory_bytes <= costs.limit_bytes).all()) == brute_force.fits(*parts)


@pytest.mark.parametrize("schedule", WITH_NEW)
@pytest.mark.parametrize("seed", range(40))
def test_timeline_ends_with_the_step(seed: int, schedule: ScheduleName | None) -> None:
    """The timeline of a step ends at its step time."""
    costs = random_costs(seed, schedule)
    step = simulate_step(costs)
    assert step.step_time_ns == step_time_ns(costs)
    assert step.step_time_ns == max(operation.end_ns for operation in timeline(step))


@pytest.mark.parametrize("seed", range(40))
def test_a_device_does_one_thing_at_a_time(seed: int) -> None:
    """Forwards and backwards of one stage of one replica never overlap."""
    bars: dict[tuple[int | None, int], list[Operation]] = {}
    for operation in timeline(simulate_step(random_costs(seed))):
        if operation.kind in ("forward", "backward"):
            bars.setdefault((operation.replica, operation.stage), []).append(operation)
    for device in bars.values():
        device.sort(key=lambda operation: operation.start_ns)
        for first, second in pairwise(device):
            assert first.end_ns <= second.start_ns


@pytest.mark.parametrize("seed", range(80))
def test_critical_path_spans_the_step(seed: int) -> None:
    """It starts at 0, ends at the step time, and waits for nothing but transfers."""
    costs = random_costs(seed)
    step = simulate_step(costs)
    path = step.critical_path
    assert (path[0].start_ns, path[-1].end_ns) == (0, step.step_time_ns)
    for first, second in pairwise(path):
        gap = second.start_ns - first.end_ns
        if first.stage == second.stage or "embedding" in (first.kind, second.kind):
            assert gap == 0
        else:
            boundary, replica = min(first.stage, second.stage), first.replica or 0
            send = 0 if costs.blocking_sends else int(costs.send_ns[boundary, replica])
            assert gap == send


def test_plan_costs_equal_split_costs() -> None:
    """A plan document carries all that its costs need."""
    for seed in range(0, 40, 4):
        tables = random_tables(seed)
        made = next(brute_force.all_decisions(tables))
        plan = made.plan(tables)
        assert step_time_ns(plan_costs(tables.instance, plan)) == step_time_ns(
            costs_of(tables, made)
        )


def test_least_makespan_of_published_splits(reference: Path) -> None:
    """Over all splits of the small reference pipelines the least simulated end is as proved."""
    cases = json.loads((reference / "splits" / "optimal.json").read_text())["cases"]
    small = [case for case in cases if case["proved_by"] == "brute force"]
    assert len(small) == 12
    for case in small:
        layers, slow = len(case["layer_forward"]), np.array(case["stage_slowness"])
        p = len(slow)
        splits = np.array([(0, *c, layers) for c in combinations(range(1, layers), p - 1)])
        before = [
            np.concatenate([[0], np.cumsum(case[name])])
            for name in ("layer_forward", "layer_backward")
        ]
        forward, backward = (
            (sums[splits[:, 1:]] - sums[splits[:, :-1]]).T * slow[:, None] for sums in before
        )
        send = np.repeat(column(case["send_forward"]), len(splits), axis=1)
        graph = schedule_graph("1f1b", p, case["micro_batches"])
        end = simulate(graph, Times(forward, backward, send))
        assert end[graph.last].max(axis=0).min() == case["optimal_step_time"]


def test_longest_pipeline_asked_for() -> None:
    """512 micro-batches on 64 stages: (m + p - 1)(f + b) as on any equal stages."""
    assert ends("1f1b", 512, [1] * 64, [2] * 64, [0] * 63)[0] == (512 + 63) * 3
