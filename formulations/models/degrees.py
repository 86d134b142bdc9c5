"""The config too: degrees, split, order and shares of all configs that are still open, at once.

Sets. Configurations i that the caller holds to be open, each with the sets of its `step_time`
model.
Parameters. Those of these models; weights w_i, what a nanosecond of a step on the nodes of i
counts: 1 where step time is minimised, the rent of the nodes where money is; a known bound and a
limit (budget, price, incumbent) of the step time of each configuration.
Variables. chosen[i], literal: the plan has configuration i. Those of the model of every
configuration.
Objective. min sum over i of w_i step_time[i].
Constraints.
(23) Exactly one chosen[i], and no literal of a configuration is more than its chosen[i].
(1)-(22) for every i, memory and budgets among them: a row a x <= b stands as a x <= b chosen[i].
    That takes no Big-M but those inside the configurations: the relaxation is the convex hull of
    the choices (Balas 1979, Disjunctive programming), with a bound no lower than the least of
    theirs. If configuration i is not chosen, all its variables may be 0.
(24) known bound <= step_time[i] <= limit if chosen[i].
Assumptions. Those of `step_time`. A configuration that is held to be closed, or is not held yet, is
not here: the caller sees to it that the least of this model's bound and of the bounds of what is
left out is the bound of the instance.
Left out. Paths that nobody has added: without them the optimum is a lower bound.
Size. The sum of the configurations' models, one variable per configuration and one row per literal.
"""

from collections.abc import Sequence

from formulations.costs.tables import CostTables
from formulations.decisions import ALL_FREE, Decisions, Given
from formulations.models.model import Linear, Model, weighted
from formulations.models.step_time import OneConfig


class ManyConfigs:
    """A model of several configurations, which may grow; `parts` are the models of each."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.parts: list[OneConfig] = []
        self._weights: list[int] = []

    def add_config(self, tables: CostTables, weight: int = 1, given: Given = ALL_FREE) -> OneConfig:
        """One more configuration that may be chosen."""
        part = OneConfig(self.model.alternative(f"config_{len(self.parts)}"), tables, given)
        self.parts.append(part)
        self._weights.append(weight)
        self.model.minimize(
            weighted(self._weights, [config_part.step_time for config_part in self.parts])
        )
        return part

    @property
    def _chosen(self) -> list[Linear]:
        return [part.model.chosen for part in self.parts if part.model.chosen is not None]

    def hint(self, config: int, decisions: Decisions) -> None:
        """Start the engine from these decisions of a config; nothing of another one holds."""
        pairs = [(chosen, int(i == config)) for i, chosen in enumerate(self._chosen)]
        for i, part in enumerate(self.parts):
            if i != config:
                pairs += [(variable, 0) for variable in part.model.integers]
        self.model.hint([*pairs, *self.parts[config].assignment(decisions)])

    def extract(self, values: Sequence[float]) -> tuple[int, Decisions] | None:
        """The config of an engine's solution, and its decisions; None if it stands for none."""
        solution = self.model.solution(values)
        configs = [i for i, chosen in enumerate(self._chosen) if solution.stands([(chosen, 1)])]
        decisions = self.parts[configs[0]].extract(values) if len(configs) == 1 else None
        return None if decisions is None else (configs[0], decisions)
