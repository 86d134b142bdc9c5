"""What a MILP model holds of one alternative, which may not be the one that is chosen."""

from typing import Any

import pulp

from formulations.milp.terms import binary, require_at_most, weighted


class ConditionalModel:
    """A shared model as the parts of one alternative see it: their rows hold if `chosen` does.

    If it does not, all their variables may be 0, and the binary ones are. A row a x <= b becomes
    a x <= b chosen: the same if chosen, and true of x = 0 if not. What is minimised is up to the
    shared model. Only bounds of variables stay as they are, so those of times begin with 0.
    """

    def __init__(self, shared: pulp.LpProblem, chosen: pulp.LpVariable) -> None:
        self.shared = shared
        self.chosen = chosen
        self.binaries: list[pulp.LpVariable] = []

    def add_variable(
        self,
        name: str,
        lowBound: float | None = None,
        upBound: float | None = None,
        cat: str = pulp.LpContinuous,
    ) -> pulp.LpVariable:
        """A variable that is 0, if it is binary, unless the alternative is chosen."""
        named = f"{name}_of_{self.chosen.name}"
        if cat == pulp.LpContinuous:
            return self.shared.add_variable(named, lowBound, upBound, cat)
        variable = binary(self.shared, named)
        require_at_most(self.shared, 23, variable, weighted([int(upBound or 0)], [self.chosen]))
        self.binaries.append(variable)
        return variable

    def addConstraint(self, constraint: pulp.LpConstraint, name: str | None = None) -> None:
        """A row, its constant times `chosen`."""
        terms = constraint.expr.copy()
        if constraint.constant:
            terms.addterm(self.chosen, constraint.constant)
        terms.constant = 0
        self.shared.addConstraint(pulp.LpConstraint(terms, constraint.sense), name)

    def numConstraints(self) -> int:
        """Rows of the shared model."""
        rows: int = self.shared.numConstraints()
        return rows

    def variables(self) -> list[pulp.LpVariable]:
        """Those of the shared model, in its order."""
        known: list[pulp.LpVariable] = self.shared.variables()
        return known

    def setObjective(self, obj: Any) -> None:
        """Nothing: see the class."""
