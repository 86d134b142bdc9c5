"""How long a row of a plan or of a measured strategy may be, and what it takes.

A plan's layers, places and recomputation stay; its micro-batch is one row. What a row takes on
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

The fit a l^2 + b l + c is the least such curve that is nowhere below what is known. Least: the sum
over the points of what it is above them, each relative to its time. That is a linear programme in
a, b, c >= 0; its optimum lies where three of its constraints meet, and all of these corners are
tried. Two points have several such curves. The one with the least c, and a, is chosen: a larger c
makes rows of many short sequences faster than any that is known.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations, groupby
from math import lcm
from typing import NamedTuple

import numpy as np

from formulations.costs.plan_costs import PlanCosts, plan_costs, synced_ns
from formulations.errors import InstanceError
from formulations.instance import Instance
from formulations.instance.instance import Objective
from formulations.instance.lengths import ROW_MULTIPLE, Lengths, MeasuredStrategy
from formulations.instance.transformer import build_workload
from formulations.lengths.problem import Atom, Mixed, Replica, RowTime, Strategy, Switching
from formulations.plan import Configuration, Plan
from formulations.units import ceil_div, ceil_ns

#: Lengths at which the time of a packed row is worked out.
SAMPLES = 5
#: Sequences of a row of many, whose squares count nothing.
MANY = 256
#: Relative noise of the floats of a fit.
_NOISE = 1e-9


def lengths_of(instance: Instance) -> Lengths:
    """The section `lengths`. Raises InstanceError where there is none."""
    if instance.lengths is None:
        raise InstanceError("lengths", "missing", "a section with histogram, file or log_normal")
    return instance.lengths


def of_rows(instance: Instance, tokens: int, num_rows: int) -> Instance:
    """The instance with `num_rows` rows a step, each one sequence of so many tokens."""
    workloads = {
        name: build_workload(
            lengths_of(instance).architecture,
            name=old.name,
            source=old.source,
            sequence_length=tokens,
            global_batch=num_rows,
            precision=old.precision,
            gradient_bytes=old.gradient_bytes,
            flash_attention=old.flash_attention,
            optimizer_state=old.optimizer_state or "fp32",
            fused_cross_entropy=old.fused_cross_entropy,
        )
        for name, old in (("workload", instance.workload), ("fused", instance.fused))
        if old is not None
    }
    return instance.model_copy(update={**workloads, "lengths": None})


class Point(NamedTuple):
    """A row that takes so long: the sum of the squares of its sequences' tokens, and their sum."""

    square: int
    tokens: int
    time_ns: int


def upper_fit(points: Sequence[Point]) -> tuple[RowTime, float]:
    """The curve, and by which share of its time it is above a point at most."""
    rows_known = np.array(points, dtype=np.float64)
    terms, times = np.column_stack([rows_known[:, :2], np.ones(len(rows_known))]), rows_known[:, 2]
    scale = terms.max(axis=0)
    # Constraints: of every point rows @ (a, b, c) >= 1, and a, b, c >= 0
    rows = terms / scale / times[:, None]
    sides = np.vstack([rows, np.eye(3)])
    values = np.concatenate([np.ones(len(rows_known)), np.zeros(3)])
    # Corners: where three of them meet that are not parallel
    corners = np.array(list(combinations(range(len(sides)), 3)))
    lengths = np.linalg.norm(sides[corners], axis=2)
    regular = abs(np.linalg.det(sides[corners])) > _NOISE * np.prod(lengths, axis=1)
    corners = corners[regular]
    curves = np.linalg.solve(sides[corners], values[corners][..., None])[..., 0]
    fitting = curves[(curves @ sides.T >= values - _NOISE).all(axis=1)]
    # The least of those that keep all; of equal ones by c, then by a
    total = (fitting @ rows.T).sum(axis=1)
    equal = fitting[total <= total.min() * (1 + _NOISE)]
    best = equal[np.lexsort(equal[:, [0, 2]].T)[0]]
    square, token, row = (max(0.0, float(factor)) for factor in best / scale)
    below = times - (square * terms[:, 0] + token * terms[:, 1] + row)
    curve = RowTime(square, token, math.ceil(row + max(0.0, below.max())))
    above = (square * terms[:, 0] + token * terms[:, 1] + curve.per_row_ns) / times
    return curve, float(above.max()) - 1


