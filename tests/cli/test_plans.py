"""What is done with files: `show`, `verify`, `export`; and what `catalogue` knows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formulations.errors import PlannerError
from formulations.instance.family import Family
from solver.cli.files import write_folder
from solver.document import PlanDocument, config_counts
from solver.export.registry import EXPORTERS
from solver.files import sealed, to_json
from solver.options import SolveOptions
from solver.plan_figures import build_document
from solver.result import SearchLog, Status, Termination
from solver.verify import cascade
from tests.certified import certified_document
from tests.command_line import output, refused, run
from tests.export_cases import UNTIED, instance_of, plan_of
from tests.hand_made import heuristic_result, result_of
from tests.small_instances import random_instance


def test_show_prints_stages_placement_and_timeline(plan_file: Path) -> None:
    """The three parts and the legend are there."""
    out = output("show", plan_file)
    for part in ("stage  layers", "node    GPU type", "F forward", "replicas 0-1"):
        assert part in out


def test_show_draws_no_plan(plan_file: Path, tmp_path: Path) -> None:
    """`--svg` is for other files; a plan's step is in the page of `report`."""
    err = refused("show", plan_file, "--svg", tmp_path / "step.svg")
    assert err == "error: --svg: a plan file; allowed: a front, switch or lengths file\n"
    assert not (tmp_path / "step.svg").exists()


@pytest.mark.parametrize("command", ["show", "verify"])
def test_plan_of_another_schema_version_is_refused(command: str, plan_file: Path) -> None:
    """The version found and the one allowed are named."""
    text = plan_file.read_text().replace('"schema_version": 11', '"schema_version": 99')
    plan_file.write_text(text)
    assert "schema version 99; allowed: 11" in refused(command, plan_file)


def test_verify_compares_with_the_instance(
    plan_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan for another instance than the given file is refused, naming the field."""
    other = heuristic_result().instance.model_copy(update={"name": "other"})
    family = Family(instance=other, fewest=tuple(one.nodes for one in other.cluster.groups))
    monkeypatch.setattr("solver.cli.kinds.load_family", lambda path: family)
    code, out, _ = run("verify", plan_file, "--instance", "other.yaml")
    assert code == 1
    assert f"instance.name: found '{heuristic_result().instance.name}', expected 'other'" in out


@pytest.fixture
def proved_file(tmp_path: Path) -> Path:
    """A plan file with proof, of which the verifier leaves two entries to the search's word."""
    path = tmp_path / "proved.json"
    path.write_text(to_json(certified_document(random_instance(25))))
    return path


@pytest.mark.parametrize("option", [("--quick",), ("--time-limit", "1e-9")])
def test_verify_exits_5_for_what_is_not_proved(proved_file: Path, option: tuple[str, ...]) -> None:
    """Exit code 5 and the claims that were not proved, whether time or patience was short."""
    code, out, err = run("verify", proved_file, *option)
    assert code == 5
    assert "not proved again: closed_configs[" in out
    assert "verified" not in out
    assert err.startswith(f"error: {proved_file}: nothing wrong, but ")


def test_verify_refuses_a_claim_with_a_plan(proved_file: Path) -> None:
    """Exit code 1, the field, and the step time of the plan; --quick leaves it unproved."""
    document = PlanDocument.read(proved_file)
    log = document.closed_configs
    index = next(i for i, one in enumerate(log) if one.bound_ns and one.config != document.config)
    none = log[index].model_copy(
        update={"reason": "infeasible", "proof": "cpsat", "bound_ns": None}
    )
    changed = document.model_copy(
        update={"closed_configs": (*log[:index], none, *log[index + 1 :])}
    )
    counted = changed.model_copy(update={"configs": config_counts(changed.closed_configs)})
    proved_file.write_text(to_json(sealed(counted)), encoding="utf-8")
    assert run("verify", proved_file, "--quick")[0] == 5
    code, out, err = run("verify", proved_file)
    assert code == 1
    assert f"refused: closed_configs[{index}].reason: found infeasible, " in out
    assert ", the step time of a plan: nodes " in out
    assert err.startswith("error: ")


def test_verify_interrupted_lists_what_is_left(
    proved_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C during the second claim: the first is proved again, the second listed; exit code 5."""
    outcomes = iter([cascade.searched])

    def interrupted(*arguments: Any) -> Any:
        prove = next(outcomes, None)
        if prove is None:
            raise KeyboardInterrupt
        return prove(*arguments)

    monkeypatch.setattr("solver.verify.cascade.searched", interrupted)
    code, out, _ = run("verify", proved_file)
    assert code == 5
    assert "checked: nothing more: interrupted\n" in out
    assert "paths 1, " in out
    assert "not proved again: closed_configs[" in out


def test_bug_show_took_a_forged_figure(plan_file: Path) -> None:
    """A resealed file with a better step time is not shown; the field is named."""
    document = PlanDocument.read(plan_file)
    assert document.step_time_s is not None
    forged = document.model_copy(update={"step_time_s": document.step_time_s / 2})
    plan_file.write_text(to_json(sealed(forged)), encoding="utf-8")
    assert "step_time_s: found" in refused("show", plan_file)


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
    export = ("export", plan, "--to", "megatron", "--out")
    assert run(*export, full)[0] == 0
    err = refused(*export, full)
    assert err.endswith("it is a folder with files; name a folder that does not exist yet\n")
    assert "it is a file" in refused(*export, plan)
    assert "No such file" in refused(*export, tmp_path / "no" / "job")


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
