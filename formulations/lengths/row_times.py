"""A plan as a strategy for rows of many lengths: how long a row may be, and what it takes.

The plan's layers, places and recomputation stay; its micro-batch is one row. What a row takes on
the slowest stage is worked out for rows of several lengths that are one sequence, and that are many
short ones: to the model of cost a packed row is a micro-batch of several sequences. Time grows with
the squares of the sequences and, for as many tokens, is convex in their sum (the slowest stage, the
slower of device and host), so a fit that is above both is above all rows between. It is exact where
one stage and the device set the pace.

Packed rows are looked at from half the longest row on: two that are shorter would be one. Shorter
ones may be bound by the host and take longer than the fit says. Padded rows have the lengths of
classes, and of each what the model says. Not in it: transfers between stages, which overlap with
computation.

A visit takes what reduction of gradients and tied embeddings take after the last backward pass of
the first stage: those of later stages begin as long before as the last row, if it is the shortest
looked at, takes from there. For optimizer and gather all stages begin together, as after a switch.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import lcm

import numpy as np

from formulations.costs.plan_costs import PlanCosts, plan_costs, synced_ns
from formulations.instance import Instance
from formulations.instance.instance import Objective
from formulations.instance.rows import lengths_of, of_rows
from formulations.lengths.fit import Point, upper_fit
from formulations.lengths.problem import PaddedTime, Replica, RowTime, Strategy
from formulations.plan import Plan, Shape
from formulations.units import ceil_div

#: Lengths at which the time of a packed row is worked out.
SAMPLES = 5
#: Sequences of a row of many, whose squares count nothing.
MANY = 256
#: Rows are filled up to a multiple of so many tokens, and of the GPUs that share them.
ROW_MULTIPLE = 128


@dataclass(frozen=True)
class PlanRows:
    """A plan as a strategy; by which share of a row's time that is above it at most."""

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
    sizes = [*range(step, most, step), most]
    if fits(most):
        return most
    count = bisect_left(sizes, True, key=lambda tokens: not fits(tokens))
    return sizes[count - 1] if count else None


class RowCosts:
    """Costs of a plan with rows that are so many sequences of so many tokens."""

    def __init__(self, instance: Instance, plan: Plan) -> None:
        self.instance, self.plan = instance, plan
        self.num_rows = sum(replica.micro_batches for replica in plan.replicas)
        self.of = cache(self._of)

    def _of(self, tokens: int, sequences: int = 1) -> PlanCosts:
        shape = self.plan.shape.model_copy(update={"micro_batch": sequences})
        rows = of_rows(self.instance, tokens, sequences * self.num_rows)
        return plan_costs(rows, self.plan.model_copy(update={"shape": shape}))

    def fits(self, tokens: int, replica: int) -> bool:
        """Whether rows fit every GPU of a replica."""
        costs = self.of(tokens)
        return bool((costs.memory_bytes <= costs.limit_bytes)[:, replica].all())

    def slowest_ns(self, tokens: int, sequences: int = 1) -> list[int]:
        """[replica] forward and backward of a row on the slowest stage."""
        costs = self.of(tokens, sequences)
        found: list[int] = (costs.forward_ns + costs.backward_ns).max(axis=0).tolist()
        return found

    def row_time(self, replica: int, longest: int) -> tuple[RowTime | PaddedTime, float]:
        """Of rows up to the longest, and how far above the model."""
        if lengths_of(self.instance).rows == "packed":
            return upper_fit([*self._points(replica, longest)])
        lengths = _lengths(self.instance, longest)
        return PaddedTime(tuple((n, self.slowest_ns(n)[replica]) for n in lengths)), 0.0

    def strategy(self, name: str, longest_rows: Sequence[int]) -> PlanRows:
        """The strategy whose replicas take rows of so many tokens; whether they fit or not.

        longest_rows: [replica].
        """
        replicas, largest_share, visit_ns = list[Replica](), 0.0, 0
        for r, longest in enumerate(longest_rows):
            time, above = self.row_time(r, longest)
            replicas.append(Replica(self.plan.shape.pp, longest, time))
            largest_share = max(largest_share, above)
            visit_ns = max(visit_ns, _visit_ns(self.of(_lengths(self.instance, longest)[0])))
        once = self.of(longest_rows[-1])
        anchor_ns = int((once.optimizer_ns + once.gather_ns).max())
        strategy = Strategy(name, tuple(replicas), visit_ns, anchor_ns)
        return PlanRows(strategy, self.plan, largest_share)

    def _points(self, replica: int, longest: int) -> Iterator[Point]:
        """What the fit may not be below."""
        for n in _lengths(self.instance, longest):
            yield Point(n * n, n, self.slowest_ns(n)[replica])
            tokens = ceil_div(n, MANY)
            time_ns = self.slowest_ns(tokens, n // tokens)[replica]
            yield Point(0, n // tokens * tokens, time_ns)


def slowest_row_ns(instance: Instance, plan: Plan, tokens: int) -> int:
    """Time of a row that is one sequence, on the slowest stage of all."""
    return max(RowCosts(instance, plan).slowest_ns(tokens))


def instance_of_rows(instance: Instance, plan: Plan, tokens: int) -> Instance:
    """The instance whose step is the rows of a strategy's plan, each of so many tokens."""
    num_rows = sum(replica.micro_batches for replica in plan.replicas)
    return of_rows(instance_of_time(instance), tokens, num_rows)


def instance_of_time(instance: Instance) -> Instance:
    """The instance with rows as micro-batches, of which plans of least time on all nodes are asked.

    Limits of a step are of mixed lengths, not of these.
    """
    zero = instance.search.zero
    rows = {
        "idle_nodes": False,
        "micro_batch": (1,),
        "schedule": ("1f1b",),
        "micro_batches": "even",
        "zero": tuple(stage for stage in zero if stage or 1 not in zero),
    }
    unlimited = {"max_step_time_s": None, "max_cost_usd_per_step": None}
    return instance.model_copy(
        update={
            "search": instance.search.model_copy(update=rows),
            "limits": instance.limits.model_copy(update=unlimited),
            "objective": Objective(),
        }
    )


def plan_rows(instance: Instance, plan: Plan, name: str, halvings: int = 0) -> PlanRows:
    """The strategy of a plan whose micro-batches are rows, which fit at one length at least.

    halvings: so often rows are half as long as they might be.
    """
    costs, longest_rows = RowCosts(instance, plan), list[int]()
    for r in range(plan.shape.dp):
        longest = longest_row(instance, plan.shape, partial(costs.fits, replica=r))
        assert longest is not None
        longest_rows.append(longest >> halvings)
    return costs.strategy(name, longest_rows)


def _visit_ns(costs: PlanCosts) -> int:
    """From the end of the last backward pass to that of the reduction of gradients, at most."""
    onwards = costs.backward_ns[:-1] + costs.send_ns  # [p - 1, R], from each stage to the next
    before = np.vstack([np.zeros_like(costs.backward_ns[:1]), np.cumsum(onwards, axis=0)])
    return int(synced_ns(costs, -before.min(axis=1)).max())


def _lengths(instance: Instance, longest: int) -> list[int]:
    """Lengths of rows, ascending, that steps have: padded, all, and be it one that is too long."""
    lengths = lengths_of(instance)
    if lengths.rows == "padded":
        known = [one.tokens for one in lengths.classes]
        return known[: max(1, bisect_right(known, longest))]
    return sorted({int(one) for one in np.linspace(ceil_div(longest, 2), longest, SAMPLES)})
