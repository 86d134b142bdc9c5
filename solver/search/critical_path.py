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

What an engine says of a plan is judged (`judge`). One that counts in floats may propose a plan
again whose paths the model knows, within its tolerances; that plan is excluded. If the engine is in
trouble, floats or not, all bounds that it said are dropped and the shapes stay open.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from formulations.decisions import Decisions
from formulations.plan import Shape
from solver.backends.outcome import Outcome
from solver.interrupt import Deadline
from solver.options import SolveOptions
from solver.result import Status, Termination
from solver.search.engine_solutions import Found, Judge, Trouble
from solver.search.engines import ModelEngine
from solver.search.enumeration import Stop
from solver.search.paths import CutPool, Harvest, HeldShapes, OpenShape

#: Shapes that the model holds at first, if so many are open.
FIRST_SHAPES = 32
#: Gap to which the model is solved while its solutions still bring new paths.
COARSE = 0.02


#: Step times of a shape that are of no interest, from this one on, with the best objective known.
Beyond = Callable[[Shape, float | None], int]


class CutLoop:
    """State of one run.

    shapes: what is open. best: the least objective known; found: the plan of an open shape that
    has it, if there is one. bounds_ns: what is proved of each shape.
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
        self.found = start
        self.trouble: str | None = None
        self.rounds = 0
        self._gap = COARSE
        self._beyond = beyond
        pool = CutPool() if pool is None else pool
        self.model = HeldShapes(engine, shapes, pool)
        self._judge = Judge(self.model, pool, self.bounds_ns)
        if start is not None:
            self._judge.simulated(start.index, start.decisions)

    def target_ns(self, index: int) -> int:
        """Step times of at least this are of no interest."""
        return self._beyond(self.shapes[index].tables.plan_shape, self.best)

    def is_open(self, index: int) -> bool:
        """Whether a shape may have a plan that is of interest."""
        return self.bounds_ns[index] < self.target_ns(index)

    @property
    def closed(self) -> bool:
        """Whether no plan of interest is left."""
        return not any(map(self.is_open, range(len(self.shapes))))

    def _bound(self, index: int) -> int:
        """Lower bound of what the model minimises, for the plans of a shape."""
        return self.model.weights[index] * self.bounds_ns[index]

    def run(self, options: SolveOptions, stop: Stop, tell: Callable[[], None]) -> None:
        """Rounds until all is closed, `stop` says so, or the engine is in trouble.

        options: of every round; its time limit is taken from the begin of the run.
        """
        deadline = Deadline(options.time_limit_s)
        self._enter()
        while not self.closed and not stop():
            left = replace(options, time_limit_s=deadline.left_s)
            if deadline.over() or not self._round(left):
                break
            self._enter()
            tell()

    def _enter(self) -> None:
        """Takes shapes into the model while one that is left out may have the best plan."""
        left = [i for i in range(len(self.shapes)) if i not in self.model.held and self.is_open(i)]
        least = min((self._bound(i) for i in self.model.held if self.is_open(i)), default=None)
        left.sort(key=self._bound)
        if left and (least is None or self._bound(left[0]) < least):
            for index in left[: max(FIRST_SHAPES, len(self.model.held))]:
                self.model.hold(index, self.bounds_ns[index], self.target_ns(index))

    def _round(self, options: SolveOptions) -> bool:
        """One solve of the model, one simulation, new cuts; False if the engine was stopped."""
        if self.found is not None and self.found.index in self.model.held:
            self.model.built.hint(self.model.held.index(self.found.index), self.found.decisions)
        outcome = self.engine.run(self.model.built.model.native, replace(options, gap=self._gap))
        self.rounds += 1
        if outcome.status is Status.INFEASIBLE:
            self._raise({index: self.target_ns(index) for index in self.model.held})
            return True
        try:
            self._believe(outcome)
        except Trouble as trouble:
            self.trouble = f"numerical trouble: {trouble}"
            self.bounds_ns[:] = [shape.bound_ns for shape in self.shapes]
            return False
        if outcome.termination is Termination.INTERRUPTED:
            raise KeyboardInterrupt
        return outcome.termination is Termination.CLOSED

    def _believe(self, outcome: Outcome) -> None:
        """Bound and solution, once judged. Raises Trouble if they cannot be."""
        judged = self._judge.judge(outcome)
        known = [
            (index, self.model.weights[index])
            for index in self.model.held
            if self.model.weights[index]
        ]
        self._raise({index: -(-(outcome.bound or 0) // weight) for index, weight in known})
        if judged is not None:
            self._learn(*judged)

    def _raise(self, proved_ns: dict[int, int]) -> None:
        """Bounds of shapes in the model, which knows no plans that are of no interest."""
        for index, bound_ns in proved_ns.items():
            least = min(bound_ns, self.target_ns(index))
            if least > self.bounds_ns[index]:
                self.bounds_ns[index] = least
                self.model.part(index).raise_step_time(least)

    def _learn(self, found: Found, known: Harvest) -> None:
        """Adds the paths of a plan, and the plan itself if it is the best."""
        learned = self.model.add_cuts(found.index, known.cuts)
        if found.step_time_ns < self.target_ns(found.index):
            self.found = found
            self.best = found.step_time_ns * self.shapes[found.index].price
            for index in self.model.held:
                self.model.part(index).limit_step_time(self.target_ns(index) - 1)
        elif not learned and self._gap:
            self._gap = 0.0
        elif not learned and self.is_open(found.index):
            self._exclude(found.index, found.decisions)

    def _exclude(self, index: int, decisions: Decisions) -> None:
        """Leaves out a plan that the model's own paths should have ruled out."""
        if not self.engine.excludes:
            raise Trouble("the solution has no path that the model does not know")
        self._judge.exclude(index, decisions)
        self.model.part(index).exclude(decisions)
