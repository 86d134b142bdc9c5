"""Plans by local search on the simulated step time, over configs, node orders, splits and shares.

Many starts: every configuration, by a bound of its step time, with the nodes of each group side by
side; then the most promising configurations with these orders turned; then node orders near the
best ones. Which orders are tried depends on the seed alone, how many on the time.
"""

from bisect import insort
from collections.abc import Iterable, Iterator
from itertools import chain, takewhile
from math import inf
from random import Random
from typing import NamedTuple

from formulations.instance.search import Chunking
from formulations.plan import Configuration, Plan
from solver.heuristics.balance import Order
from solver.heuristics.config_search import (
    LONGEST_NS,
    TURNS,
    ConfigSearch,
    State,
    turned_orders,
)
from solver.heuristics.node_orders import Choice
from solver.heuristics.time_tables import TimeTables
from solver.heuristics.trial import PathPool
from solver.interrupt import Stop
from solver.result import longest_step_ns, objective_weight

#: Configurations whose bounds are refined before the first start.
PACKED = 32
#: States kept, at most so many of one configuration.
STATES_KEPT = 24
OF_ONE_SHAPE = 6
#: Configurations are surveyed while a bound leaves this part of the best objective; ends after so
#: many without a better plan.
ROOM = 0.15
SURVEYED = 100
#: Configurations whose orders are turned.
SHAPES_TURNED = 4
#: Orders tried in a row without success before a state is left, round by round; the worse half of
#: the states is dropped after each.
PATIENCE = (30, 100, 300, 1000)


class _Entry(NamedTuple):
    """A state with the search that it belongs to."""

    objective: float
    search: ConfigSearch
    state: State


