"""The command line as a whole, and the commands `solve` and `evaluate`."""

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from formulations.errors import PlannerError
from solver.cli import app
from solver.document import PlanDocument
from solver.export import megatron
from solver.files import HETPLAN_VERSION
from solver.options import SolveOptions
from solver.result import Infeasibility, Result, Status, Termination
from tests.command_line import output, refused, run
from tests.export_cases import CLUSTER, job_of
from tests.hand_made import pipelined_result, planless_result

ROOT = Path(__file__).resolve().parent.parent.parent

Answer = Callable[[Result], None]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """A function that makes `solve` find the given result, whatever the file."""

    def use(result: Result) -> None:
        monkeypatch.setattr(
            "formulations.instance.load.load_instance", lambda *_, **__: result.instance
        )
        monkeypatch.setattr("solver.search.targets.solve", lambda *_: result)

    return use


def infeasible() -> Result:
    """A proof that there is no plan."""
    return replace(
        planless_result(Status.INFEASIBLE, Termination.CLOSED),
        infeasibility=Infeasibility("every GPU lacks 2 GiB", "GPUs with 10 GiB"),
    )


# Options


def test_commands_and_options_stay() -> None:
    """Scripts rely on the names in command_line.txt; removing one breaks them."""
    commands = dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    options = {
        name: sorted(option for parameter in command.params for option in parameter.opts)
        for name, command in commands.items()
        if not command.hidden
    }
    lines = (ROOT / "tests" / "data" / "command_line.txt").read_text(encoding="utf-8").splitlines()
    rows = (line.partition(":") for line in lines)
    assert options == {name: words.split() for name, _, words in rows}
    assert run("--version") == (0, f"hetplan {HETPLAN_VERSION}\n", "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("subsets x.yaml --gap 0.1", "subsets: now hetplan pareto INSTANCE --subsets"),
        ("study show study.db --json", "study: now hetplan show --study STUDY"),
        ("workload gpt2", "workload: now hetplan catalogue NAME"),
        ("schema --help", "schema: now hetplan catalogue --schema"),
    ],
)
def test_old_commands_say_the_new_one(old: str, new: str) -> None:
    """One line and exit code 2, whatever else is asked for; the list of commands lacks them."""
    assert refused(*old.split()) == f"error: {new}\n"
    assert not re.search(rf"^  {old.split()[0]} ", output("--help"), re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("show", "name either a PLAN file or, with --study, what a search keeps"),
        ("show x.json --study x.db", "name either a PLAN file or, with --study"),
        ("show --study x.db --svg x.svg", "--svg draws a file; a study has no picture"),
        ("show x.json --json", "--json is for --study; x.json is JSON already"),
        ("pareto x.yaml --subsets --budget 5", "--subsets is of time, so no --budget"),
        ("catalogue --schema gpt2", "--schema is of all instance files, so no NAME; found: gpt2"),
        ("catalogue --global-batch 5", "--sequence-length and --global-batch are of a workload"),
    ],
)
def test_options_of_another_question_are_refused(arguments: str, line: str) -> None:
    """They would have no effect."""
    assert refused(*arguments.split()).startswith(f"error: {line}")


@pytest.mark.parametrize(
    "option",
    [
        ("--gap", "1"),
        ("--gap", "-0.1"),
        ("--gap", "nan"),
        ("--gap", "a lot"),
        ("--time-limit", "0"),
        ("--time-limit", "inf"),
        ("--workers", "0"),
        ("--workers", "2000"),
        ("--seed", "-1"),
        ("--seed", "2147483648"),
        ("--method", "fast"),
        ("--address", "auto"),
    ],
)
def test_absurd_options_are_refused(answer: Answer, option: tuple[str, str]) -> None:
    """Exit code 2, the option named, nothing searched and nothing printed to stdout."""
    answer(pipelined_result())
    code, out, err = run("solve", "x.yaml", *option)
    assert (code, out) == (2, "")
    assert option[0] in err


