"""Best plans by trying every plan; what verifier, engines and cut loop make of them."""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import ALL_FREE, Decisions, Given, decisions_of
from formulations.instance import Instance, Limits
from formulations.plan import Configuration, Plan
from formulations.space import PlanSpace, configs
from solver.interrupt import Deadline
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.result import Result, longest_step_ns, objective_weight
from solver.search.critical_path import CutLoop, Found, ModelEngine
from solver.search.paths import CutPool, OpenConfig
from solver.simulate import step_time_ns
from solver.verify import refutation, verify_document
from solver.verify.bounds import ANY_TIME_NS, Prover
from solver.verify.exhaust import exhaust
from solver.verify.orders import OrderGraph
from solver.verify.refutation import Refutation
from tests import brute_force
from tests.brute_force import optimum_ns
from tests.conftest import present
from tests.random_configs import random_optimum_ns, random_tables


def optima_ns(instance: Instance) -> dict[Configuration, int]:
    known = {config: optimum_ns(build_tables(instance, config)) for config in configs(instance)}
    return {config: ns for config, ns in known.items() if ns is not None}


def all_tables(instances: Iterable[Instance]) -> Iterator[CostTables]:
    for instance in instances:
        yield from (build_tables(instance, config) for config in configs(instance))


def least_objective(instance: Instance) -> float | None:
    """Of what the instance minimises."""
    known = optima_ns(instance).items()
    return min((ns * objective_weight(instance, config) for config, ns in known), default=None)


def check_verified(result: Result, options: SolveOptions | None = None) -> None:
    found = verify_document(build_document(result, options or SolveOptions()))
    assert not found.problems


def check_space(instance: Instance) -> None:
    """The plan space lists its configurations once each, and takes each for one of its own."""
    listed = Counter(configs(instance))
    assert set(listed.values()) <= {1}
    assert not any(PlanSpace(instance).departure(config) for config in listed)


def refuted_share(refutes: Callable[[int], bool], best_ns: int) -> int:
    """How much of the best step, in thousandths, no plan is shown to be below; by halving."""
    low, high = 0, 1001
    while high - low > 1:
        middle = (low + high) // 2
        if refutes(best_ns * middle // 1000):
            low = middle
        else:
            high = middle
    return low


def prover_of(tables: CostTables) -> Prover:
    return Prover(PlanSpace(tables.instance))


def question_of(tables: CostTables, below_ns: int = ANY_TIME_NS) -> Refutation:
    """What the verifier asks of all orders of a configuration."""
    prover = prover_of(tables)
    graph = OrderGraph(prover.tables(tables.config))
    return refutation.question_of(prover, tables.config, graph, below_ns, Deadline(None))


def refutes(question: Refutation, below_ns: int) -> bool:
    """Whether paths alone show that no plan of the configuration has a step time below this."""
    return question.remaining(question.everything(below_ns), below_ns) is None


def check_claims(tables: CostTables, best_ns: int | None) -> None:
    """The verifier finds no plan below the best one of a config, and a true one below more."""
    instance, config = tables.instance, tables.config
    prover = prover_of(tables)
    proved = present(
        exhaust(prover, config, ANY_TIME_NS if best_ns is None else best_ns, Deadline(None))
    )
    assert proved.plan is None
    if best_ns is None:
        return
    for claim in (best_ns + 1, 3 * best_ns):
        refuted = present(exhaust(prover, config, claim, Deadline(None)))
        assert refuted.plan is not None
        costs = plan_costs(instance, refuted.plan)
        assert refuted.step_time_ns == step_time_ns(costs)
        assert best_ns <= step_time_ns(costs) < claim
        assert (costs.memory_bytes <= costs.limit_bytes).all()
        shares = sum(replica.micro_batches for replica in refuted.plan.replicas)
        assert shares == tables.num_micro_batches


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
    deque(loop.run(SolveOptions(time_limit_s=time_limit_s), lambda: False), 0)
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
    outcome = solve_config(tables, engine, given=Given(order, split, shares))
    if best is None:
        return outcome.status == "infeasible" and outcome.plan is None
    return (
        outcome.status == "optimal"
        and outcome.plan is not None
        and outcome.step_time_ns == outcome.bound_ns == best
        and judge(tables, decisions_of(tables.instance, outcome.plan)) == best
    )


def limited(tables: CostTables, **limits: float) -> CostTables:
    update = {"limits": Limits.model_validate(limits)}
    return replace(tables, instance=tables.instance.model_copy(update=update))
