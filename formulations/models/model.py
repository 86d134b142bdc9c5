"""A model in a handful of verbs: what a formulation says, and each engine puts in its own words.

Variables are whole numbers from 0 on, or times, which minimisation makes whole. Expressions have
whole coefficients, so that every row can be checked exactly. A decision that is fixed is an int
where a free one is an expression; rows and expressions then fold to constants.

Verbs: `integer`, `literal`, `time`; the rows `at_most`, `equal`, `exactly_one`, `some_of`, of which
`at_most` and `some_of` may hold under literals only; `joined` and `defined` for sums that
have a name; `choose` and `maximum` for the largest of costs of what is chosen; `alternative` for a
part of the model that may not be chosen. `models.cpsat` takes them as they are. `models.milp` makes
linear rows of them, and has every Big-M. (MathOpt of OR-Tools and linopy part model and engine
alike; neither has rows under several literals for both.)
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeAlias, TypeVar

#: A literal that is further from 0 and from 1 is neither.
FRACTION = 1e-5


class Linear:
    """Sum of coefficients times variables, by index, and a constant. Never changed once made."""

    __slots__ = ("constant", "terms")

    def __init__(self, terms: dict[int, int], constant: int = 0) -> None:
        self.terms, self.constant = terms, constant


Term: TypeAlias = Linear | int
Literal: TypeAlias = Term  #: worth 0 or 1 in every solution
Pairs: TypeAlias = Iterable[tuple[Linear, int]]  #: variables and values
Row: TypeAlias = tuple[tuple[Literal, ...], Term]  #: a term, and the literals under which it counts

#: Literals under which it counts, and options of which exactly one holds, with what they choose.
Choice: TypeAlias = tuple[tuple[Literal, ...], Sequence[tuple[Literal, Any]]]

Key = TypeVar("Key")


def weighted(values: Iterable[int], terms: Iterable[Term]) -> Term:
    """Sum of value times term; an int if every term that counts is one."""
    constant, sums = 0, dict[int, int]()
    for value, term in zip(map(int, values), terms, strict=True):
        if isinstance(term, int):
            constant += value * term
        elif value:
            constant += value * term.constant
            for index, coefficient in term.terms.items():
                sums[index] = sums.get(index, 0) + value * coefficient
    sums = {index: coefficient for index, coefficient in sums.items() if coefficient}
    return Linear(sums, constant) if sums else constant


def total_of(*terms: Term) -> Term:
    """Sum of terms; an int if all of them are."""
    return weighted([1] * len(terms), terms)


def negated(literal: Literal) -> Literal:
    """Whether a literal does not hold."""
    return weighted([1, -1], [1, literal])


@dataclass(frozen=True)
class Costs(Generic[Key]):
    """Costs >= 0 of alternatives.

    excess(a, b): the least M with cost of a - M <= cost of b, whatever the rest of the model says.
    largest: the largest cost that each may have.
    """

    values: Mapping[Key, Term]
    excess: Callable[[Key, Key], int]
    largest: Mapping[Key, int]

    @property
    def upper(self) -> int:
        """No alternative costs more."""
        return max(0, *self.largest.values()) if self.largest else 0


def of_numbers(numbers: Mapping[Key, int]) -> Costs[Key]:
    """Alternatives that cost given numbers."""
    return Costs(numbers, lambda a, b: numbers[a] - numbers[b], numbers)


@dataclass(frozen=True)
class Variable:
    """A variable from 0 on; no upper bound: None."""

    name: str
    upper: int | None
    integral: bool


class Solution:
    """Values of all variables in a solution, which an engine may say with an error."""

    def __init__(self, values: Sequence[float]) -> None:
        self._values = values

    def value(self, term: Term) -> int:
        """Value of a term of integers and literals."""
        if isinstance(term, int):
            return term
        terms = term.terms.items()
        return term.constant + sum(n * round(self._values[index]) for index, n in terms)

    def stands(self, pairs: Pairs) -> bool:
        """Whether variables have these values, but for the engine's tolerance."""
        return all(
            abs(self._values[index] - value) < FRACTION
            for variable, value in pairs
            for index in variable.terms
        )