def test_options_reach_the_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every option of the command line is one of SolveOptions."""
    seen, result, model = [], pipelined_result(), tmp_path / "model.pb"
    loaded = "formulations.instance.load.load_instance"
    monkeypatch.setattr(loaded, lambda *_, **__: result.instance)

    def solve(_: object, options: SolveOptions, *__: object) -> Result:
        seen.append(options)
        return result

    monkeypatch.setattr("solver.search.targets.solve", solve)
    options = ("--method", "cpsat", "--time-limit", "9", "--gap", "0.1", "--seed", "3")
    run("solve", "x.yaml", *options, "--workers", "2", "--write-model", str(model))
    run("solve", "x.yaml")
    cores = len(os.sched_getaffinity(0))
    assert seen == [SolveOptions("cpsat", 9.0, 0.1, 3, 2, model), SolveOptions(workers=cores)]


@pytest.mark.parametrize(
    "options",
    [
        ("--method", "cpsat", "--write-model", "model.lp"),
        ("--method", "milp", "--write-model", "gone/model.lp"),
        ("--out", "gone/plan.json"),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_the_search(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A format that the method lacks, a folder that is not there: one line, exit code 2."""
    monkeypatch.chdir(tmp_path)
    err = refused("solve", "missing.yaml", *options)
    assert err.startswith(f"error: cannot write {options[-1]}")


def test_help_loads_no_engine() -> None:
    """`--help` answers at once: no numerics, models or engines are imported for it."""
    import subprocess

    heavy = "{'numpy', 'ortools', 'pydantic', 'rich', 'highspy', 'pulp', 'yaml'}"
    code = f"""import sys
from solver.cli import app
try:
    app(["solve", "--help"])
except SystemExit:
    print(sorted({heavy} & set(sys.modules)))"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] in ("[]", "['pydantic']")  # newer Typer needs pydantic


@pytest.mark.parametrize(
    ("words", "completed"),
    [("hetplan so", ["solve"]), ("hetplan export x --to mega", ["megatron", "megatron-bridge"])],
)
def test_shells_complete_commands_and_values(
    words: str, completed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the script of `--show-completion` asks for at every press of Tab."""
    monkeypatch.setenv("_HETPLAN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    done = CliRunner().invoke(app, prog_name="hetplan")
    assert done.stdout.split() == completed


# Exit codes


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (pipelined_result(), 0),
        (replace(pipelined_result(), status=Status.FEASIBLE), 0),
        (infeasible(), 3),
        (planless_result(Status.UNKNOWN, Termination.TIME_LIMIT), 4),
    ],
    ids=["optimal", "feasible", "infeasible", "unknown"],
)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_exit_code_tells_the_status(
    answer: Answer, result: Result, code: int, form: tuple[str, ...]
) -> None:
    """0 for a plan, 3 for none, 4 for none found, in either form of output."""
    answer(result)
    assert run("solve", "x.yaml", *form)[0] == code


# Output of solve


def test_infeasible_instance_names_constraint_and_remedy(answer: Answer) -> None:
    """Both sentences of the result are printed; with --json to stderr, beside null figures."""
    answer(infeasible())
    out = run("solve", "x.yaml")[1]
    assert "not met       every GPU lacks 2 GiB" in out
    assert "would help    GPUs with 10 GiB" in out
    _, out, err = run("solve", "x.yaml", "--json")
    fields = json.loads(out)
    assert fields["status"] == "infeasible"
    assert fields["step_time_s"] is fields["config"] is None
    assert err == "every GPU lacks 2 GiB; GPUs with 10 GiB\n"


