"""Exact optimum over open shapes with one model: solve, simulate, add critical paths, repeat.

The model knows some paths of the operation graphs, so its optimum is a lower bound of every plan of
the shapes that it holds. Its plan is simulated, and the paths that make the simulated step time
longer than the bound are added, to all shapes that they hold for. A plan met twice would be valued
at its simulated step time, so the loop ends: with the bound equal to the objective of the best plan
simulated, in integers, or with a proof that no plan beats that.

Shapes enter the model as they are needed, in the order of the bounds known of them: no plan of a
shape that is left out is better than that bound, so the least of the model's bound and of the
bounds left out is a bound of them all, and shapes enter only while one that is left out has it.
Each time as many as there are, so that the model is not solved for every shape anew.

Nothing that an engine says of a plan is taken at its word: what a solution stands for is held
against the rules of the plan space in integers, and its step time is the simulated one. An engine
that counts in floats may propose a plan again whose paths the model knows, within its tolerances;
that plan is excluded, as it is judged. If its solution is no plan, or is faster than the bound that
comes with it, the engine is in trouble: what it said last is dropped and the shapes stay open.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from formulations.costs.placement import Placer
from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import CostTables
from formulations.decisions import Decisions, even_shares, share_range
from formulations.paths import PathCut
from formulations.plan import Shape
from solver.backends.outcome import Outcome
from solver.options import SolveOptions
from solver.result import Status, Termination
from solver.search.closing import Stop
from solver.search.engines import ModelEngine, OneShape
from solver.search.paths import CutPool, Harvest, first_cuts, harvest
from solver.search.recheck import broken_rule

#: Shapes that the model holds at first, if so many are open.
FIRST_SHAPES = 32
#: Gap to which the model is solved while its solutions still bring new paths.
COARSE = 0.02
#: Weight of the dearest nodes.
LARGEST_WEIGHT = 10_000


@dataclass(frozen=True)
class Fixed:
    """The parts of the decisions that are given; None is decided."""

    order: tuple[int, ...] | None = None
    boundaries: tuple[int, ...] | None = None
    micro_batches: tuple[int, ...] | None = None


ALL_FREE = Fixed()


@dataclass(frozen=True)
class OpenShape:
    """A shape with a proved bound of its step times; `price`: what a nanosecond of them costs."""

    tables: CostTables
    price: float = 1.0
    bound_ns: int = 0
    fixed: Fixed = ALL_FREE


@dataclass(frozen=True)
class Found:
    """A plan of the open shape of this index, simulated."""

    index: int
    decisions: Decisions
    step_time_ns: int


#: Step times of a shape that are of no interest, from this one on, with the best objective known.
Beyond = Callable[[Shape, float | None], int]


def largest_share(tables: CostTables, step_time_limit_ns: int) -> int:
    """No replica of a plan within this step time has more micro-batches.

    Proof: the stages of a replica work at least the sum over layers of the fastest group's
    forward + backward time on each micro-batch; the slowest of its p stages works at least 1/p of
    that, on each of its m micro-batches, one after the other.
    """
    used = [j for j, count in enumerate(tables.shape.nodes_used) if count]
    work = int((tables.forward_ns + tables.backward_ns)[:, used].min(axis=1).sum())
    return max(0, step_time_limit_ns) * tables.shape.pp // max(work, 1)


def shares_of(tables: CostTables, fixed: Fixed, largest: int | None) -> Sequence[int]:
    """Micro-batches that a replica may have if none has more than `largest`, ascending."""
    if fixed.micro_batches is not None:
        return sorted(set(fixed.micro_batches))
    if tables.instance.search.micro_batches == "even":
        return even_shares(tables)[:1]
    return share_range(tables, largest)


def whole_weights(prices: Sequence[float]) -> list[int]:
    """Whole numbers near the ratios of prices: what guides an engine, and proves nothing."""
    most = max(prices, default=0.0)
    if min(prices, default=0.0) == most:
        return [1] * len(prices)
    return [(price and max(1, round(price / most * LARGEST_WEIGHT))) or 0 for price in prices]


class _Trouble(Exception):
    """What an engine says cannot be."""


class CutLoop:
    """State of one run.

    shapes: what is open. best: the least objective known; found: the plan of an open shape that
    has it, if there is one. bounds_ns: what is proved of each shape. held: those in the model.
    trouble: what is wrong with the engine's last answer, if that ended it.
    """

    def __init__(
        self,
        engine: ModelEngine,
        shapes: Sequence[OpenShape],
        beyond: Beyond,
        best: float | None = None,
        start: Found | None = None,
        pool: CutPool | None = None,
    ) -> None:
        self.engine, self.shapes, self.best = engine, shapes, best
        self.bounds_ns = [shape.bound_ns for shape in shapes]
        self.held: list[int] = []
        self.found = start
        self.trouble: str | None = None
        self.rounds = 0
        self._gap = COARSE
        self.built = engine.build()
        self._beyond = beyond
        self._pool = CutPool() if pool is None else pool
        self._weights = whole_weights([shape.price for shape in shapes])
        self._excluded: set[tuple[int, Decisions]] = set()
        self._shares: dict[int, Sequence[int]] = {}
        self._stages: dict[int, StageCosts] = {}
        if start is not None:
            self._harvest(start)

    def target_ns(self, index: int) -> int:
        """Step times of at least this are of no interest."""
        return self._beyond(self.shapes[index].tables.shape, self.best)

    def is_open(self, index: int) -> bool:
        """Whether a shape may have a plan that is of interest."""
        return self.bounds_ns[index] < self.target_ns(index)

    @property
    def closed(self) -> bool:
        """Whether no plan of interest is left."""
        return not any(map(self.is_open, range(len(self.shapes))))

    @property
    def num_cuts(self) -> int:
        """Paths in the model."""
        return sum(len(part.cuts) for part in self.built.parts)

    def _bound(self, index: int) -> int:
        """Lower bound of what the model minimises, for the plans of a shape."""
        return self._weights[index] * self.bounds_ns[index]

    def run(self, options: SolveOptions, stop: Stop, tell: Callable[[], None]) -> None:
        """Rounds until all is closed, `stop` says so, or the engine is in trouble.

        options: of every round; its time limit is taken from the begin of the run.
        """
        begin = time.monotonic()
        self._enter()
        while not self.closed and not stop():
            spent_s, limit_s = time.monotonic() - begin, options.time_limit_s
            left_s = None if limit_s is None else limit_s - spent_s
            if (left_s is not None and left_s <= 0) or not self._round(
                replace(options, time_limit_s=left_s)
            ):
                break
            self._enter()
            tell()

    def _enter(self) -> None:
        """Takes shapes into the model while one that is left out may have the best plan."""
        left = [i for i in range(len(self.shapes)) if i not in self._shares and self.is_open(i)]
        least = min((self._bound(i) for i in self.held if self.is_open(i)), default=None)
        left.sort(key=self._bound)
        if left and (least is None or self._bound(left[0]) < least):
            for index in left[: max(FIRST_SHAPES, len(self.held))]:
                self._hold(index)

    def _hold(self, index: int) -> None:
        open_, tables = self.shapes[index], self.shapes[index].tables
        target_ns, fixed = self.target_ns(index), open_.fixed
        limit_ns = min(target_ns, 2 * tables.longest_ns + 2) - 1
        most = largest_share(tables, limit_ns)
        part = self.built.add_shape(
            tables,
            self._weights[index],
            fixed.order,
            fixed.boundaries,
            fixed.micro_batches,
            most,
            limit_ns,
        )
        part.raise_step_time(self.bounds_ns[index])
        self.held.append(index)
        self._shares[index] = shares_of(tables, fixed, most)
        shape, known = tables.shape, set(self._pool.of(tables.shape))
        for m in self._shares[index]:
            known.update(first_cuts(shape.schedule, shape.pp, m, shape.vpp))
        for cut in sorted(known):
            part.add_cut(cut)

    def _round(self, options: SolveOptions) -> bool:
        """One solve of the model, one simulation, new cuts; False if the engine was stopped."""
        if self.found is not None and self.found.index in self.held:
            self.built.hint(self.held.index(self.found.index), self.found.decisions)
        outcome = self.engine.run(self.built.model, replace(options, gap=self._gap))
        self.rounds += 1
        if outcome.status is Status.INFEASIBLE:
            self._raise({index: self.target_ns(index) for index in self.held})
            return True
        try:
            judged = self._judge(outcome)
        except _Trouble as trouble:
            if self.engine.exact:
                raise AssertionError("model and simulator disagree") from trouble
            self.trouble = f"numerical trouble: {trouble}"
            return False
        known = [(index, self._weights[index]) for index in self.held if self._weights[index]]
        self._raise({index: -(-(outcome.bound or 0) // weight) for index, weight in known})
        if judged is not None:
            self._learn(*judged)
        if outcome.termination is Termination.INTERRUPTED:
            raise KeyboardInterrupt
        return outcome.termination is Termination.CLOSED

    def _raise(self, proved_ns: dict[int, int]) -> None:
        """Bounds of shapes in the model, which knows no plans that are of no interest."""
        for index, bound_ns in proved_ns.items():
            least = min(bound_ns, self.target_ns(index))
            if least > self.bounds_ns[index]:
                self.bounds_ns[index] = least
                self._part(index).raise_step_time(least)

    def _part(self, index: int) -> OneShape:
        return self.built.parts[self.held.index(index)]

    def _judge(self, outcome: Outcome) -> tuple[Found, Harvest] | None:
        """The solution as decisions, simulated; None without one. _Trouble if it cannot be."""
        if outcome.trouble is not None:
            raise _Trouble(outcome.trouble)
        if outcome.values is None:
            return None
        extracted = self.built.extract(outcome.values)
        if extracted is None:
            raise _Trouble("the solution is fractional, or stands for no decisions")
        index, decisions = self.held[extracted[0]], extracted[1]
        tables = self.shapes[index].tables
        if (broken := broken_rule(tables, decisions)) is not None:
            raise _Trouble(f"the solution is no plan: {broken}")
        if (index, decisions) in self._excluded:
            raise _Trouble("the solution has been excluded")
        known = self._harvest(Found(index, decisions, 0))
        if outcome.bound is not None and outcome.bound > self._weights[index] * known.step_time_ns:
            told = f"{known.step_time_ns} ns, bound {outcome.bound}"
            raise _Trouble(f"the solution is faster than the bound: {told}")
        return Found(index, decisions, known.step_time_ns), known

    def _harvest(self, found: Found) -> Harvest:
        """Simulates a plan; its paths and those of its neighbours are known from now on."""
        tables, shares = self.shapes[found.index].tables, self._shares.get(found.index, ())
        placement = Placer(tables).costs(found.decisions.order)
        bound_ns = self.bounds_ns[found.index]
        stages = self._stages.setdefault(found.index, StageCosts(tables))
        known = harvest(stages, placement, found.decisions, shares, bound_ns)
        self._pool.of(tables.shape).update(known.cuts)
        return known

    def _learn(self, found: Found, known: Harvest) -> None:
        """Adds the paths of a plan, and the plan itself if it is the best."""
        learned = self._add_cuts(found.index, known.cuts)
        if found.step_time_ns < self.target_ns(found.index):
            self.found = found
            self.best = found.step_time_ns * self.shapes[found.index].price
            for index in self.held:
                self._part(index).limit_step_time(self.target_ns(index) - 1)
        elif not learned and self._gap:
            self._gap = 0.0
        elif not learned and self.is_open(found.index):
            self._exclude(found.index, found.decisions)

    def _add_cuts(self, index: int, cuts: Sequence[PathCut]) -> bool:
        """Whether any is new for this shape; others that they hold for learn them too."""
        pool = self._pool.of(self.shapes[index].tables.shape)
        for other in self.held:
            shares = self._shares[other]
            if other != index and self._pool.of(self.shapes[other].tables.shape) is pool:
                for cut in cuts:
                    if cut.micro_batches in shares:
                        self._part(other).add_cut(cut)
        return sum(self._part(index).add_cut(cut) for cut in cuts) > 0

    def _exclude(self, index: int, decisions: Decisions) -> None:
        """Leaves out a plan that the model's own paths should have ruled out."""
        assert self.engine.exclude is not None, "model and simulator disagree: no path is new"
        self._excluded.add((index, decisions))
        self.engine.exclude(self._part(index), decisions)
