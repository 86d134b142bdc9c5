"""The search over configs: cheapest bound first, until no open config can beat the incumbent.

Every configuration gets a closed-form bound; configurations are closed in its order, each by
memory, by that bound or exhaustively, with the incumbent as cutoff. The log says how; the least
bound in it, or the incumbent, is the proved lower bound.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from formulations.instance import Instance
from formulations.plan import Configuration
from formulations.space import configs
from formulations.units import NANOSECONDS_PER_SECOND
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import Deadline
from solver.options import SolveOptions
from solver.result import (
    ConfigRecord,
    Moment,
    Result,
    SearchLog,
    SecondBest,
    Status,
    Termination,
    objective_weight,
    relative_gap,
)
from solver.search.enumeration import ConfigEngine, enumerate_config
from solver.search.fathoming import Answers, Closer, Closing
from solver.search.incumbents import Incumbent, Incumbents
from solver.search.open_list import AT_ONCE, OpenList
from solver.search.paths import CutPool
from solver.search.speculation import closings, crew_of
from solver.study.store import Study

if TYPE_CHECKING:
    from solver.search.by_model import AtOnce

#: How often an engine may ask whether to stop, from one round over the open configurations to the
#: next.
EFFORTS = (100, 1_000, 10_000, None)


@dataclass(frozen=True)
class Progress:
    """State of a search. None: not known yet; gap is relative, as in `solver.result.Result`."""

    configs_closed: int
    configs_total: int
    incumbent_ns: int | None
    bound_ns: int | None
    gap: float | None
    elapsed_s: float
    limit_s: float | None = None

    @property
    def left_s(self) -> float | None:
        """Until the time limit; None without one."""
        return None if self.limit_s is None else max(0.0, self.limit_s - self.elapsed_s)


Report = Callable[[Progress], None]

#: Bounds are noted for the report after times that grow by this factor: seldom enough to be cheap.
NOTED_EVERY = 1.25


class PlanSearch:
    """State of one search, of all plans or of those of some `space` with an objective `below`."""

    def __init__(
        self,
        instance: Instance,
        options: SolveOptions,
        report: Report | None = None,
        times: TimeTables | None = None,
        space: Iterator[Configuration] | None = None,
        below: float = math.inf,
        study: Study | None = None,
    ) -> None:
        self.instance, self.options = instance, options
        self.deadline = Deadline(options.time_limit_s)
        self.times = times or TimeTables(instance)
        self.incumbents = Incumbents(
            instance, options, self.deadline, self.times, Incumbent(objective=below), study=study
        )
        self.crew = crew_of(options) if options.method == "exact" else None
        engine: ConfigEngine = enumerate_config
        if options.method in ("cpsat", "milp"):
            from solver.search.by_model import Collector

            engine = self.collector = Collector()
        self.pool = CutPool()
        self.closer = Closer(instance, options, engine, self.times, Answers(study))
        space = configs(instance, self.deadline.check) if space is None else space
        if report is not None:
            space = self._told(space, report)
        self.open_list, self.report = OpenList(space, self.closer, self.deadline.over), report
        #: when, and bounds of the objective; at first the cheapest of a task
        first = [task.objective for task in self.open_list.tasks[:1]]
        self._bounds = [(self.deadline.elapsed_s, bound) for bound in first]

    def _told(self, space: Iterator[Configuration], report: Report) -> Iterator[Configuration]:
        """The configurations, told of while they are listed, which may take a minute."""
        limit_s = self.deadline.limit_s
        for number, config in enumerate(space):
            if number % AT_ONCE == 0:
                report(Progress(0, number, None, None, None, self.deadline.elapsed_s, limit_s))
            yield config

    @property
    def space(self) -> list[Configuration]:
        """All configurations."""
        return [task.config for task in self.open_list.tasks]

    def recall(self) -> None:
        """The best plan that a study knows, whoever found it."""
        self.incumbents.recall()
        for candidate in self.closer.answers.plans():
            self.incumbents.offer(candidate)

    def first_plans(self, space: Sequence[Configuration], name: str = "") -> None:
        """By heuristics; `name`: which plans of a study belong to the same space."""
        incumbents = self.incumbents
        for search in (incumbents.seed_chunks, incumbents.seed, incumbents.survey):
            incumbents.start(search.__name__ + name, partial(search, space))
            self._tell()

    def close(self) -> None:
        """Closes all configurations that it can; those first whose stages share their degrees.

        So more choice is not for the worse.
        """
        grouped = {config for config in self.space if not config.per_stage}
        if self.options.method == "exact" and len(grouped) < len(self.space):
            self.run(grouped)
            self.climb()
        self.run()

    def run(
        self,
        among: Collection[Configuration] | None = None,
        efforts: Sequence[int | None] = EFFORTS,
    ) -> None:
        """Closes configs, all or some, until none is open or time is up, with more and more effort.

        What resists a round is worth a longer local search.
        """
        exact = self.options.method == "exact"
        for effort in efforts if exact else EFFORTS[-1:]:
            self._round(effort, among)
        if self.options.method not in ("cpsat", "milp"):
            return
        # By one model, all that is left.
        from solver.search.by_model import AtOnce

        records, tables = self.open_list.records, self.collector.tables
        bounds_ns = [records[costs.plan_config].bound_ns or 0 for costs in tables]
        model = AtOnce(
            self.options.method, self.closer, tables, bounds_ns, self.incumbents.known, self.pool
        )
        options = replace(self.options, time_limit_s=self.deadline.left_s)
        try:
            for _ in model.rounds(options, self.deadline.over):
                self._take_from(model)
        finally:
            self._take_from(model)

    def climb(self) -> None:
        """Closes configs per stage near the incumbent's, as long as that finds a better plan."""
        before, plan = None, self.incumbents.known.plan
        while plan is not None and plan != before:
            # Two stages more or less, up to twice the sequences.
            best, near = plan.config, set[Configuration]()
            in_best = best.dp * best.micro_batch
            for config in self.space:
                sequences = config.dp * config.micro_batch
                alike = config.nodes_used == best.nodes_used and abs(config.pp - best.pp) <= 2
                if config.per_stage and alike and in_best <= 2 * sequences <= 4 * in_best:
                    near.add(config)
            self._round(EFFORTS[0], near)
            before, plan = plan, self.incumbents.known.plan

    def _round(self, effort: int | None, among: Collection[Configuration] | None) -> None:
        """Looks at all open configurations, or those of some, with so much effort each."""
        stop, incumbents, open_list = self.deadline.over, self.incumbents, self.open_list
        if stop():
            return
        late = self.options.method == "exact" and effort not in EFFORTS[:2]
        if late and open_list.open(incumbents.best, effort):
            # longer searches for plans, as long as what has been spent so far allows
            space = [config for config in self.space if among is None or config in among]
            name = f"{effort} of {len(space)}"
            patience = min(effort or EFFORTS[-2], incumbents.asked)
            incumbents.start(f"seed {name}", partial(incumbents.seed, space, patience))
            if incumbents.cut:
                incumbents.start(f"survey {name}", partial(incumbents.survey, space))
        tasks = open_list.open(incumbents.best, effort)
        tasks = [task for task in tasks if among is None or task.config in among]
        tasks = open_list.unpacked(tasks, incumbents.best, stop)
        for closing in closings(self.closer, tasks, lambda: incumbents.best, self.crew, stop):
            self._take(closing)
            if closing.record.reason == "open":
                incumbents.asked += effort or 0
            self._tell()

    def _take(self, closing: Closing) -> None:
        """The plan before the record, which may say that nothing is better."""
        self.incumbents.offer(closing.found)
        self.open_list.records[closing.record.config] = closing.record

    def _take_from(self, model: "AtOnce") -> None:
        """What a model says of its configurations so far."""
        for closing in model.closings():
            self._take(closing)
        self._tell()

    def _tell(self) -> None:
        """Reports the state of the search, and notes its bound from time to time."""
        elapsed_s, incumbents = self.deadline.elapsed_s, self.incumbents
        noted_s = self._bounds[-1][0] if self._bounds else 0.0
        if self.report is None and elapsed_s < NOTED_EVERY * noted_s:
            return
        proved = self.open_list.least_bound(incumbents.best)
        bound = incumbents.known.objective if proved is None else proved
        if elapsed_s >= NOTED_EVERY * noted_s:
            self._bounds.append((elapsed_s, bound))
        if self.report is not None:
            records = self.open_list.records.values()
            minimize = self.instance.objective.minimize
            by_time = minimize == "step_time" and bound < math.inf  # else there may be no plan
            self.report(
                Progress(
                    configs_closed=sum(record.reason != "open" for record in records),
                    configs_total=len(self.open_list.tasks),
                    incumbent_ns=incumbents.known.step_time_ns,
                    bound_ns=int(bound) if by_time else None,
                    gap=relative_gap(incumbents.best, bound),
                    elapsed_s=elapsed_s,
                    limit_s=self.deadline.limit_s,
                )
            )

    def _moments(self, best: float | None, bound: float | None) -> tuple[Moment, ...]:
        """Incumbents and bounds in order of time; bounds as shares of the best plan's objective."""
        if not best:
            return ()
        last = [] if bound is None else [(self.deadline.elapsed_s, bound)]
        noted = [*self._bounds, *last]
        shares = [Moment(elapsed_s=at_s, bound=min(1.0, value / best)) for at_s, value in noted]
        history = [*self.incumbents.history, *shares]
        return tuple(sorted(history, key=lambda moment: moment.elapsed_s))

    def second_best(
        self, records: Sequence[ConfigRecord], objective: float | None
    ) -> SecondBest | None:
        """What is known of all configurations but that of the incumbent, of this objective."""
        best = self.incumbents.known.plan
        if best is None or not objective:
            return None
        seen, config = dict(self.incumbents.seen), None
        seen.pop(best.config, None)
        others = [record for record in records if record.config != best.config]
        bounds = [*self.open_list.bounds(others), *seen.values()]
        if not bounds:
            return None
        step_s = behind = None
        if seen:
            config = min(seen, key=seen.__getitem__)
            weight = objective_weight(self.instance, config)
            step_s = seen[config] / weight / NANOSECONDS_PER_SECOND if weight else None
            behind = seen[config] / objective - 1
        complete = self.open_list.complete
        return SecondBest(
            config=config,
            step_time_s=step_s,
            behind=behind,
            at_least=max(0.0, min(bounds) / objective - 1) if complete else None,
        )

    def result(self, termination: Termination) -> Result:
        """What is known now: the outcome where nothing is open, and of a search that was ended."""
        known, best, open_list = self.incumbents.known, self.incumbents.best, self.open_list
        records, objective, bound = open_list.reviewed(best), None, None
        if known.plan is not None:
            objective = known.objective
        if open_list.complete:
            objectives = open_list.bounds(records) + ([] if objective is None else [objective])
            bound = min(objectives, default=None)
        if open_list.complete and all(record.reason != "open" for record in records):
            termination = Termination.CLOSED
            status = Status.INFEASIBLE if objective is None else Status.OPTIMAL
        else:  # a better plan is possible
            status = Status.UNKNOWN if objective is None else Status.FEASIBLE
            if termination is Termination.TIME_LIMIT and not self.deadline.over():
                termination = Termination.UNFINISHED
        stated = (self.closer.stated(record, best, bound) for record in records)
        return Result(
            instance=self.instance,
            status=status,
            termination=termination,
            plan=known.plan,
            step_time_ns=known.step_time_ns,
            objective=objective,
            bound=bound,
            runtime_s=self.deadline.elapsed_s,
            log=SearchLog(tuple(stated), self._moments(objective, bound)),
            method=self.options.method,
            requested_gap=self.options.gap,
            second_best=self.second_best(records, objective),
        )
