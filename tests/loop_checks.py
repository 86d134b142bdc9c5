"""What every engine of the cut loop is held against."""

import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from formulations.costs.tables import CostTables
from formulations.decisions import ALL_FREE, Decisions, Given, decisions_of
from formulations.instance import Limits
from formulations.plan import Configuration, Plan
from solver.options import SolveOptions
from solver.result import longest_step_ns
from solver.search.critical_path import CutLoop, Found, ModelEngine
from solver.search.paths import CutPool, OpenConfig
from tests import brute_force
from tests.random_configs import random_optimum_ns, random_tables

Free = Literal["split", "order", "shares", "all"]
FREE: tuple[Free, ...] = ("split", "order", "shares", "all")


@dataclass(frozen=True)
class ConfigOutcome:
    """What the loop knows of its only configuration when it ends.

    status: optimal (plan and proof), feasible (plan, open bound), bounded (no plan below the
    cutoff), infeasible (no plan at all), unknown. bound_ns: proved lower bound of the step time
    of every plan; None if there is none.
    """

    status: str
    plan: Plan | None
    step_time_ns: int | None
    bound_ns: int | None
    rounds: int
    num_cuts: int
    trouble: str | None


def solve_config(
    tables: CostTables,
    engine: ModelEngine,
    *,
    given: Given = ALL_FREE,
    incumbent: Plan | None = None,
    cutoff_ns: int | None = None,
    bound_ns: int = 0,
    time_limit_s: float | None = None,
    seed: int = 0,
    pool: CutPool | None = None,
) -> ConfigOutcome:
    """Best plan of one config by simulated step time, or what is known when time runs out."""
    budget_ns = longest_step_ns(tables.instance, tables.config.nodes_used)

    def beyond(config: Configuration, best: float | None) -> int:
        known = [
            cutoff_ns,
            None if budget_ns is None else budget_ns + 1,
            None if best is None else int(best),
        ]
        return min([1 << 56, *(ns for ns in known if ns is not None)])

    start = None
    if incumbent is not None:
        made = decisions_of(tables.instance, incumbent)
        start = Found(0, made, judge(tables, made) or 0)
    best = None if start is None else float(start.step_time_ns)
    loop = CutLoop(engine, [OpenConfig(tables, 1.0, bound_ns, given)], beyond, best, start, pool)
    deque(loop.run(SolveOptions(time_limit_s=time_limit_s, seed=seed), lambda: False), 0)
    found, nothing = loop.found, cutoff_ns is None and loop.best is None
    if loop.closed:
        status = "optimal" if found else "infeasible" if nothing else "bounded"
    else:
        status = "feasible" if found else "unknown"
    return ConfigOutcome(
        status=status,
        plan=None if found is None else found.decisions.plan(tables),
        step_time_ns=None if found is None else found.step_time_ns,
        bound_ns=None if status == "infeasible" else loop.bounds_ns[0],
        rounds=loop.rounds,
        num_cuts=sum(len(part.cuts) for part in loop.model.built.parts),
        trouble=loop.trouble,
    )


def random_decisions(tables: CostTables, seed: int) -> Decisions:
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


def need_bytes(tables: CostTables, boundaries: Sequence[int], shares: Iterable[int]) -> int:
    """Least memory, alike on all GPUs, with which a split and shares fit."""
    stages = list(enumerate(pairwise(boundaries)))
    return max(brute_force.least_bytes(tables, [own], k, m) for k, own in stages for m in shares)


def feasible(seeds: Iterable[int]) -> list[tuple[CostTables, int]]:
    known = [(random_tables(seed), random_optimum_ns(seed)) for seed in seeds]
    return [(tables, best) for tables, best in known if best is not None]


def agrees(engine: ModelEngine, tables: CostTables, given: Given, expected: int | None) -> bool:
    """Whether the loop ends with this optimum, proved, and a plan of this step time."""
    outcome = solve_config(tables, engine, given=given)
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
    return agrees(engine, tables, Given(order, split, shares), best)


def limited(tables: CostTables, **limits: float) -> CostTables:
    update = {"limits": Limits.model_validate(limits)}
    return replace(tables, instance=tables.instance.model_copy(update=update))
