"""What every engine of the cut loop is held against."""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from formulations.costs.tables import CostTables
from formulations.decisions import Decisions, decisions_of
from formulations.instance import Limits
from solver.search.critical_path import Fixed, solve_shape
from solver.search.engines import ModelEngine
from tests import brute_force
from tests.random_shapes import random_optimum_ns, random_tables

Free = Literal["split", "order", "shares", "all"]
FREE: tuple[Free, ...] = ("split", "order", "shares", "all")


def random_decisions(tables: CostTables, seed: int) -> Decisions:
    """Any decisions, in memory or not."""
    rng = random.Random(seed)
    return Decisions(
        rng.choice(brute_force.all_orders(tables)),
        rng.choice(list(brute_force.all_splits(tables))),
        rng.choice(list(brute_force.all_shares(tables))),
    )


def judge(tables: CostTables, made: Decisions) -> int | None:
    """Step time by the witness; None if the plan does not fit in memory."""
    placed = brute_force.place(tables, made.order)
    parts = tables, placed, made.boundaries, made.micro_batches
    return brute_force.step_time_ns(*parts) if brute_force.fits(*parts) else None


def feasible(seeds: Iterable[int]) -> list[tuple[CostTables, int]]:
    """Random tables that have a plan, and its best step time."""
    known = [(random_tables(seed), random_optimum_ns(seed)) for seed in seeds]
    return [(tables, best) for tables, best in known if best is not None]


def agrees(engine: ModelEngine, tables: CostTables, fixed: Fixed, expected: int | None) -> bool:
    """Whether the loop ends with this optimum, proved, and a plan of this step time."""
    outcome = solve_shape(tables, engine, fixed=fixed)
    if expected is None:
        return outcome.status == "infeasible" and outcome.plan is None
    return (
        outcome.status == "optimal"
        and outcome.plan is not None
        and outcome.step_time_ns == outcome.bound_ns == expected
        and judge(tables, decisions_of(tables.instance, outcome.plan)) == expected
    )


def finds_the_best(engine: ModelEngine, tables: CostTables, free: Free, seed: int) -> bool:
    """Whether the loop finds and proves the brute-force optimum of what is free.

    The rest is given at random.
    """
    made = random_decisions(tables, seed)
    order = None if free in ("order", "all") else made.order
    split = None if free in ("split", "all") else made.boundaries
    shares = None if free in ("shares", "all") else made.micro_batches
    best = brute_force.optimum_ns(
        tables,
        orders=None if order is None else [order],
        splits=None if split is None else [split],
        shares=None if shares is None else [shares],
    )
    return agrees(engine, tables, Fixed(order, split, shares), best)


def limited(tables: CostTables, **limits: float) -> CostTables:
    """Tables of the same instance with these limits."""
    update = {"limits": Limits.model_validate(limits)}
    return replace(tables, instance=tables.instance.model_copy(update=update))
