"""The verbs of models, in both engines: terms that may be constants, rows, choices, maxima."""

import pytest

from formulations.models.model import Linear, Row, Solution, negated, of_numbers, total_of, weighted
from solver.result import Status
from tests.twins import TWINS, Twin, has_solution, least_values, solved

ENGINES = pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
Holds = tuple[int, int]


def test_what_is_certain_is_an_int() -> None:
    """2 x 1 + 3 x 0 + 5 x 1 = 7; a literal and its negation add up to 1."""
    assert weighted([2, 3, 5], [1, 0, 1]) == 7
    literal = Linear({3: 1})
    assert total_of(literal, negated(literal)) == 1
    assert of_numbers({1: 7, 2: 4}).excess(1, 2) == 3
    assert Solution([0, 0, 0, 3]).stands([(literal, 3)])
    for twin in TWINS:
        model = twin.model()
        assert model.maximum(0, [((1,), 2), ((), 5), ((0,), 9)], 9, "largest") == 5
        assert model.maximum(0, [], 0, "none") == 0
        assert not model.variables


@ENGINES
def test_constants_are_compared(twin: Twin) -> None:
    """4 <= 4 holds, 5 <= 4 does not: it makes its literal false, and says nothing under 0."""
    for smaller in (4, 5):
        for equal in (False, True):
            model = twin.model()
            (model.equal if equal else model.at_most)(0, smaller, 4)
            model.minimize(model.time("time"))
            assert has_solution(model) == (smaller == 4)
    model = twin.model()
    literal = model.literal("literal")
    model.at_most(0, 5, 4, literal)
    model.at_most(0, 5, 4, 0)
    implied = model.literal("implied")
    model.implies(0, negated(literal), implied)
    assert least_values(model, [negated(literal), implied]) == [1, 1]


@ENGINES
@pytest.mark.parametrize("holds", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_rows_hold_under_all_their_literals(twin: Twin, holds: Holds) -> None:
    """4 x + 3 <= time, for x = 1, under the first literal and not the second."""
    model = twin.model()
    x, first, second = (model.literal(name) for name in ("x", "first", "second"))
    for literal, value in zip((x, first, second), (1, *holds), strict=True):
        model.equal(0, literal, value)
    time = model.time("time")
    model.at_most(0, weighted([4, 3], [x, 1]), time, first, negated(second))
    assert least_values(model, [time]) == [7 if holds == (1, 0) else 0]


@ENGINES
@pytest.mark.parametrize(("holds", "largest"), [((0, 0), 2), ((1, 0), 7), ((1, 1), 9)])
def test_maximum(twin: Twin, holds: Holds, largest: int) -> None:
    model = twin.model()
    first, second = model.literal("first"), model.literal("second")
    for literal, value in zip((first, second), holds, strict=True):
        model.equal(0, literal, value)
    rows: list[Row] = [((1,), 2), ((first,), 7), ((first, second), 9)]
    assert least_values(model, [model.maximum(0, rows, 9, "largest")]) == [largest]


@ENGINES
@pytest.mark.parametrize("holds", [0, 1])
@pytest.mark.parametrize("chosen", [(0, 0), (1, 2), (2, 1)])
def test_choices_cost_what_is_chosen(twin: Twin, chosen: tuple[int, int], holds: int) -> None:
    """One of three options and one of three others: cost 10 a + b, if a third literal holds."""
    model = twin.model()
    firsts, seconds = ({n: model.literal(f"{name}_{n}") for n in range(3)} for name in "ab")
    given = model.literal("given")
    for options, number in zip((firsts, seconds), chosen, strict=True):
        model.exactly_one(0, options.values())
        model.equal(0, options[number], 1)
    model.equal(0, given, holds)
    first_options = [(literal, a) for a, literal in firsts.items()]
    single = of_numbers({a: 10 * a for a in range(3)})
    pairs = of_numbers({(a, b): 10 * a + b for a in range(3) for b in range(3)})
    rows = [
        model.choose(single, first_options, None, (given,)),
        model.choose(pairs, first_options, seconds, (given,)),
    ]
    terms = [model.maximum(0, own, 22, f"cost_{n}") for n, own in enumerate(rows)]
    a, b = chosen
    assert least_values(model, terms) == [10 * a * holds, (10 * a + b) * holds]


@ENGINES
def test_rows_of_an_alternative_hold_if_it_is_chosen(twin: Twin) -> None:
    """At least 5, 9 or an impossible 1 of the alternatives: the least that is possible is 5."""
    model = twin.model()
    times = []
    for name, least in (("a", 5), ("b", 9), ("c", 1)):
        part = model.alternative(name)
        literal, time = part.literal("literal"), part.time("time")
        part.some_of(0, [literal])
        # ``least`` times the literal of the alternative: it stands in the term as well
        part.at_most(0, weighted([-1, least + 1], [part.chosen or 1, 1]), time, literal)
        times.append(time)
        if name == "c":
            part.some_of(0, (), literal)
        assert part.variables is model.variables
    model.minimize(total_of(*times))
    outcome = solved(model)
    assert (outcome.status, outcome.objective) == (Status.OPTIMAL, 5)
