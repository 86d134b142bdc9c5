"""Literals and linear terms that may be constants: what a decision is once it is fixed.

Every part of a model exists fixed and free. A fixed part hands out ints where the free one hands
out variables, so the same constraints serve both and fold to constants.
"""

from collections.abc import Iterable, Sequence
from typing import cast

from ortools.sat.python import cp_model

Linear = cp_model.LinearExpr | int
Literal = cp_model.IntVar | int


def weighted(values: Iterable[int], literals: Iterable[Literal]) -> Linear:
    """Sum of value times literal; an int if every literal that counts is one."""
    constant, coefficients, variables = 0, [], []
    for value, literal in zip(values, literals, strict=True):
        if isinstance(literal, int):
            constant += int(value) * literal
        elif value:
            coefficients.append(int(value))
            variables.append(literal)
    if not variables:
        return constant
    return cp_model.LinearExpr.weighted_sum(variables, coefficients) + constant


def total_of(*terms: Linear) -> Linear:
    """Sum of terms; an int if all of them are."""
    constant = sum(term for term in terms if isinstance(term, int))
    rest = [term for term in terms if not isinstance(term, int)]
    return constant + cp_model.LinearExpr.sum(rest) if rest else constant


def negated(literal: Literal) -> Literal:
    """Whether a literal does not hold."""
    return 1 - literal if isinstance(literal, int) else cast(cp_model.IntVar, ~literal)


def value_of(literal: Literal, values: Sequence[float]) -> int:
    """Value of a literal in a solution vector, which is indexed by variable."""
    return literal if isinstance(literal, int) else int(values[literal.index])


def require_at_most(
    model: cp_model.CpModel, left: Linear, right: Linear, *literals: Literal
) -> None:
    """Make `left <= right` hold whenever all literals do."""
    if any(isinstance(literal, int) and not literal for literal in literals):
        return
    conditions = [literal for literal in literals if not isinstance(literal, int)]
    if isinstance(left, int) and isinstance(right, int):
        if left > right:
            model.add_bool_or([~literal for literal in conditions])
        return
    if isinstance(left, int) and len(conditions) == 1 and left > 0:
        model.add(left * conditions[0] <= right)  # the same for right >= 0, and tighter in the LP
        return
    constraint = model.add(left <= right)
    if conditions:
        constraint.only_enforce_if(conditions)


def require_any(model: cp_model.CpModel, literals: Iterable[Literal], *conditions: Literal) -> None:
    """Make one of the literals hold whenever all conditions do."""
    known = list(literals)
    if any(isinstance(literal, int) and literal for literal in known):
        return
    if any(isinstance(condition, int) and not condition for condition in conditions):
        return
    clause = [literal for literal in known if not isinstance(literal, int)]
    model.add_bool_or([*clause, *(~c for c in conditions if not isinstance(c, int))])


def enforced_maximum(
    model: cp_model.CpModel,
    terms: Iterable[tuple[tuple[Literal, ...], Linear]],
    upper: int,
    name: str,
) -> Linear:
    """A value >= 0 and >= every term whose literals all hold; not made smaller than needed.

    `upper` bounds every term. Minimisation makes it the maximum, since nothing else pulls it up.
    """
    kept = [
        (literals, term)
        for literals, term in terms
        if not (isinstance(term, int) and term <= 0)
        and not any(isinstance(literal, int) and not literal for literal in literals)
    ]
    certain = [
        term for literals, term in kept if all(isinstance(literal, int) for literal in literals)
    ]
    if len(certain) == len(kept):
        numbers = [term for term in certain if isinstance(term, int)]
        if len(numbers) == len(certain):
            return max(numbers, default=0)
        if len(certain) == 1:
            return certain[0]
    largest = model.new_int_var(0, upper, name)
    for literals, term in kept:
        require_at_most(model, term, largest, *literals)
    return largest
