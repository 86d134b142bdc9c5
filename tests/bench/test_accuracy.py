"""How far simulated steps are from published ones, none of which any figure was fitted to."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bench.accuracy import Figures, predicted
from bench.accuracy_rows import cases
from bench.scatter import Point, scatter_picture

#: (source, system) -> rows, bounds of the mean and of the largest |error|: those found, times 1.1.
BOUNDS = {
    ("SimuMax", "B200"): (12, 0.06, 0.12),
    ("Megatron-Bridge", "H100"): (7, 0.17, 0.20),
    ("Megatron-Bridge", "GB200"): (12, 0.04, 0.18),
    ("Megatron-Bridge", "GB300"): (11, 0.28, 0.67),
}


@pytest.fixture(scope="module")
def rows(reference: Path) -> list[Figures]:
    """All rows of both sources."""
    return [predicted(case) for case in cases(reference)]


@pytest.mark.parametrize(("source", "system"), BOUNDS)
def test_errors_stay_within_bounds(rows: list[Figures], source: str, system: str) -> None:
    """Mean and largest error of the step time per source and system."""
    own = [row for row in rows if (row["source"], row["system"]) == (source, system)]
    errors = np.array([row["error"] for row in own if row["error"] is not None])
    number, most_mean, most = BOUNDS[source, system]
    assert len(errors) == number
    assert abs(errors.mean()) <= most_mean
    assert np.abs(errors).max() <= most


def test_every_row_has_a_plan_or_a_reason(rows: list[Figures]) -> None:
    """Rows without a plan of ours say what it lacks."""
    assert all((row["error"] is None) == (row["why_not"] is not None) for row in rows)
    assert Counter(row["why_not"] for row in rows) == {
        None: 42,
        "experts": 104,
        "context parallel": 4,
        "frozen weights (LoRA)": 5,
        "fp4": 8,
    }


def test_picture_has_a_circle_per_point() -> None:
    """Equal figures lie on the diagonal: at (1, 1) of axes from 0.5 to 2, in the middle."""
    points = [Point("a", 0.5, 0.5), Point("b", 1.0, 1.0), Point("b", 2.0, 2.0)]
    drawn = scatter_picture("title", "x", "y", points)
    assert drawn.count("<circle") == 3
    assert 'cx="282.0" cy="276.0"' in drawn  # 72 + 420 / 2, 66 + 420 / 2
