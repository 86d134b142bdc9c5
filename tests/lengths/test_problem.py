"""Promises of formulations.lengths.problem: times of sequences, and what does not fit together."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from formulations.lengths.problem import Atom, Mixed, Replica, RowTime, Strategy, Switching

FAST = Replica(2, 64, RowTime(0.5, 2.0, 7))
MIXED = Mixed(
    (Atom(8, 3), Atom(16, 2)),
    (Strategy("plan", (FAST,)), Strategy("measured", atoms_ns=(5, None))),
    Switching(((0, 1), (2, 0)), ((0, 3), (None, 0))),
)


def timed(**time: Any) -> dict[str, Any]:
    strategy = Strategy("plan", (replace(FAST, time=RowTime(**time)),))
    return {"strategies": (strategy, MIXED.strategies[1])}


def test_time_of_a_sequence_by_hand() -> None:
    """3 tokens: 0.5 x 9 + 2 x 3 = 10.5, rounded up; padded, that of the row, or of the longest."""
    assert RowTime(0.5, 2.0, 7).sequence_ns(3) == 11
    padded = RowTime(rows_ns=((8, 100), (16, 150)))
    assert [padded.sequence_ns(n) for n in (1, 8, 9, 16, 17)] == [100, 100, 150, 150, 150]


def test_replicas_are_counted_by_kind() -> None:
    """Two of one kind beside another one, then a third of the first kind."""
    slow = replace(FAST, longest_row=32)
    strategy = Strategy("mixed", (replace(FAST, count=2), slow, FAST))
    assert strategy.kinds == {FAST: 3, slow: 1}
    assert strategy.pipelines[2] == slow
    assert (strategy.dp, len(strategy.pipelines), strategy.longest) == (4, 4, 32)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"atoms": (Atom(8, 1), Atom(8, 1))}, "by ascending tokens"),
        ({"strategies": (Strategy("measured", atoms_ns=(5,)),) * 2}, "2, one for each atom"),
        ({"strategies": MIXED.strategies[:1]}, "1 times 1"),
        ({"switching": Switching(((0, 1), (2, 0)), ((0,), (0,)))}, "2 times 2"),
        (
            {
                "atoms": tuple(Atom(n, 1) for n in range(1, 4097)),
                "strategies": (Strategy("p", (FAST,)),) * 5,
            },
            "atoms squared times strategies",
        ),
        (timed(rows_ns=((8, 1), (16, 2))), "2, of padded rows"),
        ({**timed(rows_ns=((8, 1),)), "rows": "padded"}, "2, of padded rows"),
        ({**timed(per_row_ns=1, rows_ns=((8, 1), (16, 2))), "rows": "padded"}, "one of them"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: dict[str, Any], said: str) -> None:
    """Atoms, measured classes, tables of switches of other sizes; too many; rows without times."""
    with pytest.raises(PydanticCustomError, match=said):
        replace(MIXED, **change)
    assert replace(MIXED, **timed(rows_ns=((8, 1), (16, 2))), rows="padded").rows == "padded"


def test_a_strategy_has_one_kind_of_times() -> None:
    for fields in ({}, {"replicas": (FAST,), "atoms_ns": (1,)}):
        with pytest.raises(PydanticCustomError, match="one of them"):
            Strategy("x", **fields)  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        TypeAdapter(Atom).validate_python({"tokens": 0, "count": 1})
