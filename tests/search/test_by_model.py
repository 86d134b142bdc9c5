"""Models of all open configs as a method of `solve`: what engines say, and what is made of it."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import highspy
import pytest
from ortools.sat import cp_model_pb2
from ortools.sat.python import cp_model

from formulations.errors import PlannerError
from formulations.instance import Instance, Limits
from formulations.plan import Plan
from solver.backends import highs
from solver.backends.outcome import Outcome
from solver.options import Method, SolveOptions
from solver.result import Status, Termination
from solver.search import by_model
from solver.search.critical_path import Family, ModelEngine, model_engine
from solver.search.driver import solve
from solver.search.plan_search import PlanSearch
from tests.best_plans import check_verified
from tests.conftest import present
from tests.models.test_degrees import varied
from tests.random_configs import slower
from tests.search.spaces import SPACES, cases
from tests.seeds import one_each
from tests.small_instances import random_instance
from tests.stage_degrees import meshed_instance, stage_instance

INFEASIBLE = Outcome(Status.INFEASIBLE, Termination.CLOSED, 0.0)
TROUBLE = Outcome(Status.UNKNOWN, Termination.UNFINISHED, 0.0, trouble="odd")


def answer_always(outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:

    def engine(family: Family) -> ModelEngine:
        return replace(model_engine(family), run=lambda model, options: outcome)

    monkeypatch.setattr(by_model, "model_engine", engine)
    monkeypatch.setattr(PlanSearch, "first_plans", lambda *_: None)


def best_plan(instance: Instance) -> tuple[Plan, int]:
    result = solve(instance)
    return present(result.plan), present(result.step_time_ns)


@pytest.mark.parametrize("first_plans", [False, True])
def test_bug_a_config_was_closed_by_the_word_of_highs_alone(
    first_plans: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Called infeasible where there is a plan: its configuration stays open, and a line says so.

    HiGHS did so of steps of 0.12 s; without plans to start from there was no plan at all, and with
    a poor one to start from it was optimal. With the best one nothing is left.
    """
    instance, options = random_instance(0), SolveOptions(method="milp")
    plan, best = best_plan(instance)
    poor = best_plan(instance.but(search={"pipeline_parallel": (1,)}))
    assert poor[1] > best
    answer_always(INFEASIBLE, monkeypatch)
    result = solve(instance, options, start=poor if first_plans else None)
    assert result.status is (Status.FEASIBLE if first_plans else Status.UNKNOWN)
    assert (result.bound or 0) <= best
    assert any(record.reason == "open" for record in result.log.configs)
    assert f"one of {best} ns is; a configuration stays open" in caplog.text
    result = solve(instance, options, start=(plan, best))
    assert (result.status, result.bound) == (Status.OPTIMAL, best)


