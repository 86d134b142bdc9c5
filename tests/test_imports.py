"""Which libraries a command loads, and that those of the solvers share one process."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize("methods", [("cpsat", "milp"), ("milp", "cpsat")])
def test_both_models_solve_in_one_process(methods: tuple[str, str]) -> None:
    """CP-SAT and HiGHS, loaded in either order, both prove the same optimum.

    google/or-tools#5246 tells how they once could not.
    """
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


ENGINES = {"ortools", "highspy", "pulp", "matplotlib", "pandas", "torch", "ray"}
PLANNER = {"numpy", "rich", "yaml", "formulations.instance", "solver.search", "solver.verify"}


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (["--help"], {*ENGINES, *PLANNER, "pydantic"}),
        (["solve", "--help"], {*ENGINES, *PLANNER}),  # newer Typer needs pydantic
        (["solve", "instances/hetero_small.yaml"], ENGINES),
    ],
)
def test_commands_load_what_they_need(arguments: list[str], unneeded: set[str]) -> None:
    """`--help` answers without the planner; engines come when a method asks for them."""
    code = f"""
import sys
from solver.cli import app
try:
    app({arguments})
finally:
    print(*sys.modules)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert not unneeded & set(done.stdout.splitlines()[-1].split())
