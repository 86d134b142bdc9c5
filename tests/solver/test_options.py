"""Options of a search: what is out of range is refused in one line that says what is allowed."""

import json
from pathlib import Path

from solver.options import MAX_WORKERS, SolveOptions
from tests.refusals import check_refusals


def options_of(text: str) -> SolveOptions:
    fields = json.loads(text)
    return SolveOptions(**fields | {k: Path(v) for k, v in fields.items() if k == "write_model"})


test_refused = check_refusals("options", options_of)


def test_values_at_the_edge_are_taken() -> None:
    SolveOptions(gap=0.0, workers=MAX_WORKERS, seed=(1 << 31) - 1, time_limit_s=0.0)
    SolveOptions(method="cpsat", gap=0.999, write_model=Path("m.pbtxt"))
    SolveOptions(method="milp", write_model=Path("m.mps"))
