"""Cases of the heuristic gap study: one config and node order each, its splits and its optimum."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench.fasop import their_space
from formulations.costs.placement import Placer
from formulations.costs.plan_costs import split_costs
from formulations.costs.tables import CostTables
from formulations.decisions import even_shares
from formulations.instance import Instance
from formulations.plan import Configuration
from formulations.space import configs
from solver.enumeration.engine import solve_split
from solver.graph.placements import fixed_order, replica_classes
from solver.graph.problem import INFINITY, Array, Intervals, SplitProblem
from solver.heuristics.balance import Split, SplitSpace
from solver.heuristics.baselines import minmax_of
from solver.heuristics.node_orders import ORDER_LIMIT, node_orders
from solver.heuristics.time_tables import TimeTables
from solver.search.enumeration import lacks_memory
from solver.simulate import step_time_ns


def stage_times(problem: SplitProblem) -> Array:
    """[p, n, n] forward + backward of one micro-batch on the slowest replica, one node order.

    INFINITY for layers that the stage may not hold.
    """
    work = problem.forward + problem.backward
    rows = [
        np.where(stage.allowed[0], work[stage.column[0]].max(axis=0), INFINITY)
        for stage in problem.stages
    ]
    return np.stack(rows)


def exact_minmax(problem: SplitProblem) -> tuple[Split, int] | None:
    """A split whose largest stage time is least, and that time; None if no split is allowed.

    Among those, one of the least sum of stage times. Two dynamic programs over (stage, layer),
    O(p L^2): the least largest time, then the least sum of stages that keep to it.
    """
    times = stage_times(problem)
    p, size = times.shape[0], times.shape[-1]
    worst = np.full(size, INFINITY)
    worst[-1] = 0
    for k in range(p - 1, -1, -1):
        worst = np.maximum(times[k], worst[None, :]).min(axis=1)
    limit = int(worst[0])
    if limit >= INFINITY:
        return None
    kept = np.where(times <= limit, times, INFINITY)
    total = np.full(size, INFINITY)
    total[-1] = 0
    choice = np.zeros((p, size), dtype=np.int64)
    for k in range(p - 1, -1, -1):
        sums = kept[k] + total[None, :]
        choice[k] = sums.argmin(axis=1)
        total = np.minimum(sums.min(axis=1), INFINITY)
    split = [0]
    for k in range(p):
        split.append(int(choice[k, split[-1]]))
    return tuple(split), limit


@dataclass(frozen=True)
class Case:
    """One configuration and order, all times in ns.

    optimum_ns: least simulated step time found, optimal if `bound_ns` equals it. minmax_ns,
    exact_ns: simulated step times of the min-max split as intended and of the exact one.
    minmax_stage_ns, exact_stage_ns: their largest stage times.
    """

    instance: str
    config: Configuration
    order: tuple[int, ...]
    optimum_ns: int
    bound_ns: int
    minmax_ns: int
    exact_ns: int
    minmax_stage_ns: int
    exact_stage_ns: int


class ConfigStudy:
    """All orders of one configuration; micro-batches are shared evenly."""

    def __init__(self, tables: CostTables) -> None:
        self.tables, self.placer, self.intervals = tables, Placer(tables), Intervals(tables)
        self.shares = even_shares(tables)

    def step_ns(self, order: tuple[int, ...], split: Split) -> int:
        """Simulated step time."""
        costs = split_costs(self.tables, self.placer.costs(order), split, self.shares)
        return step_time_ns(costs)

    def problem(self, order: tuple[int, ...]) -> SplitProblem:
        """The split problem of one order."""
        placement = self.placer.costs(order)
        classes = replica_classes(placement, self.tables.config.dp)
        shares = [self.shares[one.replicas[0]] for one in classes]
        return fixed_order(self.intervals, placement, classes, shares)

    def optimum(
        self, order: tuple[int, ...], problem: SplitProblem, known_ns: int, limit_s: float
    ) -> tuple[int, int]:
        """Least step time of any split, where one takes `known_ns`, and its proved bound, ns.

        The engine's split is judged once more by the simulator.
        """
        end_s = time.perf_counter() + limit_s
        found = solve_split(problem, known_ns, stop=lambda: time.perf_counter() > end_s)
        if found.split is None:
            return known_ns, min(found.bound_ns, known_ns)
        judged = self.step_ns(order, tuple(found.split.tolist()))
        if judged != found.step_time_ns:
            raise RuntimeError(f"engine says {found.step_time_ns}, simulator {judged} ns")
        return judged, min(found.bound_ns, judged)

    def case(self, name: str, order: tuple[int, ...], limit_s: float) -> Case | None:
        """The case of one order; None if no split fits memory."""
        stages = SplitSpace(self.tables).balance(order, self.shares)
        problem = self.problem(order)
        split, exact = minmax_of(stages), exact_minmax(problem)
        if split is None or exact is None:
            return None
        minmax_ns, exact_ns = self.step_ns(order, split), self.step_ns(order, exact[0])
        best_ns, bound_ns = self.optimum(order, problem, min(minmax_ns, exact_ns), limit_s)
        return Case(
            instance=name,
            config=self.tables.config,
            order=order,
            optimum_ns=best_ns,
            bound_ns=bound_ns,
            minmax_ns=minmax_ns,
            exact_ns=exact_ns,
            minmax_stage_ns=max(stages.times_ns(split)),
            exact_stage_ns=exact[1],
        )


def cases(name: str, instance: Instance, limit_s: float) -> Iterator[Case]:
    """Every configuration with two stages or more, and order, of FASOP's plan space of an instance.

    Orders as the heuristics try them: all up to 64, beyond that the structured ones.
    """
    narrow = their_space(instance)
    times = TimeTables(narrow)
    for config in configs(narrow):
        tables = times.costs(config)
        if (
            config.pp == 1
            or tables.num_micro_batches % config.dp
            or lacks_memory(Intervals(tables))
        ):
            continue
        study = ConfigStudy(tables)
        for order in node_orders(config.nodes_used, ORDER_LIMIT):
            found = study.case(name, order, limit_s)
            if found is not None:
                yield found
