"""Options of a search: what is out of range is refused in one line that says what is allowed."""

from pathlib import Path
from typing import Any

import pytest

from formulations.errors import PlannerError
from solver.options import MAX_WORKERS, SolveOptions


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "guess"}, "method: 'guess'; allowed: exact or minmax or cpsat or milp"),
        ({"time_limit_s": float("nan")}, "time_limit_s: nan; allowed: None or seconds"),
        ({"gap": 1.0}, "gap: 1.0; allowed: at least 0 and below 1; 0.01 is one per cent"),
        ({"gap": -0.1}, "gap: -0.1; allowed: at least 0 and below 1; 0.01 is one per cent"),
        ({"seed": 1 << 31}, "seed: 2147483648; allowed: 0 to 2^31 - 1"),
        ({"seed": -1}, "seed: -1; allowed: 0 to 2^31 - 1"),
        ({"workers": 0}, "workers: 0; allowed: 1 to 1024"),
        ({"workers": MAX_WORKERS + 1}, "workers: 1025; allowed: 1 to 1024"),
        ({"engine": "threads"}, "engine: 'threads'; allowed: processes or ray"),
    ],
)
def test_values_out_of_range_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PlannerError) as refused:
        SolveOptions(**fields)
    assert str(refused.value) == message


def test_values_at_the_edge_are_taken() -> None:
    SolveOptions(gap=0.0, workers=MAX_WORKERS, seed=(1 << 31) - 1, time_limit_s=0.0)
    SolveOptions(method="cpsat", gap=0.999, write_model=Path("m.pbtxt"))
    SolveOptions(method="milp", write_model=Path("m.mps"))
    with pytest.raises(PlannerError, match=r"written as .* by cpsat, .* by milp$"):
        SolveOptions(method="cpsat", write_model=Path("m.mps"))
