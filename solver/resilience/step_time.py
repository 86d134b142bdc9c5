"""The template of least simulated step time: every number of stages closed by the exact engine.

For one number of stages, all templates of a size are the paths and splits of one layered graph
(`graph`), which `solver.enumeration` solves exactly. Numbers of stages are looked at in the order
of their lower bounds, each below the best step time so far, until no bound is below it; then the
best template is optimal. Where time runs out, the bounds of what is left bound the optimum.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter

from formulations.template import Template
from solver.enumeration.engine import SplitOutcome, solve_split
from solver.enumeration.enumerate import below
from solver.enumeration.problem import INFINITY
from solver.resilience.bottleneck import BottleneckSearch
from solver.resilience.chains import Counts, Weights
from solver.resilience.counted import CountedTables
from solver.resilience.graph import TemplateGraph, TemplateProblem
from solver.resilience.judge import fits, step_time
from solver.resilience.outcome import TemplateOutcome
from solver.resilience.places import PlaceCosts
from solver.resilience.stage_bounds import stage_bounds

#: Seconds for a start that fits into memory.
START_S = 5.0
#: Seconds of the first look at a number of stages; every later look takes LONGER times as many.
FIRST_LOOK_S = 1.0
LONGER = 4


def starts(
    costs: PlaceCosts, finals: Mapping[int, Sequence[Counts]], micro_batches: int
) -> dict[int, Template]:
    """Per key, a template that is good for so many micro-batches; memory is not looked at."""
    weights = Weights((1, 0), (micro_batches, 0), (1, 0))
    return BottleneckSearch(costs.several, weights, finals).run()


def _limited(stop: Callable[[], bool], seconds: float) -> Callable[[], bool]:
    """Stops as `stop` does, and after so many seconds."""
    end_s = perf_counter() + seconds
    return lambda: stop() or perf_counter() > end_s


def start_in_memory(
    costs: PlaceCosts, finals: Sequence[Counts], micro_batches: int, stop: Callable[[], bool]
) -> Template | None:
    """As `starts` for one key, among the templates of several stages that fit."""
    weights = Weights((1, 0), (micro_batches, 0), (1, 0))
    graph = TemplateGraph(costs.several, finals)
    tables = partial(CountedTables, graph, weights, micro_batches)
    search = BottleneckSearch(costs.several, weights, {0: [finals[0]]}, tables)
    return search.run(_limited(stop, START_S)).get(0)


class StepTimeSearch:
    """Templates of one size (or one mix of nodes) for `micro_batches`."""

    def __init__(
        self, costs: PlaceCosts, finals: Sequence[Counts], micro_batches: int, gap: float = 0.0
    ) -> None:
        self.costs, self.finals = costs, finals
        self.micro_batches, self.gap = micro_batches, gap
        self.best: Template | None = None
        self.cutoff = int(INFINITY)
        self.bound = int(INFINITY)

    def _offer(self, template: Template | None) -> bool:
        """Takes a template if it fits and is better than the best; whether it fits."""
        if template is None or not fits(self.costs, template, self.micro_batches):
            return False
        time = step_time(self.costs, template, self.micro_batches)
        if time < self.cutoff:
            self.best, self.cutoff = template, time
        return True

    def run(
        self, start: Template | None, cutoff: int | None, stop: Callable[[], bool]
    ) -> TemplateOutcome:
        """The best template; only below `cutoff`, if one is given.

        `start`: that of `starts`, if there is one.
        """
        if cutoff is not None:
            self.cutoff = cutoff
        if start is not None and not self._offer(start):
            self._offer(start_in_memory(self.costs, self.finals, self.micro_batches, stop))
        self.bound = self.cutoff
        self._alone(stop)
        complete = self._several(TemplateGraph(self.costs.several, self.finals), stop)
        value = None if self.best is None else self.cutoff
        return TemplateOutcome(self.best, value, min(self.bound, self.cutoff), complete)

    def _several(self, graph: TemplateGraph, stop: Callable[[], bool]) -> bool:
        """Closes two stages and more, least bound first; bounds rise as the cutoff falls.

        One that is not closed within its seconds waits until all others have been looked at, which
        may lower the cutoff, and then has more seconds.
        """
        proved, looks, closed = dict[int, int](), Counter[int](), {1}
        known, bounds = self.cutoff, stage_bounds(graph, self.micro_batches, self.cutoff)
        while True:
            if known != self.cutoff:
                known, bounds = self.cutoff, stage_bounds(graph, self.micro_batches, self.cutoff)
            least = {p: max(n, proved.get(p, 0)) for p, n in bounds.least.items() if p != 1}
            target = below(self.cutoff, self.gap)
            left = [p for p, bound in least.items() if p not in closed and bound < target]
            if not left or stop():
                self.bound = min(self.bound, self.cutoff, *least.values())
                return not left
            p = min(left, key=lambda p: (looks[p], least[p], p))
            problem = graph.problem(p, self.micro_batches, bounds.allowed)
            found = self._solve(problem, _limited(stop, FIRST_LOOK_S * LONGER ** looks[p]))
            proved[p] = found.bound_ns
            looks[p] += 1
            if found.complete:
                closed.add(p)

    def _alone(self, stop: Callable[[], bool]) -> None:
        """Closes the templates of one stage, of which there are few."""
        graph = TemplateGraph(self.costs.alone, self.finals)
        if 1 in graph.numbers:
            problem = graph.problem(1, self.micro_batches)
            self.bound = min(self.bound, self._solve(problem, stop).bound_ns)

    def _solve(self, problem: TemplateProblem, stop: Callable[[], bool]) -> SplitOutcome:
        """Looks for a better template of one number of stages."""
        found = solve_split(problem.split, self.cutoff, self.gap, stop)
        if found.arcs is not None and found.split is not None and found.step_time_ns is not None:
            self.best = problem.template(found.arcs, found.split)
            self.cutoff = found.step_time_ns
        return found
