"""Variables, linear terms that may be constants, and rows, in PuLP's words.

Integers throughout: times are whole nanoseconds and every coefficient is an int, so that a row
can be checked exactly; scaling for an engine that counts in floats is the backend's business.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import pulp

Linear: TypeAlias = pulp.LpAffineExpression | pulp.LpVariable | int
Literal: TypeAlias = Linear  #: worth 0 or 1 in every solution


def binary(model: pulp.LpProblem, name: str) -> pulp.LpVariable:
    """A new variable that is 0 or 1."""
    return model.add_variable(name, 0, 1, pulp.LpInteger)


def duration(model: pulp.LpProblem, name: str, upper_ns: int | None = None) -> pulp.LpVariable:
    """A new time in ns, continuous: minimisation makes it whole."""
    return model.add_variable(name, 0, upper_ns, pulp.LpContinuous)


def weighted(values: Iterable[int], terms: Iterable[Linear]) -> Linear:
    """Sum of value times term; an int if every term that counts is one."""
    total = pulp.LpAffineExpression()
    constant = 0
    for value, term in zip(values, terms, strict=True):
        if isinstance(term, int):
            constant += int(value) * term
        elif isinstance(term, pulp.LpVariable):
            total.addterm(term, int(value))
        else:
            constant += int(value) * int(term.constant)
            for variable, coefficient in term.items():
                total.addterm(variable, int(value) * coefficient)
    for variable in [variable for variable, coefficient in total.items() if not coefficient]:
        del total[variable]
    if not total:
        return constant
    total.constant = constant
    return total


def total_of(*terms: Linear) -> Linear:
    """Sum of terms; an int if all of them are."""
    return weighted([1] * len(terms), terms)


def require_at_most(model: pulp.LpProblem, number: int, left: Linear, right: Linear) -> None:
    """Add the row `left <= right` of constraint `number`; two ints are compared."""
    difference = weighted([1, -1], [left, right])
    if isinstance(difference, int):
        if difference > 0:
            forbid(model, number)
        return
    model.addConstraint(difference <= 0, f"n{number}_{model.numConstraints()}")


def require_equal(model: pulp.LpProblem, number: int, left: Linear, right: Linear) -> None:
    """Add the row `left = right` of constraint `number`; two ints are compared."""
    difference = weighted([1, -1], [left, right])
    if isinstance(difference, int):
        if difference:
            forbid(model, number)
        return
    model.addConstraint(difference == 0, f"n{number}_{model.numConstraints()}")


def forbid(model: pulp.LpProblem, number: int) -> None:
    """Leave the model without a solution, by constraint `number`."""
    row = model.numConstraints()
    nothing = model.add_variable(f"nothing_{row}", 0, 0, pulp.LpInteger)
    model.addConstraint(nothing >= 1, f"n{number}_{row}")


def _never_negative(term: pulp.LpVariable | pulp.LpAffineExpression) -> bool:
    """Whether it is a sum without negative coefficients, of variables that are not negative."""
    if isinstance(term, pulp.LpVariable):
        return True
    return bool(term.constant >= 0) and all(n >= 0 for n in term.values())


def maximum(
    model: pulp.LpProblem, number: int, terms: Sequence[Linear], name: str, upper_ns: int
) -> Linear:
    """A value >= 0 and >= every term, not made smaller than needed; `upper_ns` bounds them all."""
    constants = [term for term in terms if isinstance(term, int)]
    others = [term for term in terms if not isinstance(term, int)]
    largest = max(constants, default=0)
    if not others:
        return largest
    if len(others) == 1 and largest <= 0 and _never_negative(others[0]):
        return others[0]
    value: Linear = duration(model, name, upper_ns)
    if largest > 0:
        require_at_most(model, number, largest, value)
    for term in others:
        require_at_most(model, number, term, value)
    return value
