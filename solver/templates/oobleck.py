"""Oobleck's template objective, reproduced so that templates can be compared with its planner's.

Jang et al., SOSP 2023, section 4.1.2, as in the public code (SymbioticLab/Oobleck,
csrc/planning/execution_result.h): T1 + T2 + T3 with S stages of forward plus backward times t_i,
k* the slowest of them, the last one of several,

    sum of all t_i + (2 S + k* + 1) t_k* + sum of t_i for i >= k*;     4 t_0 if S = 1.

In the words of `bottleneck`: a stage before k* adds t_i + 3 t_k*, k* itself 2 t_k* + 3 t_k*, one
after it 2 t_i + 2 t_k*. Check with stages 1, 3, 2: 6 + (6 + 1 + 1) 3 + 5 = 35 = 1 + 9 + 15 + 4 + 6.
"""

from collections.abc import Callable, Mapping, Sequence

from formulations.template import Template
from solver.layered.gpu_graph import Counts
from solver.layered.places import PlaceCosts, Places
from solver.layered.problem import INFINITY, Array
from solver.templates.bottleneck import BottleneckSearch
from solver.templates.counted import Weights
from solver.templates.judge import alone, fits, places_for, stage_places
from solver.templates.template_outcome import TemplateOutcome

WEIGHTS = Weights(before=(1, 3), slowest=(2, 3), after=(2, 2))


def oobleck_value(times: Sequence[int]) -> int:
    """T1 + T2 + T3 of stage times in pipeline order."""
    return 4 * times[0] if len(times) == 1 else WEIGHTS.value(times)


def stage_times(places: Places, template: Template) -> list[int]:
    """Forward plus backward of every stage."""
    busy: Array = places.forward + places.backward
    own = zip(stage_places(places, template), template.stages, strict=True)
    return [int(busy[place, *stage.layers]) for place, stage in own]


def oobleck_templates(
    costs: PlaceCosts, finals: Mapping[int, Sequence[Counts]]
) -> dict[int, Template]:
    """A template of least T1 + T2 + T3 for every key of `finals` that has one.

    Every stage has room for one micro-batch; more in flight are not looked at.
    """
    found = BottleneckSearch(costs.several, WEIGHTS, finals, 1).run()
    for key, own in finals.items():
        for one in alone(costs.alone, own, 1):
            found[key] = _better(costs, found.get(key), one)
    return found


def _better(costs: PlaceCosts, one: Template | None, other: Template) -> Template:
    if one is None or value_of(costs, other) < value_of(costs, one):
        return other
    return one


def value_of(costs: PlaceCosts, template: Template) -> int:
    """T1 + T2 + T3 of a template."""
    return oobleck_value(stage_times(places_for(costs, template), template))


def oobleck_in_memory(
    costs: PlaceCosts,
    finals: Sequence[Counts],
    micro_batches: int,
    free: Template | None,
    stop: Callable[[], bool],
) -> TemplateOutcome:
    """The same for one key, where every stage has room for its micro-batches in flight.

    `free`: the best template where memory is not looked at; its value bounds all others, so if it
    fits it is the best of these too.
    """
    if free is None:
        return TemplateOutcome(None, None, int(INFINITY), True)
    if fits(costs, free, micro_batches):
        value = value_of(costs, free)
        return TemplateOutcome(free, value, value, True)
    search = BottleneckSearch(costs.several, WEIGHTS, {0: finals}, micro_batches)
    best = search.run(stop).get(0)
    for one in alone(costs.alone, finals, micro_batches):
        best = _better(costs, best, one)
    found = None if best is None else value_of(costs, best)
    bound = min(int(search.bound[0]), int(INFINITY) if found is None else found)
    complete = bool(search.bound[0] >= INFINITY)
    return TemplateOutcome(best, found, max(bound, value_of(costs, free)), complete)


class OobleckSearch:
    """The same for every key of `finals`, with so many micro-batches each."""

    def __init__(
        self,
        costs: PlaceCosts,
        finals: Mapping[int, Sequence[Counts]],
        micro_batches: Mapping[int, int],
    ) -> None:
        self.costs, self.finals, self.micro_batches = costs, finals, micro_batches
        self.free = oobleck_templates(costs, finals)

    def run(self, key: int, cutoff: int | None, stop: Callable[[], bool]) -> TemplateOutcome:
        """The best template of a key, whatever the cutoff."""
        m, free = self.micro_batches[key], self.free.get(key)
        return oobleck_in_memory(self.costs, self.finals[key], m, free, stop)
