"""The verbs of `models.model` in CP-SAT's words, which has most of them itself.

Rows are written into the model's protocol buffer: OR-Tools' own expressions take ten times as long.
Times are integers. Nothing may exceed `HORIZON_NS`, 52 days.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from ortools.sat.python import cp_model

from formulations.models.model import (
    Costs,
    Linear,
    Literal,
    Model,
    Pairs,
    Row,
    Solution,
    Term,
    Variable,
    weighted,
)

HORIZON_NS = 1 << 52


def _index(literal: Linear) -> int:
    """How CP-SAT writes a variable, or that it does not hold."""
    ((index, coefficient),) = literal.terms.items()
    assert (coefficient, literal.constant) in ((1, 0), (-1, 1))
    return index if coefficient > 0 else -index - 1


class CpSat(Model):
    """A model of CP-SAT."""

    def __init__(self) -> None:
        super().__init__()
        self.native = cp_model.CpModel()
        self._alternatives: Any = None

    def _constraint(self) -> Any:
        return self.native.proto.constraints.add()

    def _new_variable(self, variable: Variable) -> None:
        upper = HORIZON_NS if variable.upper is None else variable.upper
        self.native.new_int_var(0, upper, variable.name)

    def _linear(self, term: Linear, lower: int) -> Any:
        """`term` from `lower` to 0; its constant times `chosen`."""
        constraint, terms, constant = self._constraint(), term.terms, term.constant
        if constant and self.chosen is not None:
            ((index, _),) = self.chosen.terms.items()
            terms, constant = {**terms, index: terms.get(index, 0) + constant}, 0
        constraint.linear.vars.extend(list(terms))
        constraint.linear.coeffs.extend(list(terms.values()))
        bounds = [cp_model.INT_MIN if lower < 0 else -constant, -constant]
        constraint.linear.domain.extend(bounds)
        return constraint

    def _row(self, number: int, difference: Linear, conditions: Sequence[Linear]) -> None:
        if len(conditions) == 1 and difference.constant > 0 and max(difference.terms.values()) < 0:
            # constant * literal <= rest: the same where the rest is >= 0, and tighter in the LP
            constant = difference.constant
            tightened = weighted([1, -constant, constant], [difference, 1, conditions[0]])
            assert isinstance(tightened, Linear)
            self._linear(tightened, -1)
            return
        constraint = self._linear(difference, -1)
        if conditions:
            constraint.enforcement_literal.extend([_index(literal) for literal in conditions])

    def _equality(self, number: int, difference: Linear) -> None:
        self._linear(difference, 0)

    def within(self, number: int, time: Linear, lower: int | None, upper: int | None) -> None:
        """Exactly these. The range of the time shrinks too: sums of times must have 64 bits."""
        if lower is not None:
            self.at_most(number, lower, time)
        if upper is not None:
            domain = self.native.proto.variables[_index(time)].domain
            domain[1] = max(0, min(domain[1], upper))
            self.at_most(number, time, upper)

    def some_of(self, number: int, literals: Iterable[Literal], *conditions: Literal) -> None:
        """A clause; true of nothing, or with one more way out where there is an alternative."""
        clause = list(literals)
        if any(isinstance(literal, int) and literal for literal in clause) or any(
            isinstance(condition, int) and not condition for condition in conditions
        ):
            return
        indices = [_index(literal) for literal in clause if isinstance(literal, Linear)]
        indices += [
            -_index(condition) - 1 for condition in conditions if isinstance(condition, Linear)
        ]
        if self.chosen is not None and all(index >= 0 for index in indices):
            indices.append(-_index(self.chosen) - 1)
        self._constraint().bool_or.literals.extend(indices)

    def exactly_one(self, number: int, literals: Iterable[Linear]) -> None:
        """Or none, where there is an alternative."""
        indices = [_index(literal) for literal in literals]
        if self.chosen is not None:
            indices.append(-_index(self.chosen) - 1)
        self._constraint().exactly_one.literals.extend(indices)

    def joined(self, number: int, literals: Sequence[Linear], name: str) -> Literal:
        """A literal that equals the sum."""
        if len(literals) == 1:
            return literals[0]
        literal = self.literal(name)
        self.equal(number, weighted([1] * len(literals), literals), literal)
        return literal

    def defined(self, number: int, term: Term, upper: int, name: str) -> Term:
        """The term: CP-SAT needs no name for it."""
        return term

    def choose(
        self,
        costs: Costs[Any],
        options: Iterable[tuple[Literal, Any]],
        seconds: Mapping[Any, Literal] | None = None,
        holds: tuple[Literal, ...] = (),
    ) -> list[Row]:
        """Each option's cost under its literal."""
        rows = list[Row]()
        pairs: Iterable[tuple[Any, Literal]] = [(None, 1)] if seconds is None else seconds.items()
        for (literal, key), (number, second) in product(options, pairs):
            chosen = key if seconds is None else (key, number)
            if costs.largest[chosen]:
                rows.append(((literal, second, *holds), costs.values[chosen]))
        return rows

    def _is_value(self, term: Linear) -> bool:
        return True

    def circuit(self, arcs: Iterable[tuple[int, int, Literal]]) -> None:
        """Arcs (tail, head, literal) that hold make one circuit; loops leave a node out."""
        constraint = self._constraint().circuit
        for tail, head, literal in arcs:
            constraint.tails.append(tail)
            constraint.heads.append(head)
            assert isinstance(literal, Linear)
            constraint.literals.append(_index(literal))

    def minimize(self, term: Term) -> None:
        """What is minimised."""
        terms = {} if isinstance(term, int) else term.terms
        variables = [self.native.get_int_var_from_proto_index(index) for index in terms]
        constant = term if isinstance(term, int) else term.constant
        total = cp_model.LinearExpr.weighted_sum(variables, list(terms.values()))
        self.native.minimize(total + constant)

    def hint(self, pairs: Pairs) -> None:
        """Suggest values."""
        self.native.clear_hints()
        for variable, value in pairs:
            self.native.proto.solution_hint.vars.append(_index(variable))
            self.native.proto.solution_hint.values.append(value)

    def solution(self, values: Sequence[float]) -> Solution:
        """CP-SAT's vectors are in the order of the variables."""
        return Solution(values)

    def _one_more(self, chosen: Linear) -> None:
        if self._alternatives is None:
            self._alternatives = self._constraint().exactly_one
        self._alternatives.literals.append(_index(chosen))
