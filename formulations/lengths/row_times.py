"""A plan as a strategy for rows of many lengths: how long a row may be, and what it takes.

The plan's layers, places and recomputation stay; its micro-batch is one row. Of a row of l tokens
that is one sequence, every stage's time is worked out at several lengths. Where the model of cost
is quadratic in l, which it is wherever the device and not the host sets the pace, the fit is exact
up to the stage that is slowest, which may be another for short sequences: then it is above both.
Rows of many short sequences take what the part without squares says: fused attention keeps
sequences apart, all else sees tokens.

Not in it: transfers between stages, which overlap with computation, and what is once per step.
Packed rows are looked at from half the longest row on: two that are shorter would be one. Shorter
ones may be bound by the host and take longer than the fit says.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, lcm

import numpy as np

from formulations.costs.plan_costs import PlanCosts, plan_costs
from formulations.costs.tables import Array
from formulations.instance import Instance
from formulations.instance.rows import lengths_of, of_rows
from formulations.lengths.fit import Point, upper_fit
from formulations.lengths.problem import Replica, Rows, Strategy
from formulations.plan import Plan, Shape
from formulations.units import ceil_div

#: Lengths at which the time of a row is worked out.
SAMPLES = 9
#: Rows are filled up to a multiple of so many tokens, and of the GPUs that share them.
ROW_MULTIPLE = 128


@dataclass(frozen=True)
class PlanRows:
    """A plan as a strategy; by which share of a row's time the fit is above it at most."""

    strategy: Strategy
    plan: Plan
    above: float


def row_multiple(shape: Shape) -> int:
    """Rows of a shape have a multiple of so many tokens."""
    own = shape.degrees_used[0]
    return lcm(ROW_MULTIPLE, own.tp, 2 * own.cp)


def longest_row(instance: Instance, shape: Shape, fits: Callable[[int], bool]) -> int | None:
    """Tokens of the longest row that fits, no longer than the workload's; None: none does.

    fits: whether rows of so many tokens do; then shorter ones do too.
    """
    step, most = row_multiple(shape), instance.workload.sequence_length
    sizes = range(step, step * ceil_div(most, step) + 1, step)
    if fits(sizes[-1]):
        return most
    count = bisect_left(sizes, True, key=lambda tokens: not fits(tokens))
    return min(most, sizes[count - 1]) if count else None


def plan_rows(instance: Instance, plan: Plan, name: str) -> PlanRows:
    """The strategy of a plan whose micro-batches are rows, which fit at one length at least."""
    num_rows = sum(replica.micro_batches for replica in plan.replicas)

    @cache
    def costs(tokens: int) -> PlanCosts:
        return plan_costs(of_rows(instance, tokens, num_rows), plan)

    def replica(r: int) -> tuple[Replica, float]:
        longest = longest_row(instance, plan.shape, lambda tokens: _fits(costs(tokens), r))
        assert longest is not None
        lengths = _samples(instance, longest)
        times = np.array([_stage_ns(costs(tokens), r) for tokens in lengths])
        curve, above = upper_fit(_points(lengths, times, lengths_of(instance).rows))
        return Replica(plan.shape.pp, longest, curve), above

    replicas, above = zip(*map(replica, range(plan.shape.dp)), strict=True)
    return PlanRows(Strategy(name, replicas), plan, max(above))


def _fits(costs: PlanCosts, replica: int) -> bool:
    return bool((costs.memory_bytes <= costs.limit_bytes)[:, replica].all())


def _stage_ns(costs: PlanCosts, replica: int) -> Array:
    """[S] forward and backward of a row on every stage."""
    times: Array = (costs.forward_ns + costs.backward_ns)[:, replica]
    return times


def _samples(instance: Instance, longest: int) -> list[int]:
    """Lengths of rows, ascending, among which those are that steps have."""
    lengths = lengths_of(instance)
    first = ceil_div(longest, 2) if lengths.rows == "packed" else lengths.classes[0].tokens
    return sorted({int(one) for one in np.linspace(min(first, longest), longest, SAMPLES)})


def _points(lengths: Sequence[int], times: Array, rows: Rows) -> list[Point]:
    """What the fit may not be below; times: [row length, stage] ns."""
    whole = [Point(n * n, n, int(t)) for n, t in zip(lengths, times.max(axis=1), strict=True)]
    if rows == "padded" or len(lengths) < 3:
        return whole
    squares = np.square(np.array(lengths, dtype=np.float64))
    curved = np.maximum(np.polyfit(lengths, times, 2)[0], 0)
    flat = (times - squares[:, None] * curved).max(axis=1)
    return whole + [Point(0, n, ceil(t)) for n, t in zip(lengths, flat, strict=True) if t > 0]
