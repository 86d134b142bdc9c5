"""The benchmarks of gaps and of fleets: no method beats the exact one, in small."""

import pytest

from bench.fleets import CASES, contradicted, measured
from bench.gap import METHODS
from solver.options import SolveOptions
from tests.seeds import one_each
from tests.small_instances import random_instance


@pytest.mark.parametrize("seed", one_each(range(8), 8))
def test_no_rule_of_thumb_beats_the_exact_search(seed: int) -> None:
    instance = random_instance(seed)
    results = {name: method(instance, SolveOptions()) for name, method in METHODS.items()}
    best = results["exact"]
    assert best.status in ("optimal", "infeasible")
    objectives = [r.objective for r in results.values() if r.objective is not None]
    assert min(objectives, default=None) == best.objective


def test_a_small_case_is_measured_and_not_contradicted() -> None:
    """30 nodes; HiGHS agrees, and both fleets verify."""
    figures = measured(CASES / "nodes_0030.yaml", faults=5, time_limit_s=20)
    assert figures["verified"]
    assert not contradicted(figures)
    assert contradicted(figures | {"milp_step_ns": figures["step_ns"] - 1})
    assert contradicted(figures | {"verified": False})