def test_text_does_not_depend_on_the_window(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where stdout is no terminal, COLUMNS changes nothing and no line is padded."""
    answer(pipelined_result())
    texts = set()
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        texts.add(run("solve", "x.yaml")[1])
    [text] = texts
    assert all(line == line.rstrip() for line in text.splitlines())
    assert "\x1b" not in text


def test_out_writes_what_json_prints(answer: Answer, tmp_path: Path) -> None:
    """The plan file is the printed object, with the log of the proof; no other file is left."""
    answer(pipelined_result())
    _, out, _ = run("solve", "x.yaml", "--json", "--proof", "--out", tmp_path / "plan.json")
    assert (tmp_path / "plan.json").read_text(encoding="utf-8") == out
    _, short, _ = run("solve", "x.yaml", "--json")
    assert set(json.loads(out)) - set(json.loads(short)) == {"closed_configs"}
    assert os.listdir(tmp_path) == ["plan.json"]


def test_failing_write_still_prints_the_plan(
    answer: Answer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A disk that is full after the search does not lose the result."""
    answer(pipelined_result())

    def full(_: Path, __: str) -> None:
        raise PlannerError("cannot write plan.json: disk full")

    monkeypatch.setattr("solver.cli.solving.write_text", full)
    code, out, err = run("solve", "x.yaml", "--out", tmp_path / "plan.json")
    assert (code, err) == (2, "error: cannot write plan.json: disk full\n")
    assert "step time" in out


def test_printed_plan_without_its_proof_is_no_plan_file(answer: Answer, tmp_path: Path) -> None:
    """`verify` says what is missing, and which option adds it; so does --proof without --json."""
    answer(pipelined_result())
    path = tmp_path / "plan.json"
    path.write_text(run("solve", "x.yaml", "--json")[1], encoding="utf-8")
    code, _, err = run("verify", path)
    assert (code, err) == (
        2,
        f"error: {path}:1:1: no closed_configs; allowed: a plan file written by solve --out, "
        "or by solve --json --proof\n",
    )
    assert "--json" in refused("solve", "x.yaml", "--proof")


DEGREES = ("--degrees", "pp=4,micro_batch=2,split=3/3/2/4,zero=1", "--order", "small,big,small")


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    """GPT-2 on three hosts."""
    path = tmp_path / "x.yaml"
    workload = "workload: {catalogue: gpt2, global_batch: 16}"
    path.write_text(f"name: three hosts\n{workload}\n{CLUSTER}\nsearch: {{target: any}}\n")
    return path


def test_evaluation_in_words(instance: Path) -> None:
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


def test_evaluation_as_data(instance: Path) -> None:
    """Step time, memory per GPU against its limit, distance and changes, without the plan file."""
    fields = json.loads(run("evaluate", instance, *DEGREES, "--json", "--gap", "0.01")[1])
    assert fields["fits"] is True
    assert len(fields["memory"]) == 8
    assert {"node", "gpus", "memory_bytes", "memory_limit_bytes"} <= set(fields["memory"][0])
    assert 0 < fields["best"]["above_best"] <= fields["best"]["above_bound"]
    assert fields["changes"][0]["saves_at_least"] > 0
    assert fields["config"]["pp"] == 4


def test_stored_plan_is_one(instance: Path, tmp_path: Path) -> None:
    """Feasible, and taken by show, report, diff, verify, export; that evaluated is the same.

    With a limit of 0 the plan is predicted, and held against nothing.
    """
    plan, job = tmp_path / "plan.json", tmp_path / "job"
    quick = ("--time-limit", "0")
    assert "best plan" not in output("evaluate", instance, *DEGREES, *quick, "--out", plan)
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "error: one of --megatron FILE, --torchtitan DIR, --degrees NAME=VALUE,...\n"),
        (("--megatron", "a.txt", "--degrees", "tp=1"), "error: one of --megatron FILE"),
        (("--megatron", "missing.txt"), "error: missing.txt: no such file"),
        (("--torchtitan", "missing"), "error: missing: no such folder"),
        (
            ("--megatron", "args.txt"),
            "error: args.txt:2: --pipeline-model-parallel-size 5: 12 layers for 5",
        ),
        (("--degrees", "tp=1", "--out", "gone/plan.json"), "error: cannot write gone/plan.json"),
    ],
)
def test_bad_options(
    options: tuple[str, ...], message: str, instance: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 and a line with file and line, before anything is searched."""
    monkeypatch.chdir(instance.parent)
    Path("args.txt").write_text("--bf16\n--pipeline-model-parallel-size 5\n")
    assert refused("evaluate", instance, *options).startswith(message)


def test_exported_torchtitan_folder(instance: Path, tmp_path: Path) -> None:
    """A plan of tied embeddings in several stages is none of torchtitan's."""
    from solver.export import torchtitan

    for name, text in torchtitan.files(job_of()).items():
        (tmp_path / name).write_text(text)
    assert "config.dp, pp: found (2, 4)" in refused("evaluate", instance, "--torchtitan", tmp_path)
