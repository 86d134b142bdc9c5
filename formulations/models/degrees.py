"""The shape too: degrees, split, order and shares of all shapes that are still open, at once.

Sets. Shapes i that the caller holds to be open, each with the sets of its `step_time` model.
Parameters. Those of these models; weights w_i, what a nanosecond of a step on the nodes of i
counts: 1 where step time is minimised, the rent of the nodes where money is; a known bound and a
limit (budget, price, incumbent) of the step time of each shape.
Variables. chosen[i], literal: the plan has shape i. Those of the model of every shape.
Objective. min sum over i of w_i step_time[i].
Constraints.
(23) Exactly one chosen[i], and no literal of a shape is more than its chosen[i].
(1)-(22) for every i, memory and budgets among them: a row a x <= b stands as a x <= b chosen[i].
    That takes no Big-M but those inside the shapes: the relaxation is the convex hull of the
    choices (Balas 1979, Disjunctive programming), with a bound no lower than the least of theirs.
    If shape i is not chosen, all its variables may be 0.
(24) known bound <= step_time[i] <= limit if chosen[i].
Assumptions. Those of `step_time`. A shape that is held to be closed, or is not held yet, is not
here: the caller sees to it that the least of this model's bound and of the bounds of what is left
out is the bound of the instance.
Left out. Paths that nobody has added: without them the optimum is a lower bound.
Size. The sum of the shapes' models, one variable per shape and one row per literal.
"""

from collections.abc import Sequence

from formulations.costs.tables import CostTables
from formulations.decisions import ALL_FREE, Decisions, Given
from formulations.models.model import Linear, Model, weighted
from formulations.models.step_time import OneShape


class ManyShapes:
    """A model of several shapes, which may grow; `parts` are the models of each."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.parts: list[OneShape] = []
        self._weights: list[int] = []

    def add_shape(self, tables: CostTables, weight: int = 1, given: Given = ALL_FREE) -> OneShape:
        """One more shape that may be chosen."""
        part = OneShape(self.model.alternative(f"shape_{len(self.parts)}"), tables, given)
        self.parts.append(part)
        self._weights.append(weight)
        self.model.minimize(
            weighted(self._weights, [shape_part.step_time for shape_part in self.parts])
        )
        return part

    @property
    def _chosen(self) -> list[Linear]:
        return [part.model.chosen for part in self.parts if part.model.chosen is not None]

    def hint(self, shape: int, decisions: Decisions) -> None:
        """Start the engine from these decisions of a shape; nothing of another one holds."""
        pairs = [(chosen, int(i == shape)) for i, chosen in enumerate(self._chosen)]
        for i, part in enumerate(self.parts):
            if i != shape:
                pairs += [(variable, 0) for variable in part.model.integers]
        self.model.hint([*pairs, *self.parts[shape].assignment(decisions)])

    def extract(self, values: Sequence[float]) -> tuple[int, Decisions] | None:
        """The shape of an engine's solution, and its decisions; None if it stands for none."""
        solution = self.model.solution(values)
        shapes = [i for i, chosen in enumerate(self._chosen) if solution.stands([(chosen, 1)])]
        decisions = self.parts[shapes[0]].extract(values) if len(shapes) == 1 else None
        return None if decisions is None else (shapes[0], decisions)
