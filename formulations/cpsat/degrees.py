"""The shape too: degrees, split, order and shares of all shapes that are still open, at once.

Sets. Shapes i that the caller holds to be open, each with the sets of its `joint` model.
Parameters. Those of the joint models; weights w_i, what a nanosecond of a step on the nodes of i
counts: 1 where step time is minimised, the rent of the nodes where money is; a known bound and a
limit (budget, price, incumbent) of the step time of each shape.
Variables. chosen[i]: the plan has shape i. Those of the joint model of every shape.
Objective. min sum over i of w_i step_time[i].
Constraints.
(23) Exactly one chosen[i].
(1)-(21) for every i, under chosen[i], memory and budgets among them; all variables of a shape that
    is not chosen may be 0, its literals are. A row a x <= b of its joint model stands here as
    a x <= b chosen[i], which takes no Big-M: the relaxation is the convex hull of the choices
    (Balas 1979, Disjunctive programming), with a bound no lower than the least of theirs.
(24) known bound <= step_time[i] <= limit if chosen[i].
Assumptions. Those of `joint`. A shape that is held to be closed, or is not held yet, is not here:
the caller sees to it that the least of this model's bound and of the bounds of what is left out is
the bound of the instance.
Left out. Paths that nobody has added: without them the optimum is a lower bound.
Size. The sum of the joint models, and one variable per shape.
"""

from collections.abc import Sequence

from ortools.sat.python import cp_model

from formulations.costs.tables import CostTables
from formulations.cpsat import joint
from formulations.cpsat.conditional import ConditionalModel
from formulations.cpsat.step_time import Built as OneShape
from formulations.decisions import Decisions
from formulations.fixed import ALL_FREE, Given


class Built:
    """A native model of several shapes, which may grow; `parts` are the joint models in it."""

    def __init__(self) -> None:
        self.model = cp_model.CpModel()
        self.parts: list[OneShape] = []
        self.chosen: list[cp_model.IntVar] = []
        self._weights: list[int] = []
        self._one = self.model.add_exactly_one([])  # (23)

    def add_shape(self, tables: CostTables, weight: int = 1, given: Given = ALL_FREE) -> OneShape:
        """One more shape that may be chosen."""
        chosen = self.model.new_bool_var(f"shape[{len(self.parts)}]")
        self._one.proto.exactly_one.literals.append(chosen.index)
        part = joint.build(tables, given, ConditionalModel(self.model, chosen))
        self.chosen.append(chosen)
        self.parts.append(part)
        self._weights.append(weight)
        times = [one.step_time for one in self.parts]
        self.model.minimize(cp_model.LinearExpr.weighted_sum(times, self._weights))
        return part

    def hint(self, shape: int, decisions: Decisions) -> None:
        """Start the engine from these decisions of a shape."""
        self.model.clear_hints()  # type: ignore[no-untyped-call]
        for i, chosen in enumerate(self.chosen):
            self.model.add_hint(chosen, i == shape)
        self.parts[shape].hint(decisions)

    def extract(self, values: Sequence[float]) -> tuple[int, Decisions]:
        """The shape of a solution vector, which is indexed by variable, and its decisions."""
        shape = next(i for i, chosen in enumerate(self.chosen) if values[chosen.index])
        return shape, self.parts[shape].extract(values)