@pytest.mark.parametrize("method", ["cpsat", "milp"])
def test_trouble_leaves_configs_open(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_always(TROUBLE, monkeypatch)
    result = solve(random_instance(0), SolveOptions(method=method))
    assert (result.status, result.termination) == (Status.UNKNOWN, Termination.UNFINISHED)


def check_equal(instance: Instance, *methods: Method) -> None:
    """The models prove what the search proves; verify accepts what the first one says."""
    exact = solve(instance)
    for n, method in enumerate(methods):
        options = SolveOptions(method=method)
        result = solve(instance, options)
        assert (result.status, result.objective) == (exact.status, exact.objective), method
        if n == 0:
            check_verified(result, options)


@pytest.mark.parametrize(("name", "seed"), cases())
def test_models_find_what_the_search_finds(name: str, seed: int) -> None:
    """Whatever the plan space holds; in money for odd seeds."""
    minimize = {"minimize": "cost_per_step"} if seed % 2 and name != "spot" else {}
    check_equal(SPACES[name](seed).but(objective=minimize), "cpsat", "milp")


def test_bug_money_of_long_steps_left_64_bits() -> None:
    """Many configurations of an hour and more: CP-SAT refused their sum, each times its weight."""
    check_equal(slower(varied(1), 100), "cpsat")


@pytest.mark.parametrize("make", [stage_instance, meshed_instance])
@pytest.mark.parametrize("seed", one_each(range(60), 60))
def test_models_find_the_best_degrees_of_stages(seed: int, make: Callable[[int], Instance]) -> None:
    degrees = {"pipeline_parallel": (2 + seed % 2,), "data_parallel": (1 + seed // 2 % 2,)}
    check_equal(make(seed).but(search=degrees), "cpsat", "milp")


def test_bug_configs_without_a_layout_stayed_open() -> None:
    """Nodes of four GPUs and one have no two stages of two replicas each: no part of a model."""
    degrees = {"pipeline_parallel": (2,), "data_parallel": (2,)}
    check_equal(stage_instance(2).but(search=degrees), "cpsat", "milp")


# Models as files: other readers find the optimum that was proved.


def read_text(path: Path) -> int:
    """Optimum of a .pbtxt or .pb file, ns."""
    text = cp_model_pb2.CpModelProto()
    if path.suffix == ".pb":
        text.ParseFromString(path.read_bytes())
    model, engine = cp_model.CpModel(), cp_model.CpSolver()
    engine.parameters.presolve_inclusion_work_limit = 0
    engine.parameters.auto_detect_greater_than_at_least_one_of = False
    assert model.proto.parse_text_format(str(text) if path.suffix == ".pb" else path.read_text())
    assert engine.solve(model) == cp_model.OPTIMAL
    return round(engine.objective_value)


def advised(path: Path) -> dict[str, str | float | bool]:
    """The options that a file says in its first lines."""
    head = " ".join(line[2:] for line in path.read_text().splitlines()[: len(highs.NOTE)])
    pairs = re.findall(r"(\w+)=([\w.-]*\w)", head)
    assert len(pairs) == 6
    words: dict[str, str | bool] = {"off": "off", "false": False}
    return {name: words[value] if value in words else float(value) for name, value in pairs}


def read_milp(path: Path) -> int:
    """Optimum of an .lp or .mps file in ms by HiGHS, in ns."""
    engine = highspy.Highs()
    engine.setOptionValue("output_flag", False)
    for name, value in advised(path).items():
        assert engine.setOptionValue(name, value) == highspy.HighsStatus.kOk
    assert engine.readModel(str(path)) == highspy.HighsStatus.kOk
    engine.run()
    assert engine.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return round(float(engine.getObjectiveValue()) * 1e6)


FORMATS: list[tuple[Method, str, Callable[[Path], int]]] = [
    ("cpsat", ".pb", read_text),
    ("cpsat", ".pbtxt", read_text),
    ("milp", ".lp", read_milp),
    ("milp", ".mps", read_milp),
]


@pytest.mark.parametrize("seed", one_each([2, 14, 9, 3, 20], 5))
@pytest.mark.parametrize(("method", "suffix", "read"), FORMATS)
def test_file_has_the_proved_optimum(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    method: Method,
    suffix: str,
    read: Callable[[Path], int],
    seed: int,
) -> None:
    """The step time that the search proved is the minimum of the model that it writes.

    What cannot be written is said in words; without a plan there is no file.
    """
    path = tmp_path / f"model{suffix}"
    instance = random_instance(seed).but(objective={"minimize": "step_time"})
    result = solve(instance, SolveOptions(method=method, write_model=path))
    assert result.status is Status.OPTIMAL
    assert read(path) == result.step_time_ns
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with pytest.raises(PlannerError, match="cannot write"):
        solve(instance, SolveOptions(method=method, write_model=tmp_path / "gone" / path.name))
    path.unlink()
    none = instance.but(limits=Limits(max_step_time_s=1e-9))
    assert solve(none, SolveOptions(method=method, write_model=path)).plan is None
    assert not path.exists()
    assert "is not written" in caplog.text
