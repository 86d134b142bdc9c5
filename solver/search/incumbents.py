"""The best plan so far, and the local searches that it comes from."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from formulations.instance import Instance
from formulations.plan import Configuration, Plan
from formulations.units import NANOSECONDS_PER_SECOND
from solver.heuristics.baselines import equal_chunks_plan, equal_split_of, megatron_rule, minmax_of
from solver.heuristics.local import local_plans, surveyed_plan
from solver.heuristics.node_orders import best_plan, count_orders
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import Deadline
from solver.options import SolveOptions
from solver.result import Moment, longest_step_ns, objective_weight
from solver.search.enumeration import ORDER_LIMIT
from solver.search.fathoming import check_plan
from solver.study.store import Shelf, Study

#: Patience of the first local search: where all node orders are looked at in one graph, where they
#: are looked at one by one (uneven shares), and where there are too many. A better plan saves more
#: and more.
PATIENCE, PATIENCE_ONE_BY_ONE, PATIENCE_MANY = 6, 50, 200
#: Part of the time limit that a survey may take, and how often it may ask at least.
SURVEY = 0.3
LEAST_SURVEY = 200
_PLANS = TypeAdapter[tuple[Plan, int] | None](tuple[Plan, int] | None)


@dataclass(frozen=True)
class Incumbent:
    """The best plan so far: set at once, as Ctrl-C may come at any moment.

    Without a plan: an objective that plans have to be below.
    """

    plan: Plan | None = None
    step_time_ns: int | None = None
    objective: float = math.inf

    @property
    def found(self) -> tuple[Plan, int] | None:
        """The plan with its step time in ns, if there is one."""
        if self.plan is None or self.step_time_ns is None:
            return None
        return self.plan, self.step_time_ns


@dataclass
class Incumbents:
    """known: the best plan so far. history: when it was found, and those before.

    seen: the least objective of each configuration's plans so far. asked: how often searches have
    asked whether to stop, a measure of effort that is the same in every run. cut: whether the last
    survey was stopped.
    """

    instance: Instance
    options: SolveOptions
    deadline: Deadline
    times: TimeTables
    known: Incumbent = field(default_factory=Incumbent)
    history: list[Moment] = field(default_factory=list)
    study: Study | None = None
    seen: dict[Configuration, float] = field(default_factory=dict)
    asked: int = 0
    cut: bool = False

    @property
    def _starts(self) -> Shelf[tuple[Plan, int] | None]:
        """The plans that searches for first plans ended with."""
        return Shelf(self.study, "start", _PLANS)

    def start(self, name: str, search: Callable[[], None]) -> None:
        """A search for plans, or, where a study knows it, the plan that it ended with.

        It is kept unless the time limit may have cut it short.
        """
        limits = self.instance.limits.model_dump(mode="json")
        asked = {"before": self.best, "seed": self.options.seed, "limits": limits}
        if kept := self._starts.find(name, asked):
            self._offer_kept(kept)
            return
        search()
        limit = self.options.time_limit_s
        if limit is None or self.deadline.elapsed_s < SURVEY * limit:
            self._starts.keep(name, asked, self.known.found)

    def recall(self) -> None:
        """All that searches ended with that a study knows."""
        self._offer_kept(self._starts.every())

    def _offer_kept(self, plans: Iterable[tuple[Plan, int] | None]) -> None:
        """Plans of a study; StudyError if they are not what was kept."""
        for kept in plans:
            if kept is not None:
                check_plan(self._starts, *kept)
            self.offer(kept)

    @property
    def best(self) -> float | None:
        """Objective that plans have to be below, of the incumbent as a rule."""
        return None if self.known.objective == math.inf else self.known.objective

    def offer(self, found: tuple[Plan, int] | None) -> None:
        """Keeps a plan, with its step time in ns, within the limits and before the incumbent."""
        if found is None:
            return
        longest_ns = longest_step_ns(self.instance, found[0].config.nodes_used)
        if longest_ns is not None and found[1] > longest_ns:
            return
        objective = found[1] * objective_weight(self.instance, found[0].config)
        self.seen[found[0].config] = min(objective, self.seen.get(found[0].config, math.inf))
        if objective < self.known.objective:
            self.known = Incumbent(*found, objective)
            step_s = found[1] / NANOSECONDS_PER_SECOND
            self.history.append(Moment(elapsed_s=self.deadline.elapsed_s, step_time_s=step_s))

    def seed(self, space: Sequence[Configuration], patience: int | None = None) -> None:
        """Of a local search for each schedule.

        It may ask whether to stop ten times `patience` times for its first plan, and `patience`
        times for each better one.
        """
        if patience is None:
            nodes = max((config.nodes_used for config in space), key=sum, default=())
            uneven = self.instance.search.micro_batches == "uneven"
            patience = PATIENCE_ONE_BY_ONE if uneven else PATIENCE
            patience = PATIENCE_MANY if count_orders(nodes) > ORDER_LIMIT else patience

        def stop() -> bool:
            self.asked += 1
            return next(asks, None) is None or self.deadline.over()

        for schedule in dict.fromkeys(self.instance.search.schedule):
            alike = [config for config in space if config.schedule == schedule]
            below = self.known.objective if self.known.plan is None else math.inf
            asks = iter(range(10 * patience))
            for plan in local_plans(alike, self.times, self.options.seed, stop, below):
                self.offer(plan)
                asks = iter(range(patience))

    def seed_chunks(self, space: Sequence[Configuration]) -> None:
        """With equal chunks, which a local search with little patience may miss."""
        self.offer(equal_chunks_plan(space, self.times, self.deadline.over))

    def survey(self, space: Sequence[Configuration]) -> None:
        """Incumbents from all configurations, if bounds leave room for much better plans.

        It may ask whether to stop as often as all before it, in its part of the time limit.
        """
        limit = self.options.time_limit_s
        until_s = None if limit is None else self.deadline.elapsed_s + SURVEY * limit
        questions = iter(range(max(LEAST_SURVEY, self.asked)))

        def stop() -> bool:
            self.asked += 1
            late = until_s is not None and self.deadline.elapsed_s >= until_s
            self.cut = late or next(questions, None) is None
            return self.cut

        below = self.known.objective
        self.offer(surveyed_plan(space, self.times, below, stop))

    def baselines(self, space: Sequence[Configuration]) -> None:
        """Incumbents of the rules that others use, on all configurations."""
        for rule in (minmax_of, equal_split_of):
            self.offer(best_plan(self.instance, space, rule, self.deadline.over))
        self.offer(megatron_rule(self.instance, space))
