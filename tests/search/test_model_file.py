"""Models as files: other readers find the optimum that was proved."""

import re
from collections.abc import Callable
from pathlib import Path

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
from tests.seeds import one_each
from tests.small_instances import random_instance


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
