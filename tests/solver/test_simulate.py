"""The simulator: paths, timelines, and a plain recursion as witness."""

from itertools import pairwise, product

import numpy as np
import pytest

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import PlanCosts, plan_costs, split_costs
from formulations.costs.tables import CostTables
from formulations.decisions import Decisions
from formulations.instance.search import ScheduleName
from formulations.schedules.graph import schedule_graph
from solver.simulate import Operation, Times, simulate, simulate_step, step_time_ns, trace
from tests import brute_force
from tests.best_plans import random_decisions
from tests.hand_made import timeline
from tests.random_configs import WITH_NEW, random_tables
from tests.seeds import one_each


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_traced_path_is_as_long_as_its_end(schedule: ScheduleName, blocking: bool) -> None:
    """Counts along the critical path times the times give the simulated end, for every stage."""
    rng = np.random.default_rng(1)
    for p, m in product(range(1, 5), range(1, 7)):
        graph = schedule_graph(schedule, p, m)
        drawn = [*rng.integers(1, 10, (2, p, 1)), rng.integers(0, 10, (p - 1, 1))]
        forward, backward, send = (np.repeat(values, p, axis=1) for values in drawn)
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


@pytest.mark.parametrize("schedule", WITH_NEW)
@pytest.mark.parametrize("seed", one_each(range(40), 4))
def test_step_time_equals_the_witness(seed: int, schedule: ScheduleName | None) -> None:
    """Split, placement, shares, pipelines and tail together, against an independent recount."""
    tables = random_tables(seed, seed % 5 == 0, schedule)
    made = random_decisions(tables, seed)
    costs, placed = costs_of(tables, made), brute_force.place(tables, made.order)
    parts = tables, placed, made.boundaries, made.micro_batches
    assert step_time_ns(costs) == brute_force.step_time_ns(*parts)
    assert bool((costs.memory_bytes <= costs.limit_bytes).all()) == brute_force.fits(*parts)
    # a plan document carries all that its costs need
    assert step_time_ns(plan_costs(tables.instance, made.plan(tables))) == step_time_ns(costs)


@pytest.mark.parametrize("schedule", WITH_NEW)
@pytest.mark.parametrize("seed", one_each(range(40), 4))
def test_timeline_ends_with_the_step(seed: int, schedule: ScheduleName | None) -> None:
    """The critical path starts at 0, ends at the step time, and waits for nothing but transfers.

    Forwards and backwards of one stage of one replica never overlap.
    """
    tables = random_tables(seed, schedule=schedule)
    costs = costs_of(tables, random_decisions(tables, seed))
    step = simulate_step(costs)
    ends_ns = {step.step_time_ns, step_time_ns(costs), max(x.end_ns for x in timeline(step))}
    assert ends_ns == {step.step_time_ns}
    bars: dict[tuple[int | None, int], list[Operation]] = {}
    for operation in timeline(step):
        if operation.kind in ("forward", "backward"):
            bars.setdefault((operation.replica, operation.stage), []).append(operation)
    for device in bars.values():
        device.sort(key=lambda operation: operation.start_ns)
        assert all(first.end_ns <= second.start_ns for first, second in pairwise(device))
    path = step.critical_path
    assert (path[0].start_ns, path[-1].end_ns) == (0, step.step_time_ns)
    for first, second in pairwise(path):
        gap = second.start_ns - first.end_ns
        if first.stage == second.stage or "embedding" in (first.kind, second.kind):
            assert gap == 0
        elif schedule is None:
            boundary, replica = min(first.stage, second.stage), first.replica or 0
            send = 0 if costs.blocking_sends else int(costs.send_ns[boundary, replica])
            assert gap == send