@dataclass(frozen=True)
class PlanRows:
    """A plan as a strategy; by which share of a row's time that is above it at most."""

    strategy: Strategy
    plan: Plan
    above: float


def plan_name(plan: Plan) -> str:
    """The degrees of a plan, and whether it recomputes anything."""
    config = plan.config
    tps = "/".join(dict.fromkeys(str(degrees.tp) for degrees in config.degrees_used))
    more = [("cp", config.cp), ("ep", config.ep)]
    shared = [f"{name} {degree}" for name, degree in more if degree > 1]
    split = [f"ZeRO {config.zero}"] if config.in_lockstep else []
    stages = (stage for replica in plan.replicas for stage in replica.stages)
    again = ["recomputing"] if any(stage.recomputed.blocks for stage in stages) else []
    return ", ".join([f"dp {config.dp}", f"tp {tps}", *shared, f"pp {config.pp}", *split, *again])


def row_multiple(config: Configuration) -> int:
    """Tokens of a row are a multiple of it, and so of the GPUs that share the row."""
    degrees = config.degrees_used[0]
    return lcm(ROW_MULTIPLE, degrees.tp, 2 * degrees.cp)


def longest_row(
    instance: Instance, config: Configuration, fits: Callable[[int], bool]
) -> int | None:
    """Tokens of the longest row that fits, no longer than the workload's; None: none does.

    fits: whether rows of so many tokens do; then shorter ones do too.
    """
    step, longest = row_multiple(config), instance.workload.sequence_length
    sizes = [*range(step, longest, step), longest]
    if fits(longest):
        return longest
    count = bisect_left(sizes, True, key=lambda tokens: not fits(tokens))
    return sizes[count - 1] if count else None


class RowCosts:
    """Costs of a plan with rows that are so many sequences of so many tokens."""

    def __init__(self, instance: Instance, plan: Plan) -> None:
        self.instance, self.plan = instance, plan
        self.num_rows = sum(replica.micro_batches for replica in plan.replicas)
        self.of = cache(self._of)

    def _of(self, tokens: int, sequences: int = 1) -> PlanCosts:
        config = self.plan.config.model_copy(update={"micro_batch": sequences})
        rows = of_rows(self.instance, tokens, sequences * self.num_rows)
        return plan_costs(rows, self.plan.model_copy(update={"config": config}))

    def fits(self, tokens: int, replica: int) -> bool:
        """Whether rows fit every GPU of a replica."""
        costs = self.of(tokens)
        return bool((costs.memory_bytes <= costs.limit_bytes)[:, replica].all())

    def slowest_ns(self, tokens: int, sequences: int = 1) -> list[int]:
        """[replica] forward and backward of a row on the slowest stage."""
        costs = self.of(tokens, sequences)
        slowest: list[int] = (costs.forward_ns + costs.backward_ns).max(axis=0).tolist()
        return slowest

    def row_time(self, replica: int, longest: int) -> tuple[RowTime, float]:
        """Of rows up to the longest, and how far above the model."""
        lengths = _lengths(self.instance, longest)
        alone = [(n, self.slowest_ns(n)[replica]) for n in lengths]
        if lengths_of(self.instance).rows == "padded":
            return RowTime(rows_ns=tuple(alone)), 0.0
        # What the fit may not be below: rows of one sequence, and of many
        points = [Point(n * n, n, time_ns) for n, time_ns in alone]
        for n in lengths:
            tokens = ceil_div(n, MANY)
            sequences = n // tokens
            time_ns = self.slowest_ns(tokens, sequences)[replica]
            points.append(Point(0, sequences * tokens, time_ns))
        return upper_fit(points)

    def strategy(self, name: str, longest_rows: Sequence[int]) -> PlanRows:
        """The strategy whose replicas take rows of so many tokens; whether they fit or not.

        longest_rows: [replica].
        """
        replicas, shares, visits_ns = list[Replica](), [0.0], [0]
        for r, longest in enumerate(longest_rows):
            time, above = self.row_time(r, longest)
            replicas.append(Replica(self.plan.config.pp, longest, time))
            shares.append(above)
            # From the end of the last backward pass to that of the reduction of gradients, at most
            costs = self.of(_lengths(self.instance, longest)[0])
            onwards = costs.backward_ns[:-1] + costs.send_ns  # [p - 1, R], each stage to the next
            before = np.vstack([np.zeros_like(costs.backward_ns[:1]), np.cumsum(onwards, axis=0)])
            visits_ns.append(int(synced_ns(costs, -before.min(axis=1)).max()))
        once = self.of(longest_rows[-1])
        anchor_ns = int((once.optimizer_ns + once.gather_ns).max())
        alike = ((replica, len(list(run))) for replica, run in groupby(replicas))
        grouped = tuple(replace(replica, count=count) for replica, count in alike)
        return PlanRows(Strategy(name, grouped, max(visits_ns), anchor_ns), self.plan, max(shares))


