"""The shape too: degrees, split, order and shares of all shapes that are still open, at once.

Sets. Shapes i that the caller holds to be open, each with the sets of its `joint` model.
Parameters. Those of the joint models; weights w_i, what a nanosecond of a step on the nodes of i
counts: 1 where step time is minimised, the rent of the nodes where money is; a known bound and a
limit (budget, price, incumbent) of the step time of each shape.
Variables. chosen[i], binary: the plan has shape i. Those of the joint model of every shape.
Objective. min sum over i of w_i step_time[i].
Constraints.
(23) Sum over i of chosen[i] = 1, and no binary variable of a shape is more than its chosen[i].
(1)-(22) for every i, memory and budgets among them: a row a x <= b of its joint model stands here
    as a x <= b chosen[i]. That takes no Big-M but those inside the joint models: the relaxation is
    the convex hull of the choices (Balas 1979, Disjunctive programming), with a bound no lower
    than the least of theirs. If shape i is not chosen, all its variables may be 0.
(24) known bound <= step_time[i] <= limit if chosen[i], half a nanosecond wider, see `step_time`.
Assumptions. Those of `joint`. A shape that is held to be closed, or is not held yet, is not here:
the caller sees to it that the least of this model's bound and of the bounds of what is left out is
the bound of the instance.
Left out. Paths that nobody has added: without them the optimum is a lower bound.
Size. The sum of the joint models, one variable per shape and one row per binary variable.
"""

from collections.abc import Sequence

import pulp

from formulations.costs.tables import CostTables
from formulations.decisions import Decisions
from formulations.fixed import ALL_FREE, Given
from formulations.milp import joint
from formulations.milp.conditional import ConditionalModel
from formulations.milp.parts import FRACTION
from formulations.milp.step_time import Built as OneShape
from formulations.milp.terms import binary, weighted


class Built:
    """A native model of several shapes, which may grow; `parts` are the joint models in it."""

    def __init__(self) -> None:
        self.model = pulp.LpProblem("degrees")
        self.parts: list[OneShape] = []
        self.chosen: list[pulp.LpVariable] = []
        self._weights: list[int] = []
        self._binaries: list[list[pulp.LpVariable]] = []
        self._one = pulp.LpConstraint(pulp.LpAffineExpression(), pulp.LpConstraintEQ, rhs=1)
        self.model.addConstraint(self._one, "n23_one")

    def add_shape(self, tables: CostTables, weight: int = 1, given: Given = ALL_FREE) -> OneShape:
        """One more shape that may be chosen."""
        chosen = binary(self.model, f"shape_{len(self.parts)}")
        self._one.expr.addterm(chosen, 1)  # (23)
        own = ConditionalModel(self.model, chosen)
        part = joint.build(tables, given, own)
        self._binaries.append(own.binaries)
        self.chosen.append(chosen)
        self.parts.append(part)
        self._weights.append(weight)
        self.model.setObjective(weighted(self._weights, [one.step_time for one in self.parts]))
        return part

    def hint(self, shape: int, decisions: Decisions) -> None:
        """Start the engine from these decisions of a shape; nothing of another one holds."""
        for i, (chosen, own) in enumerate(zip(self.chosen, self._binaries, strict=True)):
            chosen.setInitialValue(int(i == shape))
            for variable in own:
                variable.varValue = None if i == shape else 0
        self.parts[shape].hint(decisions)

    def extract(self, values: Sequence[float]) -> tuple[int, Decisions] | None:
        """The shape of a solution vector, ordered as `model.variables()`, and its decisions.

        None if it does not stand for any.
        """
        names = {variable.name: i for i, variable in enumerate(self.chosen)}
        shapes = [
            names[variable.name]
            for variable, value in zip(self.model.variables(), values, strict=True)
            if variable.name in names and abs(value - 1) < FRACTION
        ]
        decisions = self.parts[shapes[0]].extract(values) if len(shapes) == 1 else None
        return None if decisions is None else (shapes[0], decisions)