class Model(ABC):
    """A model, or one alternative of it; `native` is what the engine runs, and grows with it.

    Of an alternative rows hold if it is chosen. If not, all variables may be 0, and literals are:
    a row a x <= b under any literals stands as a x <= b chosen.
    """

    native: Any

    def __init__(self) -> None:
        self.variables = list[Variable]()
        self.chosen: Linear | None = None
        self.integers = list[Linear]()  #: of this alternative
        self._suffix = ""

    # Variables

    @abstractmethod
    def _new_variable(self, variable: Variable) -> None:
        """Add a variable, the next of `variables`, to the native model."""

    def _variable(self, name: str, upper: int | None, integral: bool) -> Linear:
        variable = Variable(name + self._suffix, upper, integral)
        self._new_variable(variable)
        self.variables.append(variable)
        return Linear({len(self.variables) - 1: 1})

    def integer(self, name: str, upper: int) -> Linear:
        """A whole number up to `upper`; 0 unless the alternative is chosen."""
        variable = self._variable(name, upper, integral=True)
        if self.chosen is not None:
            self.at_most(23, variable, weighted([upper], [self.chosen]))
            self.integers.append(variable)
        return variable

    def literal(self, name: str) -> Linear:
        """0 or 1; 0 unless the alternative is chosen."""
        return self.integer(name, 1)

    def time(self, name: str, upper: int | None = None) -> Linear:
        """A time, in ns."""
        return self._variable(name, upper, integral=False)

    def upper(self, term: Term) -> int:
        """Largest value that the bounds of its variables leave a term."""
        if isinstance(term, int):
            return term
        bounds = [
            (coefficient, self.variables[index].upper) for index, coefficient in term.terms.items()
        ]
        if any(coefficient > 0 and bound is None for coefficient, bound in bounds):
            raise ValueError("a term without upper bound stands under literals")
        return term.constant + sum(n * bound for n, bound in bounds if n > 0 and bound is not None)

    # Rows; `number` is that of the constraint in the header of the formulation

    @abstractmethod
    def _row(self, number: int, difference: Linear, conditions: Sequence[Linear]) -> None:
        """Add `difference <= 0` under literals; see `at_most`."""

    @abstractmethod
    def _equality(self, number: int, difference: Linear) -> None:
        """Add `difference = 0`."""

    @abstractmethod
    def some_of(self, number: int, literals: Iterable[Literal], *conditions: Literal) -> None:
        """One of the literals holds, if all conditions do."""

    @abstractmethod
    def exactly_one(self, number: int, literals: Iterable[Linear]) -> None:
        """Exactly one of the literals holds."""

    def at_most(self, number: int, smaller: Term, larger: Term, *conditions: Literal) -> None:
        """`smaller <= larger` whenever all conditions hold."""
        if any(isinstance(condition, int) and not condition for condition in conditions):
            return
        free = [condition for condition in conditions if isinstance(condition, Linear)]
        difference = weighted([1, -1], [smaller, larger])
        if isinstance(difference, Linear):
            self._row(number, difference, free)
        elif difference > 0:
            self.some_of(number, (), *free)

    def equal(self, number: int, first: Term, second: Term) -> None:
        """`first = second`; two ints are compared."""
        difference = weighted([1, -1], [first, second])
        if isinstance(difference, Linear):
            self._equality(number, difference)
        elif difference:
            self.some_of(number, ())

    def implies(self, number: int, first: Literal, second: Literal) -> None:
        """If the first holds, the second does."""
        if first is not second:
            self.some_of(number, [second], first)

    @abstractmethod
    def within(self, number: int, time: Linear, lower: int | None, upper: int | None) -> None:
        """Bounds of a time that is whole in every plan; they exclude none."""

    def exclude(self, number: int, pairs: Pairs) -> None:
        """At least one literal differs from its value here."""
        turned = [negated(variable) if value else variable for variable, value in pairs]
        self.some_of(number, turned)

    # Sums and maxima

    @abstractmethod
    def joined(self, number: int, literals: Sequence[Linear], name: str) -> Literal:
        """Whether one of exclusive literals holds."""

    @abstractmethod
    def defined(self, number: int, term: Term, upper: int, name: str) -> Term:
        """A term that many rows use."""

    def bounded(self, number: int, term: Term, upper: int, name: str) -> Term:
        """A variable that is at least a term of at most `upper`; an int if that is one."""
        if isinstance(term, int):
            return term
        variable = self.time(name, upper)
        self.at_most(number, term, variable)
        return variable

    @abstractmethod
    def choose(
        self,
        costs: Costs[Any],
        options: Iterable[tuple[Literal, Any]],
        seconds: Mapping[Any, Literal] | None = None,
        holds: tuple[Literal, ...] = (),
    ) -> list[Row]:
        """Rows of which the largest is the cost of the option whose literal is 1; one is.

        seconds: options of a second choice, if there is one; costs are then of pairs. holds: only
        if all of these hold does it cost anything.
        """

    @abstractmethod
    def _is_value(self, term: Linear) -> bool:
        """Whether a term that is the only one to count may stand for the maximum."""

    def maximum(self, number: int, rows: Iterable[Row], upper: int, name: str) -> Term:
        """A value >= 0 and >= every term whose literals all hold; not made smaller than needed.

        `upper` bounds all of them. Minimisation makes it the maximum: nothing else pulls it up.
        A variable, where the rows do not tell the value.
        """
        constant, kept = 0, dict[object, tuple[tuple[Linear, ...], Term]]()
        for literals, term in rows:
            free = tuple(literal for literal in literals if isinstance(literal, Linear))
            if any(isinstance(literal, int) and not literal for literal in literals):
                continue
            if isinstance(term, int) and not free:
                constant = max(constant, term)
            elif not isinstance(term, int) or term > 0:
                kept[(*map(id, free), id(term))] = free, term
        if not kept:
            return constant
        [(free, term), *more] = kept.values()
        if isinstance(term, Linear) and not (more or free or constant) and self._is_value(term):
            return term
        largest = self.time(name, upper)
        if constant:
            self.at_most(number, constant, largest)
        for free, term in kept.values():
            self.at_most(number, term, largest, *free)
        return largest

    def largest(
        self,
        number: int,
        costs: Costs[Any],
        choices: Iterable[Choice],
        name: str,
        seconds: Mapping[Any, Literal] | None = None,
    ) -> Term:
        """The largest cost of what is chosen, over all choices; see `choose` and `maximum`."""
        rows = [
            row for holds, options in choices for row in self.choose(costs, options, seconds, holds)
        ]
        return self.maximum(number, rows, costs.upper, name)

    # The whole model

    @abstractmethod
    def minimize(self, term: Term) -> None:
        """What is minimised."""

    @abstractmethod
    def hint(self, pairs: Pairs) -> None:
        """Start the engine from these values, and from no others."""

    @abstractmethod
    def solution(self, values: Sequence[float]) -> Solution:
        """What the engine's vector of values stands for."""

    @abstractmethod
    def _one_more(self, chosen: Linear) -> None:
        """(23) Exactly one of the alternatives is chosen, with this one among them."""

    def alternative(self, name: str) -> Self:
        """A part of the model that may be chosen; exactly one of all alternatives is."""
        chosen = self.literal(name)
        self._one_more(chosen)
        part = copy.copy(self)
        part.chosen, part.integers, part._suffix = chosen, [], f"_of_{name}"
        return part
