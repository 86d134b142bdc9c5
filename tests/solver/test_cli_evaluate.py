"""`evaluate` on the command line: what it prints and stores, and lines for what is refused."""

import json
from pathlib import Path

import pytest

from solver.document import PlanDocument
from solver.export import megatron
from tests.command_line import output, refused, run
from tests.export_cases import CLUSTER, job_of

DEGREES = ("--degrees", "pp=4,micro_batch=2,split=3/3/2/4,zero=1", "--order", "small,big,small")


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    """GPT-2 on three hosts."""
    path = tmp_path / "x.yaml"
    workload = "workload: {catalogue: gpt2, global_batch: 16}"
    path.write_text(f"name: three hosts\n{workload}\n{CLUSTER}\nsearch: {{target: any}}\n")
    return path


def test_text(instance: Path) -> None:
    """Stages, memory by kind, distance from the best plan, single changes, most saved first."""
    out = output("evaluate", instance, *DEGREES, "--gap", "0.01")
    for part in (
        "stage  layers",
        "memory per GPU",
        "step time     160.",
        "slower than it; at most",
    ):
        assert part in out
    lines = out.splitlines()
    table = lines[lines.index("one decision of the best plan put into this one, alone") + 3 :]
    assert len(table) >= 2
    [brings] = [line for line in lines if line.startswith("most brings ")]
    assert table[0].split("  ")[0] in brings


def test_without_a_search(instance: Path) -> None:
    """With a limit of 0 the plan is predicted, and held against nothing."""
    out = output("evaluate", instance, *DEGREES, "--time-limit", "0")
    assert "best plan" not in out


def test_json(instance: Path) -> None:
    """Step time, memory per GPU against its limit, distance and changes, without the plan file."""
    fields = json.loads(run("evaluate", instance, *DEGREES, "--json", "--gap", "0.01")[1])
    assert fields["fits"] is True
    assert len(fields["memory"]) == 8
    assert {"node", "gpus", "memory_bytes", "memory_limit_bytes"} <= set(fields["memory"][0])
    assert 0 < fields["best"]["above_best"] <= fields["best"]["above_bound"]
    assert fields["changes"][0]["saves_at_least"] > 0
    assert fields["shape"]["pp"] == 4


def test_stored_plan_is_one(instance: Path, tmp_path: Path) -> None:
    """Feasible, and taken by show, report, diff, verify, export; that evaluated is the same."""
    plan, job = tmp_path / "plan.json", tmp_path / "job"
    quick = ("--time-limit", "0")
    assert run("evaluate", instance, *DEGREES, *quick, "--out", plan)[0] == 0
    document = PlanDocument.read(plan)
    assert (document.status, document.termination) == ("feasible", "given")
    assert "the plan was given" in run("show", plan)[1]
    assert run("verify", plan)[0] == 0
    assert run("diff", plan, plan)[0] == 0
    assert run("report", plan, "--out", tmp_path / "page.html")[0] == 0
    assert run("export", plan, "--to", "megatron", "--out", job)[0] == 0
    file = job / megatron.ARGUMENTS
    again = run("evaluate", instance, "--megatron", file, *quick, "--json")[1]
    assert json.loads(again)["step_time_s"] == document.step_time_s


def test_plan_over_memory_is_told_and_not_stored(tmp_path: Path) -> None:
    """By stage and GPUs; a plan file keeps all limits."""
    path, out_file = tmp_path / "x.yaml", tmp_path / "plan.json"
    path.write_text(f"name: x\nworkload: {{catalogue: gpt2-xl, global_batch: 16}}\n{CLUSTER}")
    code, out, err = run(
        "evaluate", path, "--degrees", "micro_batch=2", "--time-limit", "0", "--out", out_file
    )
    assert code == 2
    assert "over memory   small-0..1: 0-1: " in out
    assert err.startswith(f"error: {out_file} is not written: replicas[")
    assert not out_file.exists()


def test_refusal_is_one_line(instance: Path, tmp_path: Path) -> None:
    """File and line on stderr, exit code 2, nothing printed and nothing written."""
    file, plan = tmp_path / "args.txt", tmp_path / "plan.json"
    file.write_text("--bf16\n--pipeline-model-parallel-size 5\n")
    err = refused("evaluate", instance, "--megatron", file, "--out", plan)
    assert err.startswith(f"error: {file}:2: --pipeline-model-parallel-size 5: 12 layers for 5")
    assert not plan.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "error: one of --megatron FILE, --torchtitan DIR, --degrees NAME=VALUE,...\n"),
        (("--megatron", "a.txt", "--degrees", "tp=1"), "error: one of --megatron FILE"),
        (("--megatron", "missing.txt"), "error: missing.txt: no such file"),
        (("--torchtitan", "missing"), "error: missing: no such folder"),
        (("--degrees", "tp=1", "--out", "gone/plan.json"), "error: cannot write gone/plan.json"),
    ],
)
def test_bad_options(
    options: tuple[str, ...], message: str, instance: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 and a line, before anything is searched."""
    monkeypatch.chdir(instance.parent)
    assert refused("evaluate", instance, *options).startswith(message)


def test_exported_torchtitan_folder(instance: Path, tmp_path: Path) -> None:
    """A plan of tied embeddings in several stages is none of torchtitan's."""
    from solver.export import torchtitan

    for name, text in torchtitan.files(job_of()).items():
        (tmp_path / name).write_text(text)
    assert "shape.dp, pp: found (2, 4)" in refused("evaluate", instance, "--torchtitan", tmp_path)
