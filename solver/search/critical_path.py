"""Exact optimum of one shape with a model: solve, simulate, add the critical paths, repeat.

The model knows some paths of the operation graph, so its optimum is a lower bound. Its plan is
simulated, and the paths that make the simulated step time longer than the bound are added. A plan
met twice would be valued at its simulated step time, so the loop ends: with the bound equal to the
simulated step time, both in integers, or with a proof that no plan beats the best one simulated.

Nothing that an engine says of a plan is taken at its word: what a solution stands for is held
against the rules of the plan space in integers, and its step time is the simulated one. An engine
that counts in floats may propose a plan again whose paths the model knows, within its tolerances;
that plan is excluded, as it is judged. If its solution is no plan, or is faster than the bound that
comes with it, the engine is in trouble: what it said last is dropped and the shape stays open.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from formulations.costs.placement import Placer
from formulations.costs.plan_costs import split_costs
from formulations.costs.tables import CostTables
from formulations.decisions import Decisions, decisions_of, even_shares, share_range
from formulations.paths import PathCut
from formulations.plan import Plan
from solver.backends.outcome import Outcome
from solver.options import SolveOptions
from solver.result import Status, Termination, max_step_time_ns
from solver.search.engines import ModelEngine
from solver.search.paths import CutPool, Harvest, first_cuts, harvest
from solver.search.recheck import broken_rule
from solver.simulate import step_time_ns

ShapeStatus = Literal["optimal", "feasible", "infeasible", "bounded", "unknown"]


@dataclass(frozen=True)
class Fixed:
    """The parts of the decisions that are given; None is decided."""

    order: tuple[int, ...] | None = None
    boundaries: tuple[int, ...] | None = None
    micro_batches: tuple[int, ...] | None = None


ALL_FREE = Fixed()


@dataclass(frozen=True)
class ShapeOutcome:
    """What the loop knows of a shape when it ends.

    status: optimal (plan and proof), feasible (plan, open bound), bounded (no plan below the
    cutoff), infeasible (no plan at all), unknown. bound_ns: proved lower bound of the step time
    of every plan; None if there is none. rounds: models solved; num_cuts: paths in the last.
    trouble: what is wrong with the engine's last answer, if that ended the loop.
    """

    status: ShapeStatus
    plan: Plan | None
    step_time_ns: int | None
    bound_ns: int | None
    rounds: int
    num_cuts: int
    runtime_s: float
    trouble: str | None


def largest_share(tables: CostTables, step_time_limit_ns: int) -> int:
    """No replica of a plan within this step time has more micro-batches.

    Proof: the stages of a replica work at least the sum over layers of the fastest group's
    forward + backward time on each micro-batch; the slowest of its p stages works at least 1/p of
    that, on each of its m micro-batches, one after the other.
    """
    used = [j for j, count in enumerate(tables.shape.nodes_used) if count]
    work = int((tables.forward_ns + tables.backward_ns)[:, used].min(axis=1).sum())
    return max(0, step_time_limit_ns) * tables.shape.pp // max(work, 1)


class _Trouble(Exception):
    """What an engine says cannot be."""


class _Loop:
    """State of one run: the model, the best plan simulated, the bound."""

    def __init__(
        self,
        tables: CostTables,
        engine: ModelEngine,
        fixed: Fixed,
        cutoff_ns: int | None,
        incumbent: Decisions | None,
        bound_ns: int,
    ) -> None:
        self.tables = tables
        self.engine = engine
        self.trouble: str | None = None
        self.excluded: set[Decisions] = set()
        self.cutoff_ns = cutoff_ns
        self.best = incumbent
        self.best_ns = None if incumbent is None else self.simulated_ns(incumbent)
        self.bound_ns: int | None = bound_ns
        self.rounds = 0
        self.limit_ns = self._limit_ns()
        most = None if self.limit_ns is None else largest_share(tables, self.limit_ns)
        self.shares = shares_of(tables, fixed, most)
        self.built = engine.build(
            tables, fixed.order, fixed.boundaries, fixed.micro_batches, most, self.limit_ns
        )
        self.built.raise_step_time(bound_ns)

    def _limit_ns(self) -> int | None:
        """Longest step time that is of interest at the start."""
        budget_ns = max_step_time_ns(self.tables.instance, self.tables.shape)
        better_ns = None if self.upper_ns is None else self.upper_ns - 1
        return min((ns for ns in (budget_ns, better_ns) if ns is not None), default=None)

    @property
    def upper_ns(self) -> int | None:
        """Only plans below this are of interest: the cutoff or the best step time."""
        known = [ns for ns in (self.cutoff_ns, self.best_ns) if ns is not None]
        return min(known, default=None)

    @property
    def closed(self) -> bool:
        """Whether no plan of interest is left."""
        if self.bound_ns is None:
            return True
        return self.upper_ns is not None and self.bound_ns >= self.upper_ns

    def simulated_ns(self, decisions: Decisions) -> int:
        """Simulated step time of one plan."""
        placement = Placer(self.tables).costs(decisions.order)
        return step_time_ns(
            split_costs(self.tables, placement, decisions.boundaries, decisions.micro_batches)
        )

    def solve_round(self, options: SolveOptions, pool: set[PathCut]) -> bool:
        """One solve of the model, one simulation, new cuts; False if the engine was stopped."""
        if self.best is not None:
            self.built.hint(self.best)
        outcome = self.engine.run(self.built.model, options)
        self.rounds += 1
        if outcome.status is Status.INFEASIBLE:
            self.bound_ns = self.upper_ns
            return True
        try:
            found = self._judge(outcome)
        except _Trouble as trouble:
            if self.engine.exact:
                raise AssertionError("model and simulator disagree") from trouble
            self.trouble = f"numerical trouble: {trouble}"
            return False
        proved = max(outcome.bound or 0, self.bound_ns or 0)
        self.built.raise_step_time(proved)
        self.bound_ns = proved if self.upper_ns is None else min(proved, self.upper_ns)
        if found is not None:
            self._learn(*found, pool)
        return outcome.termination is Termination.CLOSED

    def _judge(self, outcome: Outcome) -> tuple[Decisions, Harvest] | None:
        """The solution as decisions, simulated; None without one. _Trouble if it cannot be."""
        if outcome.trouble is not None:
            raise _Trouble(outcome.trouble)
        if outcome.values is None:
            return None
        decisions = self.built.extract(outcome.values)
        if decisions is None:
            raise _Trouble("the solution is fractional, or stands for no decisions")
        if (broken := broken_rule(self.tables, decisions)) is not None:
            raise _Trouble(f"the solution is no plan: {broken}")
        if decisions in self.excluded:
            raise _Trouble("the solution has been excluded")
        placement = Placer(self.tables).costs(decisions.order)
        found = harvest(self.built.stages, placement, decisions, self.shares, self.bound_ns or 0)
        if outcome.bound is not None and outcome.bound > found.step_time_ns:
            told = f"{found.step_time_ns} ns, bound {outcome.bound} ns"
            raise _Trouble(f"the solution is faster than the bound: {told}")
        return decisions, found

    def _learn(self, decisions: Decisions, found: Harvest, pool: set[PathCut]) -> None:
        """Adds the paths of a plan, and the plan itself if it is the best."""
        learned = [self.built.add_cut(cut) for cut in found.cuts]
        pool.update(found.cuts)
        of_interest = self.limit_ns is None or found.step_time_ns <= self.limit_ns
        if of_interest and (self.best_ns is None or found.step_time_ns < self.best_ns):
            self.best, self.best_ns = decisions, found.step_time_ns
            self.built.limit_step_time(found.step_time_ns - 1)
        elif not any(learned) and not self.closed:
            self._exclude(decisions)

    def _exclude(self, decisions: Decisions) -> None:
        """Leaves out a plan that the model's own paths should have ruled out."""
        assert self.engine.exclude is not None, "model and simulator disagree: no path is new"
        self.excluded.add(decisions)
        self.engine.exclude(self.built, decisions)

    def outcome(self, runtime_s: float) -> ShapeOutcome:
        """The state in words."""
        return ShapeOutcome(
            status=self._status(),
            plan=None if self.best is None else self.best.plan(self.tables),
            step_time_ns=self.best_ns,
            bound_ns=self.bound_ns,
            rounds=self.rounds,
            num_cuts=len(self.built.cuts),
            runtime_s=runtime_s,
            trouble=self.trouble,
        )

    def _status(self) -> ShapeStatus:
        if self.bound_ns is None:
            return "infeasible"
        if self.closed:
            return "optimal" if self.upper_ns == self.best_ns else "bounded"
        return "unknown" if self.best is None else "feasible"


