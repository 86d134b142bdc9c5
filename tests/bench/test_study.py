"""The heuristic gap study: its optima against brute force and published plans."""

from pathlib import Path

import pytest

from bench.study import published


@pytest.mark.slow
def test_published_plans_are_held_against_their_own_optimum(reference: Path) -> None:
    plans = list(published(reference, limit_s=60))
    assert len(plans) == 21
    assert all(plan.bound_ns <= plan.optimum_ns <= plan.step_ns for plan in plans)
