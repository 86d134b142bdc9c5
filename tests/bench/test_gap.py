"""The gap benchmark: its arithmetic, its table, and one run in a process of its own."""

import pytest

from bench.gap import above_bound, compare, summary
from bench.methods import METHODS
from solver.options import SolveOptions
from tests.seeds import one_each
from tests.small_instances import random_instance


def figures(method: str, share: float | None) -> dict[str, object]:
    """A record as far as table and summary read it."""
    config = {"tp": 1, "dp": 2, "pp": 4, "micro_batch": 8}
    return {
        "instance": "tiny",
        "method": method,
        "status": "feasible",
        "shape": config if share is not None else None,
        "step_time_ns": 1_234_567 if share is not None else None,
        "above_bound": share,
        "runtime_s": 0.5,
        "peak_rss_bytes": 3 << 20,
    }


def test_distances_and_their_summary() -> None:
    """110 is 10 % above 100; without plan or bound there is none. 0 % and 10 %: mean 5 %."""
    assert above_bound(110.0, 100.0) == pytest.approx(0.1)
    assert [above_bound(*pair) for pair in ((None, 1.0), (1.0, None), (1.0, 0.0))] == [None] * 3
    records = [figures("minmax", 0.0), figures("minmax", 0.1), figures("minmax", None)]
    expected = "minmax: at most 0.01 % above the bound on 1 of 2, mean 5.00 %, worst 10.00 %"
    assert summary(records) == [expected]


@pytest.mark.slow
def test_records_have_plan_options_hardware_and_versions() -> None:
    """One rule-of-thumb run on a tiny instance, in its own process."""
    options = SolveOptions(time_limit_s=60)
    (one,) = compare("tiny", random_instance(0), ["megatron"], options)
    assert one["status"] == "feasible"
    assert one["termination"] == "heuristic"
    assert one["step_time_ns"] > 0
    assert one["above_bound"] is None
    assert one["peak_rss_bytes"] > 1 << 20
    assert one["cpu_s"] > 0
    assert one["options"]["time_limit_s"] == 60
    assert {"cpu", "cores", "memory_bytes"} <= one["hardware"].keys()
    assert {"python", "numpy", "ortools"} <= one["versions"].keys()


@pytest.mark.parametrize("seed", one_each(range(8), 4))
def test_no_rule_of_thumb_beats_the_exact_search(seed: int) -> None:
    """Tiny instances: every method's objective is at least the exact one's."""
    instance = random_instance(seed)
    found = {name: method(instance, SolveOptions()) for name, method in METHODS.items()}
    best = found["exact"]
    assert best.status in ("optimal", "infeasible")
    for outcome in found.values():
        if outcome.objective is not None:
            assert best.objective is not None
            assert outcome.objective >= best.objective
