"""Exact optimum over open configs with one model: solve, simulate, add critical paths, repeat.

The model knows some paths of the operation graphs, so its optimum is a lower bound of every plan of
the configurations that it holds. Its plan is simulated, and the paths that make the simulated step
time longer than the bound are added, to all configurations that they hold for. A plan met twice
would be valued at its simulated step time, so the loop ends: with the bound equal to the objective
of the best plan simulated, in integers, or with a proof that no plan beats that.

Configurations enter the model as they are needed, in the order of the bounds known of them: no plan
of a configuration that is left out is better than that bound, so the least of the model's bound and
of the bounds left out is a bound of them all, and configurations enter only while one that is left
out has it. Each time as many as there are, so that the model is not solved for every configuration
anew.

Nothing that an engine says of a plan is taken at its word: its decisions are held against the plan
space in integers (`broken_rule`) and simulated. If its solution is no plan, or is faster than the
bound that comes with it, the engine is in trouble: all bounds that it said are dropped and the
configurations stay open. One that counts in floats may propose a plan again whose paths the model
knows, within its tolerances; that plan is excluded.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from formulations.costs.plan_costs import split_costs
from formulations.costs.stage_places import placement_of
from formulations.costs.tables import CostTables
from formulations.decisions import Decisions
from formulations.models.model import Model
from formulations.plan import Configuration
from formulations.space.slots import runs_order, slots_of
from solver.backends.outcome import Outcome
from solver.heuristics.balance import SplitSpace
from solver.interrupt import Deadline, Stop, held_back
from solver.options import SolveOptions
from solver.result import Status, Termination
from solver.search.paths import CutPool, Harvest, HeldConfigs, OpenConfig, harvest

#: Configurations that the model holds at first, if so many are open.
FIRST_SHAPES = 32
#: Gap to which the model is solved while its solutions still bring new paths.
COARSE = 0.02

#: Step times of a configuration that are of no interest, from this one on, with the best objective
#: known.
Beyond = Callable[[Configuration, float | None], int]


Family = Literal["cpsat", "milp"]


@dataclass(frozen=True)
class ModelEngine:
    """A family of models and its engine, whose library is loaded when it is asked for.

    model: an empty model. run: what the engine finds out about a native model. write: writes a
    native model in the format of a file's suffix. counts_whole: in integers. An engine that counts
    in floats may propose plans that the model rules out, which must be left out one by one, and
    may call a model infeasible that has plans.
    """

    model: Callable[[], Model]
    run: Callable[[Any, SolveOptions], Outcome]
    write: Callable[[Any, Path], None]
    counts_whole: bool


def model_engine(family: Family) -> ModelEngine:
    """The engine of a family."""
    with held_back():
        if family == "cpsat":
            from formulations.models.cpsat import CpSat
            from solver.backends import cpsat

            run = partial(cpsat.run, lean=True)
            return ModelEngine(CpSat, run, cpsat.write, counts_whole=True)
        from formulations.models.milp import Milp
        from solver.backends import highs

        return ModelEngine(Milp, highs.run, highs.write, counts_whole=False)


class Trouble(Exception):
    """What an engine says cannot be."""


@dataclass(frozen=True)
class Found:
    """A plan of the open configuration of this index, simulated."""

    index: int
    decisions: Decisions
    step_time_ns: int


def broken_rule(tables: CostTables, decisions: Decisions) -> str | None:
    """The first rule that decisions break, in words; None if they make a plan of the config."""
    by_place, used = tables.by_place, tables.config.nodes_used
    if by_place is not None and slots_of(by_place, decisions.order) is None:
        return f"layout {decisions.order} does not use each GPU once, or cannot be launched"
    if by_place is None and tuple(decisions.order.count(j) for j in range(len(used))) != used:
        return f"node order {decisions.order} does not use each node once"
    if by_place is None and not runs_order(tables.instance, tables.config, decisions.order):
        return f"node order {decisions.order} cannot be launched"
    ends, blocks = decisions.boundaries, tables.blocks_before
    fills = len(ends) == tables.config.num_stages + 1
    fills = fills and (ends[0], ends[-1]) == (0, tables.num_layers)
    if not fills or not all(
        a < b and blocks[b] - blocks[a] >= tables.min_blocks for a, b in pairwise(ends)
    ):
        return f"boundaries {decisions.boundaries} do not make stages of enough blocks"
    shares, even = decisions.micro_batches, tables.instance.search.micro_batches == "even"
    if (
        len(shares) != tables.config.dp
        or min(shares) < 1
        or sum(shares) != tables.num_micro_batches
        or (even and len(set(shares)) > 1)
    ):
        return f"shares {decisions.micro_batches} do not distribute the micro-batches"
    placement = placement_of(tables, decisions.order)
    costs = split_costs(tables, placement, decisions.boundaries, decisions.micro_batches)
    if (costs.memory_bytes > costs.limit_bytes).any():
        return f"boundaries {decisions.boundaries} do not fit in memory"
    return None


class CutLoop:
    """State of one run.

    configurations: what is open. best: the least objective known; found: the plan of an open
    configuration that has it, if there is one. bounds_ns: what is proved of each configuration.
    trouble: what is wrong with the engine's last answer, if that ended it.
    """

    def __init__(
        self,
        engine: ModelEngine,
        configs: Sequence[OpenConfig],
        beyond: Beyond,
        best: float | None = None,
        start: Found | None = None,
        pool: CutPool | None = None,
    ) -> None:
        self.engine, self.configs, self.best = engine, configs, best
        self.bounds_ns = [config.bound_ns for config in configs]
        self.found = start
        self.trouble: str | None = None
        self.rounds = 0
        self._gap = COARSE
        self._beyond = beyond
        self._pool = CutPool() if pool is None else pool
        self.model = HeldConfigs(engine.model(), configs, self._pool)
        self._excluded = set[tuple[int, Decisions]]()
        self._spaces = dict[int, SplitSpace]()
        if start is not None:
            self._simulated(start.index, start.decisions)

    def target_ns(self, index: int) -> int:
        """Step times of at least this are of no interest."""
        return self._beyond(self.configs[index].tables.plan_config, self.best)

    def is_open(self, index: int) -> bool:
        """Whether a configuration may have a plan that is of interest."""
        return self.bounds_ns[index] < self.target_ns(index)

    @property
    def closed(self) -> bool:
        """Whether no plan of interest is left."""
        return not any(map(self.is_open, range(len(self.configs))))

    def _bound(self, index: int) -> int:
        """Lower bound of what the model minimises, for the plans of a configuration."""
        return self.model.weights[index] * self.bounds_ns[index]

    def run(self, options: SolveOptions, stop: Stop) -> Iterator[None]:
        """Rounds until all is closed, `stop` says so, or the engine is in trouble.

        options: of every round; its time limit is taken from the begin of the run.
        """
        deadline = Deadline(options.time_limit_s)
        self._enter()
        while not self.closed and not stop() and not deadline.over():
            try:
                ended = self._round(replace(options, time_limit_s=deadline.left_s))
            except Trouble as trouble:
                self.trouble = f"numerical trouble: {trouble}"
                self.bounds_ns[:] = [config.bound_ns for config in self.configs]
                break
            if not ended:
                break
            self._enter()
            yield

    def _enter(self) -> None:
        """Takes configurations into the model while one that is left out may have the best plan."""
        model = self.model
        others = [i for i in range(len(self.configs)) if i not in model.held]
        others = sorted(filter(self.is_open, others), key=self._bound)
        least_bound = min(map(self._bound, filter(self.is_open, model.held)), default=None)
        if others and (least_bound is None or self._bound(others[0]) < least_bound):
            for index in others[: max(FIRST_SHAPES, len(model.held))]:
                model.hold(index, self.bounds_ns[index], self.target_ns(index))

    def _round(self, options: SolveOptions) -> bool:
        """One solve of the model, one simulation, new cuts; False if the engine was stopped."""
        model = self.model
        if self.found is not None and self.found.index in model.held:
            model.built.hint(model.held.index(self.found.index), self.found.decisions)
        outcome = self.engine.run(model.built.model.native, replace(options, gap=self._gap))
        self.rounds += 1
        if outcome.status is Status.INFEASIBLE:
            self._raise({index: self.target_ns(index) for index in model.held})
            return True
        judged = self._judged(outcome)
        weights = {index: model.weights[index] for index in model.held if model.weights[index]}
        bound = outcome.bound or 0
        self._raise({index: -(-bound // weight) for index, weight in weights.items()})
        if judged is not None:
            self._learn(*judged)
        if outcome.termination is Termination.INTERRUPTED:
            raise KeyboardInterrupt
        return outcome.termination is Termination.CLOSED

    def _raise(self, said_ns: dict[int, int]) -> None:
        """Bounds of configurations in the model, which knows no plans that are of no interest."""
        for index, bound_ns in said_ns.items():
            raised_ns = min(bound_ns, self.target_ns(index))
            if raised_ns > self.bounds_ns[index]:
                self.bounds_ns[index] = raised_ns
                self.model.part(index).raise_step_time(raised_ns)

    def _judged(self, outcome: Outcome) -> tuple[Found, Harvest] | None:
        """The solution as decisions, simulated; None without one. Trouble if it cannot be."""
        if outcome.trouble is not None:
            raise Trouble(outcome.trouble)
        if outcome.values is None:
            return None
        extracted = self.model.built.extract(outcome.values)
        if extracted is None:
            raise Trouble("the solution is fractional, or stands for no decisions")
        index, decisions = self.model.held[extracted[0]], extracted[1]
        if (broken := broken_rule(self.configs[index].tables, decisions)) is not None:
            raise Trouble(f"the solution is no plan: {broken}")
        if (index, decisions) in self._excluded:
            raise Trouble("the solution has been excluded")
        paths = self._simulated(index, decisions)
        step_ns, bound = paths.step_time_ns, outcome.bound
        if bound is not None and bound > self.model.weights[index] * step_ns:
            raise Trouble(f"the solution is faster than the bound: {step_ns} ns, bound {bound}")
        return Found(index, decisions, step_ns), paths

    def _simulated(self, index: int, decisions: Decisions) -> Harvest:
        """A plan; its paths and those of its neighbours are known from now on."""
        tables, shares = self.configs[index].tables, self.model.shares.get(index, ())
        space = self._spaces.setdefault(index, SplitSpace(tables))
        placement = placement_of(tables, decisions.order)
        paths = harvest(space, placement, decisions, shares, self.bounds_ns[index])
        self._pool.of(tables.config).update(paths.cuts)
        return paths

    def _learn(self, plan: Found, paths: Harvest) -> None:
        """Adds the paths of a plan, and the plan itself if it is the best."""
        learned, model = self.model.add_cuts(plan.index, paths.cuts), self.model
        if plan.step_time_ns < self.target_ns(plan.index):
            self.found = plan
            self.best = plan.step_time_ns * self.configs[plan.index].price
            for index in model.held:
                model.part(index).limit_step_time(self.target_ns(index) - 1)
        elif not learned and self._gap:
            self._gap = 0.0
        elif not learned and self.is_open(plan.index):
            # the model's own paths should have ruled the plan out
            if self.engine.counts_whole:
                raise Trouble("the solution has no path that the model does not know")
            self._excluded.add((plan.index, plan.decisions))
            model.part(plan.index).exclude(plan.decisions)
