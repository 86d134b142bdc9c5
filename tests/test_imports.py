"""The solver libraries share one process; google/or-tools#5246 tells how they once could not."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("methods", [("cpsat", "milp"), ("milp", "cpsat")])
def test_both_models_solve_in_one_process(methods: tuple[str, str]) -> None:
    """CP-SAT and HiGHS, loaded in either order, both prove the same optimum."""
    code = f"""
from solver.options import SolveOptions
from solver.search.driver import solve
from tests.small_instances import random_instance
instance = random_instance(3)
first, second = (solve(instance, SolveOptions(method=method)) for method in {methods})
assert first.status == second.status == "optimal"
assert first.step_time_ns == second.step_time_ns
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
