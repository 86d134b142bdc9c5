"""Memory beside published figures: measured, of another model, of Megatron-LM's estimator."""

from pathlib import Path

import pytest

from bench.memory import MemoryRow, estimated, measured
from formulations.instance.instance import MARGIN_OF_MEASURED_PEAKS, MEASURED_PEAKS


def rows_of(rows: list[MemoryRow], source: str) -> list[MemoryRow]:
    return [row for row in rows if row.source.startswith(source)]


def test_figures_of_papers_and_estimators(reference: Path) -> None:
    """All 57 of Megatron-LM's estimator to the byte but for float noise, Korthikanti's to 3 %."""
    rows = list(estimated(reference))
    reproduced, paper = rows_of(rows, "Megatron"), rows_of(rows, "Korthikanti")
    assert (len(reproduced), len(paper)) == (3 * 19, 8)
    for row in reproduced:
        assert row.ours_bytes == pytest.approx(row.published_bytes, rel=1e-12), row
    for part, bound in (("parameters and optimizer", 0.02), ("activations", 0.03)):
        assert max(abs(row.error) for row in paper if row.part == part) <= bound


@pytest.mark.slow
def test_measured_memory(reference: Path) -> None:
    """Within 1 % of 22 runs on B200, 6 with experts and 4 with sequences that GPUs share."""
    rows = rows_of(list(measured(reference)), "SimuMax")
    assert len(rows) == 22
    assert max(abs(row.error) for row in rows) <= 0.01
    assert max(abs(row.other_error) for row in rows if row.other_error is not None) <= 0.014
    # What a plan says of them, and the margin: no peak is above what a plan that fits may need
    ends = min(row.error for row in rows), max(row.error for row in rows)
    text = f"peaks measured on B200: {100 * ends[0]:+.1f} to {100 * ends[1]:+.1f} %"
    assert {"B200": f"{len(rows)} {text}"} == MEASURED_PEAKS
    largest = [row.published_bytes * (1 - MARGIN_OF_MEASURED_PEAKS) for row in rows]
    assert all(row.ours_bytes >= most for row, most in zip(rows, largest, strict=True))
