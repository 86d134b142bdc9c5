"""Models as files: other readers find the optimum that was proved."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import highspy
import pytest
from ortools.sat import cp_model_pb2
from ortools.sat.python import cp_model

from formulations.errors import PlannerError
from formulations.instance import Limits
from solver.backends import highs
from solver.options import Method, SolveOptions
from solver.result import Status
from solver.search.driver import solve
from solver.search.engines import model_engine
from solver.search.model_file import model_of
from solver.search.paths import CutPool
from tests.loop_checks import feasible, solve_config
from tests.seeds import few_and_many, one_each
from tests.small_instances import random_instance


def by_cpsat(text: str) -> int:
    """Optimum of a model in CP-SAT's text format, ns."""
    model, engine = cp_model.CpModel(), cp_model.CpSolver()
    engine.parameters.presolve_inclusion_work_limit = 0
    engine.parameters.auto_detect_greater_than_at_least_one_of = False
    assert model.proto.parse_text_format(text)
    assert engine.solve(model) == cp_model.OPTIMAL
    return round(engine.objective_value)


def read_binary(path: Path) -> int:
    """Optimum of a .pb file, ns."""
    proto = cp_model_pb2.CpModelProto()
    proto.ParseFromString(path.read_bytes())
    return by_cpsat(str(proto))


def read_text(path: Path) -> int:
    """Optimum of a .pbtxt file, ns."""
    return by_cpsat(path.read_text())


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
    ("cpsat", ".pb", read_binary),
    ("cpsat", ".pbtxt", read_text),
    ("milp", ".lp", read_milp),
    ("milp", ".mps", read_milp),
]


@pytest.mark.parametrize("seed", one_each([2, 14, 9, 3, 20], 3))
@pytest.mark.parametrize(("method", "suffix", "read"), FORMATS)
def test_file_has_the_proved_optimum(
    tmp_path: Path, method: Method, suffix: str, read: Callable[[Path], int], seed: int
) -> None:
    """The step time that the search proved is the minimum of the model that it writes."""
    path = tmp_path / f"model{suffix}"
    instance = random_instance(seed)
    instance = instance.but(objective={"minimize": "step_time"})
    result = solve(instance, SolveOptions(method=method, write_model=path))
    assert result.status is Status.OPTIMAL
    assert read(path) == result.step_time_ns
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("family", ["cpsat", "milp"])
@pytest.mark.parametrize("seeds", few_and_many(range(40), 3))
def test_cuts_of_the_search_are_enough(
    seeds: Sequence[int], family: Literal["cpsat", "milp"]
) -> None:
    """With the cuts that closed a configuration the model's minimum is the optimum."""
    engine = model_engine(family)
    for tables, best in feasible(seeds):
        pool = CutPool()
        plan = solve_config(tables, engine, pool=pool).plan
        assert plan is not None
        built = model_of(engine, tables, plan, pool.of(tables.config))
        assert pool.of(tables.config) <= built.cuts
        assert engine.run(built.model.native, SolveOptions()).objective == best


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("cpsat", "model.lp"),
        ("milp", "model.pb"),
        ("milp", "model"),
        ("milp", "lp"),
        ("exact", "model.lp"),
        ("minmax", "model.pb"),
    ],
)
def test_method_without_that_format_is_refused(method: Method, name: str) -> None:
    """One line says which method writes what."""
    with pytest.raises(PlannerError) as refused:
        SolveOptions(method=method, write_model=Path(name))
    assert str(refused.value) == (
        f"cannot write {name} by method {method}; "
        "models are written as .pb or .pbtxt by cpsat, .lp or .mps by milp"
    )


@pytest.mark.parametrize(("method", "suffix"), [("cpsat", ".pb"), ("milp", ".lp")])
def test_folder_that_is_gone_is_one_line(tmp_path: Path, method: Method, suffix: str) -> None:
    """What cannot be written is said in words."""
    path = tmp_path / "gone" / f"model{suffix}"
    with pytest.raises(PlannerError, match="cannot write"):
        solve(random_instance(2), SolveOptions(method=method, write_model=path))


def test_no_plan_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without a plan there is no configuration to model, and a line says so."""
    path = tmp_path / "model.lp"
    limits = Limits(max_step_time_s=1e-9)
    instance = random_instance(2).but(limits=limits)
    result = solve(instance, SolveOptions(method="milp", write_model=path))
    assert result.plan is None
    assert not path.exists()
    assert "is not written" in caplog.text
