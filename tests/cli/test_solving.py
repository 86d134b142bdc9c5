"""The command line as a whole, and `solve`, `evaluate` and `lengths`."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import typer.main

from formulations.errors import PlannerError
from solver.cli import app
from solver.evaluate.evaluation import row_plans
from solver.files import HETPLAN_VERSION, to_json
from solver.lengths.candidates import candidates
from solver.lengths.choose import build_lengths, choose
from solver.lengths_document import LengthsDocument
from solver.options import SolveOptions
from solver.result import Infeasibility, Result, Status, Termination
from tests.command_line import refused, run
from tests.conftest import text_of
from tests.docs_pages import check_consoles
from tests.hand_made import pipelined_result, planless_result
from tests.mixed_lengths import small
from tests.refusals import refusals
from tests.verify.forgeries import change

Answer = Callable[[Result], None]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """A function that makes `solve` find the given result, whatever the file."""

    def use(result: Result) -> None:
        monkeypatch.setattr(
            "formulations.instance.load.load_instance", lambda *_, **__: result.instance
        )
        monkeypatch.setattr("solver.search.driver.solve_with_targets", lambda *_: result)

    return use


# What runs today beside the best plan, what is refused, commands that have moved; fronts
test_consoles_of_solving = check_consoles("solving", "clusters")


# Options


def test_commands_and_options_stay() -> None:
    """Scripts rely on the names in command_line.txt; removing one breaks them."""
    commands = dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    options = {
        name: sorted(option for parameter in command.params for option in parameter.opts)
        for name, command in commands.items()
        if not command.hidden
    }
    lines = text_of("command_line.txt").splitlines()
    rows = (line.partition(":") for line in lines)
    assert options == {name: words.split() for name, _, words in rows}
    assert run("--version") == (0, f"hetplan {HETPLAN_VERSION}\n", "")


def test_options_reach_the_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen, result, model = [], pipelined_result(), tmp_path / "model.pb"
    loaded = "formulations.instance.load.load_instance"
    monkeypatch.setattr(loaded, lambda *_, **__: result.instance)

    def solve(_: object, options: SolveOptions, *__: object) -> Result:
        seen.append(options)
        return result

    monkeypatch.setattr("solver.search.driver.solve_with_targets", solve)
    options = ("--method", "cpsat", "--time-limit", "9", "--gap", "0.1", "--seed", "3")
    run("solve", "x.yaml", *options, "--workers", "2", "--write-model", str(model))
    run("solve", "x.yaml")
    cores = len(os.sched_getaffinity(0))
    assert seen == [SolveOptions("cpsat", 9.0, 0.1, 3, 2, model), SolveOptions(workers=cores)]


# Output of solve


INFEASIBLE = replace(
    planless_result(Status.INFEASIBLE, Termination.CLOSED),
    infeasibility=Infeasibility("every GPU lacks 2 GiB", "GPUs with 10 GiB"),
)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (pipelined_result(), 0),
        (INFEASIBLE, 3),
        (planless_result(Status.UNKNOWN, Termination.TIME_LIMIT), 4),
    ],
    ids=["optimal", "infeasible", "unknown"],
)
def test_exit_code_tells_the_status(answer: Answer, result: Result, code: int) -> None:
    """0 for a plan, 3 for none, 4 for none found, in either form of output."""
    answer(result)
    text, data = run("solve", "x.yaml"), run("solve", "x.yaml", "--json")
    assert text[0] == data[0] == code
    assert json.loads(data[1])["status"] == result.status
    if result.infeasibility is not None:
        assert "not met       every GPU lacks 2 GiB" in text[1]
        assert data[2] == "every GPU lacks 2 GiB; GPUs with 10 GiB\n"


def test_failing_write_still_prints_the_plan(
    answer: Answer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer(pipelined_result())

    def full(_: Path, __: str) -> None:
        raise PlannerError("cannot write plan.json: disk full")

    monkeypatch.setattr("solver.cli.solving.write_text", full)
    code, out, err = run("solve", "x.yaml", "--out", tmp_path / "plan.json")
    assert (code, err) == (2, "error: cannot write plan.json: disk full\n")
    assert "step time" in out


# Steps of many lengths


test_consoles_of_lengths = check_consoles(
    "lengths"
)  # Measured strategies and planned ones, files of steps, and what is refused


@pytest.fixture(scope="module")
def step() -> LengthsDocument:
    """A step of planned strategies."""
    instance = small()
    found = candidates(instance)
    plans = row_plans(instance, found)
    return build_lengths(choose(found.mixed, "ascending"), "tiny", instance, plans, found.above)


def test_bug_forged_times_passed_as_those_of_the_instance(
    step: LengthsDocument, tmp_path: Path
) -> None:
    """A right step of other strategies is one by itself, but not of the instance in the file."""
    mixed = step.problem
    strategies = (replace(mixed.strategies[0], visit_ns=7), *mixed.strategies[1:])
    chosen = choose(replace(mixed, strategies=strategies), "ascending")
    forged = tmp_path / "forged.json"
    forged.write_text(to_json(build_lengths(chosen, "tiny", step.instance, step.plans, step.above)))
    code, out, _ = run("verify", forged)
    assert code == 1
    assert "refused: problem.strategies[0].visit_ns: found 7, expected " in out


@refusals("lengths_files")
def test_files_that_are_none(
    text: str, message: str, step: LengthsDocument, tmp_path: Path
) -> None:
    """One line that says where, what was found and what is allowed; text: a field and its value."""
    fields, broken = json.loads(to_json(step)), tmp_path / "broken.json"
    path, value = text.split(" = ")
    change(fields, path, json.loads(value))
    broken.write_text(json.dumps(fields), encoding="utf-8")
    assert refused("verify", broken).endswith(f" {message}\n")
