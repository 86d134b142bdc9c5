"""The Python API: what it gives back, what it refuses, and that importing it is quick."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from matplotlib.figure import Figure
from pydantic import ValidationError

import hetplan
from solver.document import PlanDocument
from solver.explain import what_ifs
from solver.files import to_json
from solver.report.quantities import time_text
from solver.result import Infeasibility, OtherTarget, Status, Termination
from tests.command_line import run
from tests.conftest import ROOT, present
from tests.docs_pages import stable
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


SMALL = ROOT / "instances" / "hetero_small.yaml"
MIXED = ROOT / "tests" / "data" / "consoles" / "lengths.yaml"
CLUSTER = ROOT / "docs" / "examples" / "my_cluster.yaml"
DEGREES, ORDER = "tp=4,pp=2,micro_batch=4", "a100,a10*3"


def test_functions_say_what_their_commands_print(
    plan_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with the same options; all lines but those that tell times of the search."""
    every_change = what_ifs.what_ifs
    monkeypatch.setattr(what_ifs, "what_ifs", lambda instance: islice(every_change(instance), 1))
    options = f"--degrees={DEGREES}", f"--order={ORDER}", "--time-limit=0"
    evaluated = hetplan.evaluate(SMALL, degrees=DEGREES, order=ORDER, time_limit_s=0)
    explained = hetplan.explain(plan_file, time_limit_s=60)
    mixed = hetplan.lengths(MIXED)
    moved = hetplan.switch(plan_file, plan_file)
    narrow = tmp_path / "narrow.yaml"
    search = "search: {tensor_parallel: [1], zero: [1], micro_batch: [4, 8], target: any}\n"
    narrow.write_text(CLUSTER.read_text("utf-8") + search, encoding="utf-8")
    listed = hetplan.shortlist(narrow, 2)
    subsets = hetplan.pareto(narrow, subsets=True, gap=0.05)
    commands = {
        ("shortlist", narrow, "--count=2", "--workers=1"): listed.summary(),
        ("evaluate", SMALL, *options): evaluated.summary(),
        ("explain", plan_file, "--workers=1"): explained.summary(),
        ("diff", plan_file, plan_file): hetplan.diff(plan_file, plan_file),
        ("pareto", narrow, "--subsets", "--gap=0.05", "--workers=1"): subsets.summary(),
        ("switch", plan_file, plan_file): moved.summary(),
    }
    for command, said in commands.items():
        code, printed, _ = run(*command)
        assert code == 0
        assert stable(printed) == stable(said)
    assert set(stable(mixed.summary())) <= set(stable(run("lengths", MIXED)[1]))
    for result in (subsets, mixed, moved, evaluated, evaluated.solution, explained, listed):
        assert re.fullmatch(rf"<{type(result).__name__}: .{{1,100}}>", repr(result))
        assert result._repr_html_().startswith("<pre>")
    assert subsets.rows()[0]["nodes of big"] == 1
    assert len(subsets.solutions()) == len(subsets.rows())
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=tuple))
    assert subsets.to_frame() == tuple(subsets.rows())
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(hetplan.PlannerError, match="pip install pandas"):
        subsets.to_frame()
    axes = Figure().subplots()
    assert subsets.plot(axes) is axes
    assert subsets.plot().get_ylabel() == axes.get_ylabel() == "nodes"
    assert evaluated.to_dict()["step_time_s"] == evaluated.solution.step_time_s
    hetplan.report(subsets, tmp_path / "front.html")
    plan, page = hetplan.load_plan(plan_file), tmp_path / "plan.html"
    hetplan.report(plan_file, page, other=plan, trace=tmp_path / "trace.json")
    assert "Beside another plan" in page.read_text(encoding="utf-8")
    assert "srcdoc" in evaluated.solution._repr_html_()
    assert listed.jobs(tmp_path / "jobs", "megatron") == []
    assert (tmp_path / "jobs" / "measured.csv").exists()
    folder = tmp_path / "job"
    files = hetplan.export(plan_file, "deepspeed", folder, own_model=True)
    assert {path.name for path in folder.iterdir()} == set(files)


def test_functions_refuse_in_one_line(plan_file: Path) -> None:
    planless = hetplan.Solution(
        document_of(planless_result(Status.UNKNOWN, Termination.TIME_LIMIT))
    )
    refused: dict[Callable[[], object], str] = {
        (
            lambda: hetplan.solve(random_instance(0), seed=-1)
        ): r"^seed: -1; allowed: 0 to 2\^31 - 1$",
        (lambda: hetplan.load(plan_file.parent / "x.yaml")): "no such file",
        (lambda: hetplan.pareto(SMALL)): "one cluster",
        (lambda: hetplan.pareto(SMALL, subsets=True, sequences=1)): "--subsets is of time",
        (lambda: hetplan.lengths(SMALL)): "no section lengths",
        (lambda: hetplan.explain(planless)): "no plan",
        (lambda: hetplan.templates(SMALL, split=cast("Any", "x"))): "split: 'x'; allowed: ",
        (lambda: hetplan.templates(SMALL, distribution=cast("Any", "x"))): "distribution: 'x'",
        (lambda: hetplan.templates(SMALL, faults=-1)): "faults: -1; allowed: at least 0",
        (lambda: hetplan.templates(SMALL, micro_batches=0)): "micro_batches: 0; allowed: 1 to",
        (lambda: hetplan.templates(SMALL, gap=1.0)): "gap: 1.0; allowed: ",
        (lambda: hetplan.recover(plan_file)): "lost, joined: ",
        (lambda: hetplan.recover(plan_file, lost="a10-0")): "lost, joined: ",
        (lambda: hetplan.recover(plan_file, lost=["x"], horizon_s=0)): "horizon_s: 0; allowed: ",
        (lambda: hetplan.recover(plan_file, lost=["x"], restart_s=3600)): "restart_s: 3600; ",
        (lambda: hetplan.catalogue(global_batch=1)): "name: None; allowed: ",
        (lambda: hetplan.catalogue("gpt2", global_batch=0)): "global_batch: 0; allowed: ",
        (lambda: hetplan.report(hetplan.load_plan(plan_file), plan_file.parent)): "it is a folder",
    }
    for wrong, words in refused.items():
        with pytest.raises(hetplan.PlannerError, match=words):
            wrong()


