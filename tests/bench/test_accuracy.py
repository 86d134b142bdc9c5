"""How far simulated steps are from published ones, none of which any figure was fitted to."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bench.accuracy import predicted
from bench.accuracy_rows import cases

#: (source, model, system) -> rows, bounds of the mean and of the largest |error|: found, times 1.1.
#: DeepSeek-V3 with all-to-alls between nodes is too slow, as recipes hide these: B200 with ep 32
#: (+156 %), H100 with ep 64. Qwen3 of early releases waited for launches, of late ones does not.
BOUNDS = {
    ("SimuMax", "llama3-70b", "B200"): (16, 0.08, 0.13),
    ("SimuMax", "deepseek-v2", "B200"): (6, 0.10, 0.17),
    ("Megatron-Bridge", "deepseek-v3", "GB300"): (10, 0.69, 1.09),
    ("Megatron-Bridge", "deepseek-v3", "GB200"): (10, 0.40, 0.66),
    ("Megatron-Bridge", "gpt-oss-120b", "GB300"): (8, 0.04, 0.33),
    ("Megatron-Bridge", "gpt-oss-120b", "GB200"): (8, 0.15, 0.34),
    ("Megatron-Bridge", "qwen3-30b-a3b", "GB300"): (8, 0.31, 0.66),
    ("Megatron-Bridge", "qwen3-30b-a3b", "GB200"): (9, 0.19, 0.64),
    ("Megatron-Bridge", "deepseek-v3", "B300"): (5, 0.17, 0.24),
    ("Megatron-Bridge", "gpt-oss-120b", "B300"): (5, 0.18, 0.24),
    ("Megatron-Bridge", "qwen3-30b-a3b", "B300"): (5, 0.21, 0.55),
    ("Megatron-Bridge", "qwen3-30b-a3b", "H100"): (7, 0.02, 0.58),
    ("Megatron-Bridge", "llama3-70b", "GB300"): (11, 0.28, 0.67),
    ("Megatron-Bridge", "llama3-70b", "GB200"): (12, 0.04, 0.18),
    ("Megatron-Bridge", "llama3-70b", "H100"): (7, 0.17, 0.20),
    ("Megatron-Bridge", "deepseek-v3", "B200"): (6, 0.29, 1.72),
    ("Megatron-Bridge", "gpt-oss-120b", "B200"): (5, 0.31, 0.51),
    ("Megatron-Bridge", "gpt-oss-120b", "H100"): (5, 0.16, 0.18),
    ("Megatron-Bridge", "qwen3-30b-a3b", "B200"): (6, 0.07, 0.59),
    ("Megatron-Bridge", "deepseek-v3", "H100"): (1, 1.13, 1.13),
}
#: Rows without a plan of ours say what it lacks.
REASONS = {None: 150, "frozen weights (LoRA)": 5, "fp4": 8}


@pytest.mark.slow
def test_errors_stay_within_bounds(reference: Path) -> None:
    rows = [predicted(case) for case in cases(reference)]
    for key, (number, mean_bound, bound) in BOUNDS.items():
        named = [r["error"] for r in rows if (r["source"], r["model"], r["system"]) == key]
        errors = np.array([error for error in named if error is not None])
        assert len(errors) == number
        assert abs(errors.mean()) <= mean_bound, key
        assert np.abs(errors).max() <= bound, key
    assert all((row["error"] is None) == (row["why_not"] is not None) for row in rows)
    assert Counter(row["why_not"] for row in rows) == REASONS