def instance_of_rows(instance: Instance, plan: Plan, tokens: int) -> Instance:
    """The instance whose step is the rows of a strategy's plan, each of so many tokens."""
    num_rows = sum(replica.micro_batches for replica in plan.replicas)
    return of_rows(instance_of_time(instance), tokens, num_rows)


def instance_of_time(instance: Instance) -> Instance:
    """The instance with rows as micro-batches, of which plans of least time on all nodes are asked.

    Limits of a step are of mixed lengths, not of these.
    """
    zero = instance.search.zero
    return instance.but(
        search={
            "idle_nodes": False,
            "micro_batch": (1,),
            "schedule": ("1f1b",),
            "micro_batches": "even",
            "zero": tuple(stage for stage in zero if stage or 1 not in zero),
        },
        limits={"max_step_time_s": None, "max_cost_usd_per_step": None},
        objective=Objective(),
    )


def plan_rows(instance: Instance, plan: Plan, name: str) -> PlanRows:
    """The strategy of a plan whose micro-batches are rows, which fit at one length at least."""
    costs, longest_rows = RowCosts(instance, plan), list[int]()
    for r in range(plan.config.dp):
        longest = longest_row(instance, plan.config, partial(costs.fits, replica=r))
        assert longest is not None
        longest_rows.append(longest)
    return costs.strategy(name, longest_rows)


def _lengths(instance: Instance, longest: int) -> list[int]:
    """Lengths of rows, ascending, that steps have: padded, all, and be it one that is too long."""
    lengths = lengths_of(instance)
    if lengths.rows == "padded":
        tokens = [length_class.up_to for length_class in lengths.classes]
        return tokens[: max(1, bisect_right(tokens, longest))]
    return sorted({int(n) for n in np.linspace(ceil_div(longest, 2), longest, SAMPLES)})


def measured_problem(instance: Instance) -> tuple[Mixed, tuple[float, ...]]:
    """The problem of measured strategies and switches.

    And by which share of a row's time each strategy is above what was measured.
    """
    lengths = lengths_of(instance)
    strategies, above = zip(*(_measured(instance, m) for m in lengths.strategies), strict=True)
    names = [strategy.name for strategy in strategies]
    switches = {(switch.leave, switch.enter): switch for switch in lengths.switching}

    def times(field: str) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(ceil_ns(getattr(switches[a, b], field)) if a != b else 0 for b in names)
            for a in names
        )

    switching = Switching(times("parameters"), times("gradients"))
    return Mixed(atoms_of(lengths), strategies, switching, lengths.rows), above


def atoms_of(lengths: Lengths) -> tuple[Atom, ...]:
    """The classes of the histogram."""
    return tuple(Atom(c.up_to, c.count) for c in lengths.classes)


def _measured(instance: Instance, measured: MeasuredStrategy) -> tuple[Strategy, float]:
    once = ceil_ns(measured.per_visit), ceil_ns(measured.per_step)
    if measured.class_times:
        times = {tokens: ceil_ns(time_s) for tokens, time_s in measured.class_times.items()}
        atoms_ns = tuple(times.get(c.up_to) for c in lengths_of(instance).classes)
        return Strategy(measured.title, (), *once, atoms_ns), 0.0
    rows = (measured.row_times or {}).items()
    points = [Point(n * n, n, ceil_ns(time_s)) for n, time_s in sorted(rows)]
    curve, above = upper_fit(points)
    assert measured.longest_row is not None
    degrees = measured.pipeline_parallel, measured.data_parallel
    replica = Replica(degrees[0], measured.longest_row, curve, degrees[1])
    return Strategy(measured.title, (replica,), *once), above
