"""Templates of least simulated step time, proved optimal: a template is a path of a split problem.

The engine of plans solves it, for pipelines of all numbers of stages together, see
`solver.layered.pipelines`. Where time runs out, the bounds of what is left bound the optimum.
"""

from collections.abc import Callable, Mapping, Sequence

from formulations.template import Template
from solver.enumeration.engine import SplitOutcome, deepened, solve_split
from solver.enumeration.enumerate import below
from solver.layered.edges import has_split
from solver.layered.gpu_graph import Counts, GpuGraph
from solver.layered.pipelines import FreeDegrees
from solver.layered.places import PlaceCosts
from solver.layered.problem import INFINITY, SplitProblem
from solver.templates.judge import alone, step_time
from solver.templates.template_outcome import TemplateOutcome

#: Growth of the cutoffs: the bound that they start from knows of work alone.
GROWTH = 1.12

Stop = Callable[[], bool]


class StepTimeSearch:
    """Templates for every key of `finals`: node counts, of equally many nodes for one key."""

    def __init__(
        self,
        costs: PlaceCosts,
        finals: Mapping[int, Sequence[Counts]],
        micro_batches: Mapping[int, int],
        gap: float = 0.0,
    ) -> None:
        self.costs, self.finals = costs, finals
        self.micro_batches, self.gap = micro_batches, gap

    def run(self, key: int, cutoff: int | None, stop: Stop) -> TemplateOutcome:
        """The best template of a key; only below `cutoff`, if one is given."""
        limit = int(INFINITY) if cutoff is None else cutoff
        best, value = self._alone(key, limit)
        limit = limit if value is None else value
        graph = FreeDegrees(GpuGraph(self.costs.several, self.finals[key]), self.micro_batches[key])
        problem = graph.problem
        if not has_split(problem):
            return TemplateOutcome(best, value, limit, True)
        found = _solved(problem, graph.least_ns(), below(limit, self.gap), self.gap, stop)
        if found.arcs is not None and found.split is not None and found.step_time_ns is not None:
            best = graph.template(found.arcs.tolist(), found.split.tolist())
            value = limit = found.step_time_ns
        return TemplateOutcome(best, value, min(found.bound_ns, limit), found.complete)

    def _alone(self, key: int, limit: int) -> tuple[Template | None, int | None]:
        """The best template of one stage below a limit, and its step time."""
        m = self.micro_batches[key]
        every = alone(self.costs.alone, self.finals[key], m)
        times = [step_time(self.costs, one, m) for one in every]
        if min(times, default=limit) >= limit:
            return None, None
        return every[times.index(min(times))], min(times)


def _solved(
    problem: SplitProblem, least_ns: int, limit: int, gap: float, stop: Stop
) -> SplitOutcome:
    """The best pipeline below a limit; some pipeline, if there is one, even without any time."""
    found = deepened(problem, least_ns, limit, gap, stop, GROWTH)
    trial = found.bound_ns
    while found.arcs is None and not found.complete and trial < limit:
        trial = min(limit, 2 * trial + 1)
        other = solve_split(problem, trial, gap, stop)
        found = SplitOutcome(other.arcs, other.split, other.step_time_ns, found.bound_ns, False)
    return found
