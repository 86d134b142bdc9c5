"""Node orders, and the best plan of a rule that splits the layers of each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import factorial, inf, prod

import numpy as np

from formulations.decisions import Decisions
from formulations.instance import Instance
from formulations.plan import Configuration, Plan
from formulations.schedules.registry import SCHEDULES
from solver.heuristics.balance import Balance, Order, Shares, Split, SplitSpace
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import Stop
from solver.result import longest_step_ns, objective_weight
from solver.simulate import step_time_ns


def count_orders(nodes_used: Sequence[int]) -> int:
    """Number of distinct orders of `nodes_used[j]` equal nodes of every group j."""
    return factorial(sum(nodes_used)) // prod(factorial(count) for count in nodes_used)


def listed_order(nodes_used: Sequence[int]) -> Order:
    """The nodes used, group by group: `nodes_used[j]` of every group j."""
    return tuple(j for j, count in enumerate(nodes_used) for _ in range(count))


def _following(order: list[int]) -> bool:
    """Whether there is a lexicographic successor; `order` becomes it (Knuth, TAOCP 7.2.1.2 L)."""
    pivot = len(order) - 2
    while pivot >= 0 and order[pivot] >= order[pivot + 1]:
        pivot -= 1
    if pivot < 0:
        return False
    successor = len(order) - 1
    while order[successor] <= order[pivot]:
        successor -= 1
    order[pivot], order[successor] = order[successor], order[pivot]
    order[pivot + 1 :] = order[:pivot:-1]
    return True


def node_orders(nodes_used: Sequence[int], limit: int) -> Iterator[Order]:
    """Distinct orders of the nodes used, as node-group indices, in lexicographic order.

    All of them if there are at most `limit`. Otherwise those of Hwang et al. (FASOP, HPDC 2024)
    as published, the rotations of the nodes group by group, in both directions, and every group
    first or last before or after the others: at most 2 nodes + 4 groups.
    """
    listed = listed_order(nodes_used)
    if count_orders(nodes_used) > limit:
        both_ways = (listed, listed[::-1])
        orders = {order[i:] + order[:i] for order in both_ways for i in range(len(order))}
        for chosen in set(listed):
            of_group = tuple(j for j in listed if j == chosen)
            rest = tuple(j for j in listed if j != chosen)
            for others in (rest, rest[::-1]):
                orders |= {of_group + others, others + of_group}
        yield from sorted(orders)
        return
    following = list(listed)
    yield listed
    while _following(following):
        yield tuple(following)


def nearest_split(target: Split, ends: Callable[[int, int], range]) -> Split | None:
    """The split closest to `target`, boundary by boundary from the left; None iff there is none.

    `ends(k, start)`: all allowed ends of stage k. Depth first, every dead end (stage, start)
    visited once.
    """
    layers = target[-1]
    dead: set[tuple[int, int]] = set()

    def rest(k: int, start: int) -> Split | None:
        if k == len(target) - 1:
            return () if start == layers else None
        if (k, start) in dead:
            return None
        for end in sorted(ends(k, start), key=lambda end: (abs(end - target[k + 1]), end)):
            following = rest(k + 1, end)
            if following is not None:
                return (end, *following)
        dead.add((k, start))
        return None

    boundaries = rest(0, 0)
    return boundaries and (0, *boundaries)


def compute_bound_ns(costs: Balance, split: Split) -> int:
    """Lower bound of the step time of a split, transfers and everything after them left out.

    The work of a stage, for any schedule. Where backwards are whole also: stage i of replica r
    starts no earlier than the forwards of one micro-batch on the stages before it, then works on m
    micro-batches, and its last backward is followed by that micro-batch's backwards on the stages
    before it: their sum is the longest path at least.
    """
    rows = zip(costs.groups.tolist(), costs.kind_times_ns(split), strict=True)
    times = np.array(
        [[of_kind[j, m] for j, m in zip(row, costs.shares, strict=True)] for row, of_kind in rows]
    )
    keeps_backwards = not SCHEDULES[costs.space.tables.config.schedule].splits_backward
    before = (np.cumsum(times, axis=0) - times) * keeps_backwards
    return int((before + times * np.array(costs.shares)).max())


#: Splits the layers, or finds that they do not fit: None.
SplitRule = Callable[[Balance], Split | None]

#: More distinct orders than these are not all tried.
ORDER_LIMIT = 64


class Choice:
    """The best decisions with an objective below another's; see `solver.result.Result`."""

    def __init__(self, instance: Instance, below: float = inf) -> None:
        self.instance = instance
        self.best: tuple[SplitSpace, Decisions] | None = None
        self.time_ns = 0
        self.objective = below

    def hopeless(self, config: Configuration, bound_ns: int) -> bool:
        """Whether no plan of the configuration with at least this step time is better."""
        return bound_ns * objective_weight(self.instance, config) >= self.objective

    def offer(self, space: SplitSpace, order: Order, split: Split, shares: Shares) -> None:
        """Keeps a plan of a configuration if it is better and within the limits."""
        config, time_ns = space.tables.config, step_time_ns(space.costs(order, split, shares))
        limit = longest_step_ns(self.instance, config.nodes_used)
        if not self.hopeless(config, time_ns) and (limit is None or time_ns <= limit):
            self.best, self.time_ns = (space, Decisions(order, split, shares)), time_ns
            self.objective = time_ns * objective_weight(self.instance, config)

    @property
    def result(self) -> tuple[Plan, int] | None:
        """Plan and step time in ns; None without a plan."""
        if self.best is None:
            return None
        space, decisions = self.best
        return decisions.plan(space.tables), self.time_ns


def try_orders(choice: Choice, space: SplitSpace, rule: SplitRule, orders: Iterable[Order]) -> None:
    """Offers the split that `rule` finds for every order of a config with one chunk per device."""
    config = space.tables.config
    for order in orders if config.vpp == 1 else ():
        if not space.runs(order):
            continue
        stages = space.balance(order)
        split = rule(stages)
        if split and not choice.hopeless(config, compute_bound_ns(stages, split)):
            choice.offer(space, order, split, space.even)


def best_plan(
    instance: Instance,
    configs: Iterable[Configuration],
    rule: SplitRule,
    stop: Stop = lambda: False,
) -> tuple[Plan, int] | None:
    """Best plan by simulated step time, or money, over all configs and `node_orders`; and its ns.

    Configurations are visited by their closed-form bound, so that the first ones are good and those
    whose bound is no better than the best plan are left out; no plan is lost by that. Ends early,
    with the best plan so far, when `stop()` becomes true between two configurations. None: nothing
    fits.
    """
    times = TimeTables(instance)
    choice = Choice(instance)
    for bound, config in times.by_bound(configs):
        if bound >= choice.objective or stop():
            break
        orders = node_orders(config.nodes_used, ORDER_LIMIT)
        try_orders(choice, SplitSpace(times.costs(config)), rule, orders)
    return choice.result