def shares_of(tables: CostTables, fixed: Fixed, largest: int | None) -> Sequence[int]:
    """Micro-batches that a replica may have if none has more than `largest`, ascending."""
    if fixed.micro_batches is not None:
        return sorted(set(fixed.micro_batches))
    if tables.instance.search.micro_batches == "even":
        return even_shares(tables)[:1]
    return share_range(tables, largest)


def solve_shape(
    tables: CostTables,
    engine: ModelEngine,
    *,
    fixed: Fixed = ALL_FREE,
    incumbent: Plan | None = None,
    cutoff_ns: int | None = None,
    bound_ns: int = 0,
    time_limit_s: float | None = None,
    seed: int = 0,
    workers: int = 1,
    pool: CutPool | None = None,
) -> ShapeOutcome:
    """Best plan of one shape by simulated step time, or what is known when time runs out.

    `incumbent`: a feasible plan of the shape that agrees with `fixed`. `cutoff_ns`: plans of
    this step time or a longer one are of no interest. `bound_ns`: a lower bound of every plan's
    step time that is proved already. `pool`: cuts known from shapes of equal
    schedule and stages; new ones are added to it.
    """
    begin = time.monotonic()
    start = None if incumbent is None else decisions_of(tables.instance, incumbent)
    loop = _Loop(tables, engine, fixed, cutoff_ns, start, bound_ns)
    known = (pool or CutPool()).of(tables.shape)
    shape = tables.shape
    for m in loop.shares:
        known.update(first_cuts(shape.schedule, shape.pp, m, shape.vpp))
    for cut in sorted(known):
        loop.built.add_cut(cut)
    while not loop.closed:
        left_s = None if time_limit_s is None else time_limit_s - (time.monotonic() - begin)
        options = SolveOptions(time_limit_s=left_s, seed=seed, workers=workers)
        if (left_s is not None and left_s <= 0) or not loop.solve_round(options, known):
            break
    return loop.outcome(time.monotonic() - begin)
