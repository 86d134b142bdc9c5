"""`export` on the command line: a folder, whole or not at all, and lines for what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formulations.errors import PlannerError
from solver.cli.files import write_folder
from solver.export.registry import EXPORTERS
from solver.files import to_json
from solver.options import SolveOptions
from solver.report.document import build_document
from solver.result import SearchLog, Status, Termination
from tests.command_line import refused, run
from tests.export_cases import UNTIED, instance_of, plan_of
from tests.hand_made import result_of


def plan_file(folder: Path, workload: str = UNTIED, **plan: Any) -> Path:
    """A stored plan of which nothing is claimed but that it is one."""
    instance = instance_of(workload, "target: any, recompute: none, schedule: [1f1b, zb-h1]")
    claimed = result_of(instance, plan_of(instance, **plan))
    result = replace(
        claimed,
        status=Status.FEASIBLE,
        termination=Termination.HEURISTIC,
        bound=None,
        log=SearchLog(),
    )
    path = folder / "plan.json"
    path.write_text(to_json(build_document(result, SolveOptions())))
    return path


@pytest.mark.parametrize("target", EXPORTERS)
def test_folder_of_a_target(target: str, tmp_path: Path) -> None:
    """A plan of one stage in two micro-batches on all hosts, or a line that says what to change."""
    plan = plan_file(tmp_path)
    code, out, err = run("export", plan, "--to", target, "--out", tmp_path / "job")
    if code:
        assert (code, out) == (2, "")
        assert err.startswith(f"error: {plan}: ")
        assert "; allowed: " in err
        assert not (tmp_path / "job").exists()
        return
    files = {path.name for path in (tmp_path / "job").iterdir()}
    assert {"torchrun.sh", "hosts.txt", "ranks.csv"} <= files
    assert "they sum to the plan" in out
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_refusal_names_who_can(tmp_path: Path) -> None:
    """Zero bubble: not by Megatron-LM, by torchtitan's schedule file."""
    plan = plan_file(tmp_path, schedule="zb-h1")
    err = refused("export", plan, "--to", "megatron", "--out", tmp_path / "job")
    assert err == (
        f"error: {plan}: schedule: zb-h1 is not for Megatron-LM, which has no such schedule;"
        " allowed: search.target: megatron, and solve again, or --to torchtitan\n"
    )


def test_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    """Nothing is overwritten; an empty folder may be filled."""
    plan, full = plan_file(tmp_path), tmp_path / "job"
    full.mkdir()
    assert run("export", plan, "--to", "megatron", "--out", full)[0] == 0
    err = refused("export", plan, "--to", "megatron", "--out", full)
    assert err.endswith("it is a folder with files; name a folder that does not exist yet\n")
    assert "it is a file" in refused("export", plan, "--to", "megatron", "--out", plan)
    err = refused("export", plan, "--to", "megatron", "--out", tmp_path / "no" / "job")
    assert "No such file" in err


def test_failed_check_leaves_nothing(tmp_path: Path) -> None:
    """Files that do not sum to the plan never get their name."""

    def check(texts: object) -> None:
        raise PlannerError("export failed: layers")

    with pytest.raises(PlannerError, match="layers"):
        write_folder(tmp_path / "job", {"a.txt": "1\n"}, check)
    assert list(tmp_path.iterdir()) == []


def test_changed_plan_is_refused(tmp_path: Path) -> None:
    """A plan that verify would not accept is not exported."""
    plan = plan_file(tmp_path)
    plan.write_text(plan.read_text().replace('"micro_batches": 4', '"micro_batches": 3', 1))
    err = refused("export", plan, "--to", "megatron", "--out", tmp_path / "job")
    assert "verify names every field" in err