class _LocalSearch:
    """The best plan so far, and states that may lead to better ones."""

    def __init__(self, times: TimeTables, seed: int, stop: Stop, below: float) -> None:
        self.times, self.instance, self.stop = times, times.instance, stop
        self.random = Random(seed)
        self.choice = Choice(self.instance, below)
        self.pools: dict[tuple[str, int, Chunking], PathPool] = {}
        self.entries: list[_Entry] = []

    def most_ns(self, config: Configuration) -> int:
        """Step times of the configuration from here on are of no interest."""
        weight = objective_weight(self.instance, config)
        limit = longest_step_ns(self.instance, config.nodes_used)
        better = self.choice.objective / weight if weight else inf
        return int(min(better, inf if limit is None else limit + 1, LONGEST_NS))

    def offer(self, search: ConfigSearch, state: State) -> None:
        """The plan of a state is the best so far if it is."""
        if state.step_time_ns < self.most_ns(search.config):
            self.choice.offer(search.space, state.order, state.split, state.shares)

    def keep(self, search: ConfigSearch, state: State) -> None:
        """Offers a state, and keeps it if it is new and among the best."""
        self.offer(search, state)
        if any(entry.search is search and entry.state == state for entry in self.entries):
            return
        objective = state.step_time_ns * objective_weight(self.instance, search.config)
        entry = _Entry(objective, search, state)
        insort(self.entries, entry, key=lambda entry: entry.objective)
        of_config = [entry for entry in self.entries if entry.search is search]
        if len(of_config) > OF_ONE_SHAPE:
            self.entries.remove(of_config[-1])
        del self.entries[STATES_KEPT:]

    def search(self, config: Configuration) -> ConfigSearch:
        """The search within a configuration."""
        pool = self.pools.setdefault((config.schedule, config.pp, config.chunking), PathPool())
        return ConfigSearch(self.times.costs(config), pool)

    def starts(self, configs: Iterable[Configuration]) -> Iterator[None]:
        """The groups of nodes side by side, for every config; the best order of each is kept."""
        waiting = self.ranked(configs)[::-1]
        while waiting:
            best = self.choice.objective
            bound, config = waiting.pop()
            if bound >= best:
                return
            search = self.search(config)
            for state in self.started(search, search.first_orders)[:1]:
                self.keep(search, state)
            if self.choice.objective < best:
                waiting = self.hopeful(waiting)
            yield

    def ranked(self, configs: Iterable[Configuration]) -> list[tuple[float, Configuration]]:
        """Bounds of the objective with configs, the least first; the first of them by `packing`."""
        by_bound = self.times.by_bound(configs)
        first = [config for _, config in by_bound[:PACKED]]
        pairs = zip(self.times.packed_ns(first), first, strict=True)
        packed = [(ns * objective_weight(self.instance, config), config) for ns, config in pairs]
        return sorted([*packed, *by_bound[PACKED:]], key=lambda entry: entry[0])

    def hopeful(
        self, ranked: list[tuple[float, Configuration]]
    ) -> list[tuple[float, Configuration]]:
        """Configs that these and whole blocks leave a better plan, with bounds of the objective."""
        near = [entry for entry in ranked if entry[0] < self.choice.objective]
        configs = [config for _, config in near]
        closed = self.times.refuted(configs, [self.most_ns(config) for config in configs])
        return [entry for entry, shut in zip(near, closed, strict=True) if not shut]

    def started(self, search: ConfigSearch, orders: Iterable[Order]) -> list[State]:
        """A start with each order that has one, the fastest first."""
        states = list[State]()
        for order in takewhile(lambda _: not self.stop(), orders):
            state = search.start(order, self.most_ns(search.config))
            states += [] if state is None else [state]
        return sorted(states, key=lambda state: state.step_time_ns)

    def turns(self) -> Iterator[None]:
        """The orders of the best configs begun at other nodes; local optima of the best of them."""
        searches = list(dict.fromkeys(entry.search for entry in self.entries))[:SHAPES_TURNED]
        for search in searches:
            orders = turned_orders(search.config.nodes_used, search.nodes_per_stage, TURNS)
            for state in self.started(search, orders)[:OF_ONE_SHAPE]:
                self.keep(search, search.descend(state, self.stop))
                yield

    def improve(self, patience: int) -> Iterator[None]:
        """Every state kept, as far as the patience goes."""
        entries, self.entries = self.entries, []
        for entry in entries:
            state = entry.state
            for better in entry.search.improvements(state, self.random, patience, self.stop):
                state = better
                self.offer(entry.search, state)
                yield
            self.keep(entry.search, state)
        del self.entries[(len(entries) + 1) // 2 :]


def local_plans(
    configs: Iterable[Configuration],
    times: TimeTables,
    seed: int,
    stop: Stop = lambda: False,
    below: float = inf,
) -> Iterator[tuple[Plan, int]]:
    """Ever better plans with their step times in ns, each as soon as it is found.

    Of plans with an objective `below` some other's, that fit memory and limits. Ends by itself, or
    soon after `stop()` becomes true.
    """
    search, best = _LocalSearch(times, seed, stop, below), None
    # everything in turn, in steps of less than a second as a rule
    for _ in chain(search.starts(configs), search.turns(), *map(search.improve, PATIENCE)):
        if search.choice.best is not best:
            best, result = search.choice.best, search.choice.result
            if result is not None:
                yield result
        if stop():
            return


def surveyed_plan(
    configs: Iterable[Configuration], times: TimeTables, below: float, stop: Stop = lambda: False
) -> tuple[Plan, int] | None:
    """The best plan of a survey with an objective `below` some other's; None if there is none.

    A start and a descent for every config that its bound leaves room for a much better plan: such
    bounds do not tell which configurations are good.
    """
    local, failures = _LocalSearch(times, 0, stop, below), 0
    for bound, config in local.ranked(configs):
        best = local.choice.objective
        if bound >= (1 - ROOM) * best or failures == SURVEYED or stop():
            break
        search = local.search(config)
        for state in local.started(search, search.first_orders)[:1]:
            local.offer(search, search.descend(state, stop))
        failures = 0 if local.choice.objective < best else failures + 1
    return local.choice.result
