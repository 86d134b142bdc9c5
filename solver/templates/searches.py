"""The best template of one mix of nodes over all strategies, under either objective."""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Protocol

from formulations.fleet import Strategy
from formulations.instance import Instance
from formulations.instance.search import plain_schedules
from formulations.space import recompute_ways
from solver.layered.gpu_graph import Counts
from solver.layered.places import PlaceCosts
from solver.layered.problem import INFINITY
from solver.templates.oobleck import OobleckSearch
from solver.templates.step_time import StepTimeSearch
from solver.templates.template_options import TemplateObjective, TemplateOptions
from solver.templates.template_outcome import TemplateOutcome

Stop = Callable[[], bool]


def strategies(
    instance: Instance, micro_batch: int, objective: TemplateObjective
) -> list[Strategy]:
    """Every memory strategy and schedule that the instance allows.

    Oobleck's objective knows no stages that recompute more than others.
    """
    ways = recompute_ways(instance, zero=0)
    if objective is TemplateObjective.OOBLECK:
        ways = ((way,) for way in instance.search.recompute)
    return [
        Strategy(micro_batch=micro_batch, recompute=own, schedule=schedule)
        for own, schedule in product(ways, plain_schedules(instance.search))
    ]


class TemplateSearch(Protocol):
    """Templates of one strategy for some keys."""

    def run(self, key: int, cutoff: int | None, stop: Stop) -> TemplateOutcome:
        """The best template of a key."""


class Searches:
    """For every key one mix of nodes and its micro-batches; costs by strategy."""

    def __init__(
        self,
        options: TemplateOptions,
        costs: Mapping[Strategy, PlaceCosts],
        mixes: Mapping[int, Counts],
        micro_batches: Mapping[int, int],
    ) -> None:
        finals = {key: [mix] for key, mix in mixes.items()}
        self.each = dict[Strategy, TemplateSearch]()
        for strategy, own in costs.items():
            if options.objective is TemplateObjective.OOBLECK:
                self.each[strategy] = OobleckSearch(own, finals, micro_batches)
            else:
                self.each[strategy] = StepTimeSearch(own, finals, micro_batches, options.gap)

    def best(self, key: int, stop: Stop) -> tuple[TemplateOutcome, Strategy | None]:
        """The best outcome over all strategies, and its strategy; the bound is that of all."""
        best, chosen = TemplateOutcome(None, None, int(INFINITY), True), None
        bounds, complete = list[int](), True
        for strategy, search in self.each.items():
            found = search.run(key, best.value, stop)
            bounds.append(found.bound)
            complete &= found.complete
            if found.value is not None and (best.value is None or found.value < best.value):
                best, chosen = found, strategy
        bound = min(bounds) if best.value is None else min(*bounds, best.value)
        return TemplateOutcome(best.template, best.value, bound, complete), chosen