def test_bug_report_of_a_solution_without_a_plan_was_a_traceback(tmp_path: Path) -> None:
    planless = document_of(planless_result(Status.UNKNOWN, Termination.TIME_LIMIT))
    with pytest.raises(hetplan.PlannerError, match=r"the solution: no plan \(status unknown\)"):
        hetplan.report(hetplan.Solution(planless), tmp_path / "report.html")


HOMO = ROOT / "instances" / "homo_small.yaml"
STEPS = ROOT / "docs" / "examples" / "steps.csv"


def test_fleets_recover_as_their_commands_do(tmp_path: Path) -> None:
    """Templates, the fleet of them, the next one without a node; each as printed, and verified."""
    found, path = hetplan.templates(HOMO), tmp_path / "fleet.json"
    assert found.fleet is not None
    code, printed, _ = run("templates", HOMO, "--out", path)
    assert code == 0
    assert stable(printed) == stable(f"{found.summary()}\n{found.fleet.summary()}")
    assert repr(found) == "<Templates: of 1 nodes, for 1 failures>"
    lost = [found.fleet.document.instance.cluster.node_names[1]]
    following = hetplan.recover(found.fleet, lost=lost, horizon_s=600.0)
    assert following.document == hetplan.recover(path, lost=lost, horizon_s=600.0).document
    assert repr(following).startswith("<Fleet: 3 pipelines, ")
    assert not hetplan.verify(following).problems
    assert hetplan.verify(path, HOMO).complete
    assert hetplan.verify(path, SMALL).problems


def test_calibrated_instances_and_the_catalogue(tmp_path: Path) -> None:
    out = tmp_path / "corrected.yaml"
    assert run("calibrate", CLUSTER, "--measured", STEPS, "--out", out)[0] == 0
    corrected = hetplan.calibrate(CLUSTER, STEPS)
    assert corrected.instance.text == out.read_text("utf-8")
    assert "error of these" in corrected.summary()
    assert "<Calibrated: error " in repr(corrected)
    for name in ((), ("gpt2",)):
        assert (
            json.dumps(hetplan.catalogue(*name), indent=1) + "\n"
            == run("catalogue", *name, "--json")[1]
        )


def test_instances_are_made_of_mappings_and_changed() -> None:
    """As of their file; a mistake is told by its field. Ranges of nodes are for pareto."""
    small = yaml.safe_load(CLUSTER.read_text("utf-8"))
    instance = hetplan.load(CLUSTER)
    assert hetplan.load(small) == hetplan.Instance(**small) == instance
    group = small["cluster"]["groups"][0]
    ranged = instance.with_(nodes={group["name"]: {"min": 0, "max": 1}})
    assert repr(ranged).startswith("<Instance: ")
    assert " on at most " in repr(ranged)
    front = hetplan.pareto(ranged, gap=0.05)
    assert [row[f"nodes of {group['name']}"] for row in front.rows()] == [1]
    changed = hetplan.load(SMALL).with_(nodes={"a10": 0}, search={"zero": [1]}, limits=None)
    assert [row.name for row in changed.resolved.cluster.groups] == ["a100"]
    assert changed.resolved.search.zero == (1,)
    assert changed.resolved.search.micro_batch == hetplan.load(SMALL).resolved.search.micro_batch
    wrong: dict[str, Callable[[], object]] = {
        r"instance:\d+:\d+ cluster.groups\[0\].nodes: a range; allowed: one number": (
            lambda: hetplan.solve(ranged)
        ),
        r"instance:\d+:\d+ cluster.groups\[0\].gpu: ": (
            lambda: hetplan.Instance(small, cluster={"groups": [group | {"gpu": "H1000"}]})
        ),
        "nodes: unknown group 'x'; allowed: ": lambda: instance.with_(nodes={"x": 1}),
        "instance: .*object.*; allowed: what YAML can say": lambda: hetplan.solve({"x": object()}),
    }
    for words, make in wrong.items():
        with pytest.raises(hetplan.PlannerError, match=words):
            make()


def test_a_sweep_is_the_solutions_side_by_side() -> None:
    """Each by its name, also one without a plan; bars up to the step time."""
    small = hetplan.load(CLUSTER).with_(search={"micro_batch": [4]})
    none = small.with_(limits={"max_step_time": "1 us"})
    slow = small.with_(nodes={"big": 0})
    swept = hetplan.sweep({"all": small, "slow": slow, "none": none}, gap=0.5)
    alone = hetplan.solve(small, gap=0.5)
    assert [row["status"] for row in swept.rows()][2] == "infeasible"
    assert swept.solutions["all"].step_time_s == swept.rows()[0]["step_time_s"] == alone.step_time_s
    axes = swept.plot(Figure().subplots())
    tops = [cast("Any", bar).get_y() + cast("Any", bar).get_height() for bar in axes.patches]
    steps = [present(swept.solutions[name].step_time_s) for name in ("all", "slow")]
    assert tops[2:] == pytest.approx(steps)
    assert [line.split()[0] for line in swept.summary().splitlines()[2:]] == ["all", "slow", "none"]
