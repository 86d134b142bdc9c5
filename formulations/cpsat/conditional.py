"""What a CP-SAT model holds of one alternative, which may not be the one that is chosen."""

from collections.abc import Iterable
from typing import Any

from ortools.sat.python import cp_model

from formulations.cpsat.terms import Literal


class ConditionalModel(cp_model.CpModel):
    """A shared model as the parts of one alternative see it: their rows hold if `chosen` does.

    If it does not, all their variables may be 0, and literals are. A row a x <= b, under whatever
    literals, becomes a x <= b chosen: the same if chosen, and true of x = 0 if not. A clause or an
    implication that is true of x = 0 stays as it is; others get `~chosen` as one more way out.
    What is minimised is up to the shared model.
    """

    def __init__(self, shared: cp_model.CpModel, chosen: cp_model.IntVar) -> None:
        super().__init__()
        self.shared = shared
        self.chosen = chosen

    def _named(self, name: str) -> str:
        return f"{name} of {self.chosen.name}"

    def new_bool_var(self, name: str) -> cp_model.IntVar:
        """A literal that is 0 unless the alternative is chosen."""
        literal = self.shared.new_bool_var(self._named(name))
        self.shared.add_implication(literal, self.chosen)
        return literal

    def new_int_var(self, lb: Any, ub: Any, name: str) -> cp_model.IntVar:
        """An integer of a range that begins with 0."""
        assert lb == 0
        return self.shared.new_int_var(lb, ub, self._named(name))

    def add(self, ct: Any) -> cp_model.Constraint:
        """A linear row, its constant times `chosen`; or a constant, whether there is one."""
        if isinstance(ct, bool):
            return self.add_bool_or([int(ct)])
        constraint = self.shared.add(ct)
        row = constraint.proto.linear
        lower, upper = row.domain
        constant = upper if upper < cp_model.INT_MAX else lower
        if constant:
            row.vars.append(self.chosen.index)
            row.coeffs.append(-constant)
            row.domain[0] = 0 if lower == constant else lower
            row.domain[1] = 0 if upper == constant else upper
        return constraint

    def add_implication(self, a: Any, b: Any) -> cp_model.Constraint:
        """`a`, a variable or a constant, implies `b`, if chosen."""
        return self.shared.add_implication(self.chosen if isinstance(a, int) and a else a, b)

    def add_bool_or(self, *literals: Any) -> cp_model.Constraint:
        """One of the literals holds, if chosen."""
        known = _listed(literals)
        if not any(map(_holds_of_nothing, known)):
            known.append(~self.chosen)
        return self.shared.add_bool_or(known)

    def add_exactly_one(self, *literals: Any) -> cp_model.Constraint:
        """Exactly one of the literals holds if chosen, else none."""
        return self.shared.add_exactly_one([*_listed(literals), ~self.chosen])

    def add_max_equality(self, target: Any, *expressions: Any) -> cp_model.Constraint:
        """The largest of variables: 0 where all are."""
        return self.shared.add_max_equality(target, *expressions)

    def add_hint(self, var: Any, value: int) -> None:
        """A value to start from."""
        self.shared.add_hint(var, value)

    def minimize(self, obj: object) -> None:
        """Nothing: see the class."""


def _listed(literals: tuple[Any, ...]) -> list[Any]:
    """Literals given one by one, or as one iterable."""
    first = literals[0] if literals else ()
    return list(first) if isinstance(first, Iterable) else list(literals)


def _holds_of_nothing(literal: Literal) -> bool:
    """Whether a literal is true where all variables are 0."""
    return bool(literal) if isinstance(literal, int) else not isinstance(literal, cp_model.IntVar)
