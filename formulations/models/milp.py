"""The verbs of `models.model` as a mixed-integer linear program of PuLP, with every Big-M there is.

Times are continuous: minimisation makes them whole. Coefficients are whole nanoseconds; scaling for
an engine that counts in floats is the backend's business.

Big-M. By how much a row must give way when it does not apply:
* a row under literals by the largest value that its variables' bounds leave it;
* the row of option a of a choice by `Costs.excess(a, b)` where b holds. That is a maximum over the
  runs of layers that a stage may be, not a sum over all layers. It may be negative, and then the
  row is all the tighter;
* nothing for the alternatives of a model: a row a x <= b stands as a x <= b chosen, the convex hull
  of the choices (Balas 1979, Disjunctive programming).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import pulp

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
    negated,
    total_of,
    weighted,
)


class Milp(Model):
    """A model of PuLP."""

    def __init__(self) -> None:
        super().__init__()
        self.native = pulp.LpProblem("hetplan")
        self._columns = list[Any]()
        self._alternatives: Any = None

    def _new_variable(self, variable: Variable) -> None:
        kind = pulp.LpInteger if variable.integral else pulp.LpContinuous
        self._columns.append(self.native.add_variable(variable.name, 0, variable.upper, kind))

    def _expression(self, terms: Mapping[int, int]) -> Any:
        return pulp.LpAffineExpression([(self._columns[i], n) for i, n in terms.items()])

    def _add(self, number: int, term: Linear, sense: int) -> None:
        """`term` against 0; its constant times `chosen`."""
        terms, constant = term.terms, term.constant
        if constant and self.chosen is not None:
            total = weighted([1, constant], [Linear(terms), self.chosen])
            assert isinstance(total, Linear)
            terms, constant = total.terms, 0
        row = pulp.LpConstraint(self._expression(terms), sense, rhs=-constant)
        self.native.addConstraint(row, f"n{number}_{self.native.numConstraints()}")

    def _row(self, number: int, difference: Linear, conditions: Sequence[Linear]) -> None:
        if conditions:
            if (slack := self.upper(difference)) > 0:
                unmet = total_of(*map(negated, conditions))
                self.at_most(number, weighted([1, -slack], [difference, unmet]), 0)
            return
        self._add(number, difference, pulp.LpConstraintLE)

    def _equality(self, number: int, difference: Linear) -> None:
        self._add(number, difference, pulp.LpConstraintEQ)

    def within(self, number: int, time: Linear, lower: int | None, upper: int | None) -> None:
        """Half a nanosecond wider, so that no plan lies on the edge."""
        if lower is not None:
            self.at_most(number, 2 * lower - 1, weighted([2], [time]))
        if upper is not None:
            self.at_most(number, weighted([2], [time]), 2 * upper + 1)

    def some_of(self, number: int, literals: Iterable[Literal], *conditions: Literal) -> None:
        """Sum of the literals, and of the conditions that do not hold, >= 1."""
        ways = total_of(*literals, *map(negated, conditions))
        if isinstance(ways, Linear):
            self._add(number, Linear({i: -n for i, n in ways.terms.items()}, 1 - ways.constant), -1)
        elif ways < 1:  # the model, or the alternative, has no solution
            self.at_most(number, 1, self.integer(f"nothing_{self.native.numConstraints()}", 0))

    def exactly_one(self, number: int, literals: Iterable[Linear]) -> None:
        """Their sum is 1."""
        self.equal(number, total_of(*literals), 1)

    def joined(self, number: int, literals: Sequence[Linear], name: str) -> Literal:
        """The sum."""
        return total_of(*literals)

    def defined(self, number: int, term: Term, upper: int, name: str) -> Term:
        """A variable that equals it."""
        if isinstance(term, int):
            return term
        variable = self.time(name, upper)
        self.equal(number, variable, term)
        return variable

    def choose(
        self,
        costs: Costs[Any],
        options: Iterable[tuple[Literal, Any]],
        seconds: Mapping[Any, Literal] | None = None,
        holds: tuple[Literal, ...] = (),
    ) -> list[Row]:
        """Each option's cost less what it may cost more than what holds; numbers are added up.

        Proof for `holds`. A row is at most the cost of the options that hold: what it gives way is
        at least what its own exceed them by. So the largest cost takes it back to 0.
        Proof for pairs. With (f, s) in place of (a, b), going there over (f, b):
        cost(a, b) - cost(f, s) <= excess((a, b), (f, b)) + max over g of excess((g, b), (g, s)).
        """
        literals = dict[Any, Literal]()
        for literal, key in options:
            literals[key] = total_of(literals[key], literal) if key in literals else literal
        excess, keys = costs.excess, [*literals]
        if seconds is not None:
            keys = [pair for pair in product(literals, seconds) if costs.largest[pair]]
        values = [costs.values[key] for key in keys]
        numbers = [cost for cost in values if isinstance(cost, int)]
        if seconds is None and len(numbers) == len(values):
            terms = [weighted(numbers, literals.values())]
        else:
            # A row gives way to each of the other options; exactly one of each choice holds
            terms = list[Term]()
            for key, cost in zip(keys, values, strict=True):
                if seconds is None:
                    slacks = [excess(key, option) for option in literals]
                else:
                    _, b = key
                    slacks = [excess(key, (f, b)) for f in literals]
                    slacks += [max(excess((g, b), (g, s)) for g in literals) for s in seconds]
                ways = [*literals.values(), *(seconds or {}).values()]
                terms.append(weighted([1, *(-slack for slack in slacks)], [cost, *ways]))
        largest = max((costs.largest[key] for key in keys), default=0)
        unmet = total_of(*map(negated, holds))
        return [((), weighted([1, -largest], [term, unmet])) for term in terms]

    def _is_value(self, term: Linear) -> bool:
        """What gives way may be negative."""
        return term.constant >= 0 and min(term.terms.values()) >= 0

    def minimize(self, term: Term) -> None:
        """What is minimised."""
        total = self._expression({} if isinstance(term, int) else term.terms)
        total.constant = term if isinstance(term, int) else term.constant
        self.native.setObjective(total)

    def hint(self, pairs: Pairs) -> None:
        """Initial values."""
        for column in self._columns:
            column.varValue = None
        for variable, value in pairs:
            for index in variable.terms:
                self._columns[index].setInitialValue(value)

    def solution(self, values: Sequence[float]) -> Solution:
        """PuLP's vectors are in the order of `variables()`, those that stand in rows."""
        names = (column.name for column in self.native.variables())
        named = dict(zip(names, values, strict=True))
        return Solution([named.get(column.name, 0.0) for column in self._columns])

    def _one_more(self, chosen: Linear) -> None:
        if self._alternatives is None:
            nothing = pulp.LpAffineExpression()
            self._alternatives = pulp.LpConstraint(nothing, pulp.LpConstraintEQ, rhs=1)
            self.native.addConstraint(self._alternatives, "n23_one")
        for index in chosen.terms:
            self._alternatives.expr.addterm(self._columns[index], 1)
