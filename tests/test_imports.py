"""The solver libraries share one process; google/or-tools#5246 tells how they once could not."""

import subprocess
import sys

import pytest

CP_SAT = """
from ortools.sat.python import cp_model
model = cp_model.CpModel()
x = model.new_int_var(0, 9, "x")
model.add(2 * x <= 7)
model.maximize(x)
engine = cp_model.CpSolver()
assert engine.solve(model) == cp_model.OPTIMAL
assert engine.objective_value == 3
"""
HIGHS = """
import highspy
import pulp
problem = pulp.LpProblem("tiny", pulp.LpMaximize)
y = pulp.LpVariable("y", 0, 9, cat="Integer")
problem += y
problem += 2 * y <= 7
assert problem.solve(pulp.HiGHS(msg=False)) == pulp.LpStatusOptimal
assert y.value() == 3
"""


@pytest.mark.parametrize(
    "code", [CP_SAT + HIGHS, HIGHS + CP_SAT], ids=["cp-sat-first", "highs-first"]
)
def test_solver_libraries_share_a_process_in_either_order(code: str) -> None:
    """CP-SAT and HiGHS, imported in this order, both find max x with 2x <= 7, x whole: 3."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("methods", [("cpsat", "milp"), ("milp", "cpsat")])
def test_both_models_solve_in_one_process(methods: tuple[str, str]) -> None:
    """Whichever engine runs first, both prove the same optimum."""
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
