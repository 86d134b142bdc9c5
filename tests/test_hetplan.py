"""The Python API: what it gives back, what it refuses, and that importing it is quick."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

import hetplan
from solver.document import PlanDocument
from solver.files import to_json
from solver.report.quantities import time_text
from solver.result import Infeasibility, OtherTarget, Status, Termination
from tests.hand_made import document_of, pipelined_result, planless_result
from tests.small_instances import random_instance

SLOW = {"numpy", "ortools", "pulp", "highspy", "pydantic", "yaml", "rich", "typer"}


def test_import_loads_no_library() -> None:
    """`import hetplan` needs the standard library alone; the rest comes when it is called."""
    code = "import sys, hetplan; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not SLOW & set(done.stdout.split())


def test_solve_takes_an_instance() -> None:
    """The plan of an instance in memory is proved, timed in seconds, and verified.

    A plan for another instance is told field by field.
    """
    solution = hetplan.solve(random_instance(3))
    assert (solution.status, solution.gap) == ("optimal", 0.0)
    assert solution.step_time_s == solution.lower_bound_s
    assert hetplan.verify(solution, random_instance(3)).complete
    assert hetplan.verify(solution, quick=True, time_limit_s=10).problems == ()
    problems = hetplan.verify(solution, random_instance(2)).problems
    assert any(line.startswith("instance.name: found ") for line in problems)


def test_solution_says_what_the_command_writes_and_prints(tmp_path: Path) -> None:
    """JSON as in a plan file, which can be loaded again; a summary in at most 100 columns."""
    solution = hetplan.Solution(document_of(pipelined_result()))
    assert solution.to_json() == to_json(solution.document)
    path = tmp_path / "plan.json"
    path.write_text(solution.to_json(), encoding="utf-8")
    assert hetplan.load_plan(path) == solution
    assert solution.step_time_s is not None
    lines = solution.summary().splitlines()
    assert any(re.match(rf"step time +{time_text(solution.step_time_s)};", line) for line in lines)
    assert max(map(len, lines)) <= 100
    # Without a plan: the constraint that cannot be met, and what would help
    document = document_of(planless_result(Status.INFEASIBLE, Termination.CLOSED))
    solution = hetplan.Solution(document, Infeasibility("memory of a GPU", "larger GPUs"))
    assert "not met       memory of a GPU\nwould help    larger GPUs\n" in solution.summary()


def test_bug_gains_that_nobody_can_prove_stood_in_plan_files() -> None:
    """They are said beside the plan; a file that states them is not read."""
    other = OtherTarget(target="any", gain=0.1, search="{target: any}")
    solution = hetplan.Solution(document_of(pipelined_result()), other_targets=(other,))
    assert "elsewhere     any target: not yet ruled out" in solution.summary(details=True)
    fields = json.loads(solution.to_json())
    assert not [name for name in fields if "other" in name]
    with pytest.raises(ValidationError):
        PlanDocument.model_validate_json(json.dumps(fields | {"other_targets": []}))


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(hetplan.PlannerError, match=r"^seed: -1; allowed: 0 to 2\^31 - 1$"):
        hetplan.solve(random_instance(0), seed=-1)
    with pytest.raises(hetplan.PlannerError, match="no such file"):
        hetplan.load(tmp_path / "x.yaml")
