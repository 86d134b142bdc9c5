"""Templates of least simulated step time, of several node counts at once, proved optimal.

`shared_bounds` bounds what follows any stage of any template; what all node counts need is worked
out once, and the best templates of its classes are a start. For every key the stages that a better
template may have are few (`levels`): `completions` bounds what may follow them, ever more closely,
and `level_search` tries what is left. Where time runs out, the bounds of what is left bound the
optimum.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from formulations.template import Template
from solver.enumeration.enumerate import below
from solver.layered.problem import INFINITY, Array
from solver.templates.chains import Counts
from solver.templates.completions import Completions, classes
from solver.templates.judge import alone, fits, simulated, step_time
from solver.templates.level_search import LevelSearch
from solver.templates.levels import Level, LevelBuilder
from solver.templates.places import PlaceCosts
from solver.templates.shared_bounds import Candidate, SharedBounds
from solver.templates.template_outcome import TemplateOutcome

#: Classes of what is added, and of the slowest operation, and width of ever closer looks.
LOOKS = ((32, 4, 1000), (16, 16, 1000), (16, 32, 1000))

Stop = Callable[[], bool]

_NONE: Template | None = None


class StepTimeSearch:
    """Templates for every key of `finals`: node counts, of equally many nodes for one key."""

    def __init__(
        self,
        costs: PlaceCosts,
        finals: Mapping[int, Sequence[Counts]],
        micro_batches: int,
        gap: float = 0.0,
    ) -> None:
        self.costs, self.finals = costs, finals
        self.micro_batches, self.gap = micro_batches, gap
        self.shared = SharedBounds(costs.several, finals, micro_batches)
        #: Per key the best template so far, and the step time that others have to be below.
        self.best = dict.fromkeys(finals, (_NONE, int(INFINITY)))

    def prepare(self, stop: Stop) -> None:
        """Bounds and a first template of every key; better ones while time allows."""
        for key, own in self.finals.items():
            for one in alone(self.costs.alone, own):
                self._offer(key, one)
            self._take(key, self.shared.balanced(key))
        while not stop() and self.shared.open(self._targets):
            for key, found in self.shared.close(self._targets).items():
                self._take(key, found)

    @property
    def _targets(self) -> dict[int, int]:
        """Per key, the step time from which on no template is looked for."""
        return {key: below(value, self.gap) for key, (_, value) in self.best.items()}

    def _take(self, key: int, found: Candidate | None) -> None:
        if found is not None:
            self._offer(key, self.shared.template(found))

    def _offer(self, key: int, template: Template) -> None:
        """Takes a template if it fits and is better than the best."""
        if fits(self.costs, template, self.micro_batches):
            time = step_time(self.costs, template, self.micro_batches)
            if time < self.best[key][1]:
                self.best[key] = template, time

    def run(self, key: int, cutoff: int | None, stop: Stop) -> TemplateOutcome:
        """The best template of a key; only below `cutoff`, if one is given. After `prepare`."""
        if cutoff is not None and cutoff <= self.best[key][1]:
            self.best[key] = _NONE, cutoff
        target = self._targets[key]
        bounds = self.shared.bounds(key, target)
        bound = min(target, max(int(bounds.min()), self.shared.bound(key)))
        if bound < target and not stop():
            bound = max(bound, self._closed(key, np.flatnonzero(bounds < target), stop))
        template, value = self.best[key]
        complete = bound >= self._targets[key]
        return TemplateOutcome(
            template, None if template is None else value, min(bound, value), complete
        )

    def _closed(self, key: int, numbers: Array, stop: Stop) -> int:
        """Lower bound of all templates of so many stages, from two on; finds better ones."""
        shared, steps, bound = self.shared, self.micro_batches - 1, 0
        target = self._targets[key]
        low, high = shared.least_term(key), target - shared.least_latency(key)
        builder = LevelBuilder(shared.suffixes, self.finals[key], shared.known(key, target), high)
        levels, starts = builder.build(target, numbers.tolist())
        for number, slow, width in LOOKS:
            if stop():
                return bound
            chosen = classes(levels, steps, low, high, number, slow)
            found = Completions(levels, shared.terms, chosen, target)
            by_class = found.by_class(starts)
            bound = max(bound, min(target, int(by_class.min())))
            judge = partial(self._judged, builder, levels)
            search = LevelSearch(found, starts, judge, self.best[key][1], self.gap)
            search.look(width)
            self._improve(key, builder, search)
            target = self._targets[key]
            left = np.flatnonzero(by_class < target)
            if not len(left):
                return target
            levels = found.pruned(starts, target)
            low, high = int(chosen.low[left[0]]), int(chosen.high[left[-1]])
        bound = max(bound, search.run(stop))
        self._improve(key, builder, search)
        return bound

    def _judged(self, builder: LevelBuilder, levels: Sequence[Level], paths: Array) -> Array:
        """[N] simulated steps of complete paths [N, P], see `level_search`."""
        counts = (paths >= 0).sum(axis=1)
        times = np.zeros(len(paths), dtype=np.int64)
        for p in np.unique(counts).tolist():
            rows = np.flatnonzero(counts == p)
            stages = builder.stages(levels[:p], paths[rows, :p])
            times[rows] = simulated(self.costs.several, stages, self.micro_batches)
        return times

    def _improve(self, key: int, builder: LevelBuilder, search: LevelSearch) -> None:
        """Takes what a search has found, if anything."""
        if search.found is not None:
            p = int((search.found >= 0).sum())
            template = builder.template(search.levels[:p], search.found[:p])
            self.best[key] = template, search.best
