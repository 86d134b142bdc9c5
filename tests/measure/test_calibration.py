"""Corrections of layer times by measured steps: what they are fitted to, what they say."""

from math import exp, log
from pathlib import Path

import pytest

from formulations.instance import Instance
from formulations.instance.load import load_instance, parse_instance
from solver.measure.calibration import Factors, MeasuredStep, fit
from solver.measure.steps_file import read_steps
from tests.command_line import output, run
from tests.conftest import ROOT

INSTANCE = (ROOT / "tests" / "data" / "measured_node.txt").read_text(encoding="utf-8")
HEADING = "tensor_parallel,data_parallel,pipeline_parallel,micro_batch,seconds"
DEGREES = ("1,8,1,1", "1,4,2,1", "1,2,4,1", "2,4,1,1", "2,2,2,1", "2,1,4,1", "1,8,1,2")


@pytest.fixture
def planned() -> Instance:
    """Twelve blocks on one node."""
    return parse_instance(INSTANCE, "small.yaml", Path())


def _rows(planned: Instance, path: Path, lines: list[str]) -> list[MeasuredStep]:
    path.write_text("\n".join([HEADING, *lines]) + "\n", encoding="utf-8")
    return [step for step, _ in read_steps(path, planned)]


def _measured(planned: Instance, path: Path, factors: Factors) -> list[MeasuredStep]:
    """Steps as long as if layer times were off by these factors."""
    modelled = _rows(planned, path, [f"{degrees},0.8" for degrees in DEGREES])
    times = [step.predicted_s(factors) for step in modelled]
    return _rows(planned, path, [f"{d},{t:.9f}" for d, t in zip(DEGREES, times, strict=True)])


def test_factors_of_layer_times_are_found_again(planned: Instance, tmp_path: Path) -> None:
    """Several steps of unlike stages tell blocks from ends; one of them left out is predicted."""
    truth = Factors(log(1.4), log(0.7))
    found = fit(_measured(planned, tmp_path / "steps.csv", truth))
    for kernels, factors in found.by_kernels.items():
        if kernels.micro_batch == 1:
            assert exp(factors.blocks) == pytest.approx(1.4, rel=0.01)
            assert exp(factors.ends) == pytest.approx(0.7, rel=0.1)
    assert (found.expected_error() or 1) < 0.005
    assert (found.expected_error(elsewhere=True) or 1) < 0.03


def test_one_step_is_met_and_promises_nothing(planned: Instance, tmp_path: Path) -> None:
    """Its own time comes out; what error to expect of others is not known."""
    (step,) = _rows(planned, tmp_path / "steps.csv", ["2,2,2,1,0.5"])
    found = fit([step])
    assert found.predicted_s(step) == pytest.approx(0.5, rel=0.002)
    assert found.expected_error() is None
    assert found.expected_error(elsewhere=True) is None


def test_calibrated_plans_say_so(tmp_path: Path) -> None:
    """`calibrate` writes an instance whose plans are verified and print the expected error."""
    source, steps = tmp_path / "small.yaml", tmp_path / "steps.csv"
    out, plan = tmp_path / "corrected.yaml", tmp_path / "plan.json"
    source.write_text(INSTANCE, encoding="utf-8")
    rows = ["1,8,1,1,0.25,20 GiB", "1,4,2,1,0.3,", "2,4,1,1,0.3,"]
    steps.write_text("\n".join([f"{HEADING},memory", *rows]) + "\n", encoding="utf-8")
    text = output("calibrate", source, "--measured", steps, "--out", out)
    assert "measured peaks ask for" in text
    corrected = load_instance(out)
    assert corrected.calibration is not None
    assert corrected.calibration.source == "steps.csv, 3 measured steps"
    assert corrected.limits.memory_headroom > 0.4  # 20 GiB measured, about 10 predicted
    text = output("solve", out, "--out", plan)
    assert "layer times by steps.csv, 3 measured steps" in text
    assert "of the step time" in text
    assert run("verify", plan)[0] == 0
    code, _, error = run("calibrate", out, "--measured", steps, "--out", tmp_path / "twice.yaml")
    assert (code, error.count("\n"), "a calibration already" in error) == (2, 1, True)


def test_factors_that_meet_no_other_step_are_dropped(planned: Instance, tmp_path: Path) -> None:
    """Steps of one shape, a third too long and as much too short: no factor helps the others."""
    modelled = _rows(planned, tmp_path / "a.csv", [f"{degrees},0.8" for degrees in DEGREES])
    lines = [
        f"{degrees},{step.predicted_s() * factor:.9f}"
        for degrees, step, factor in zip(DEGREES, modelled, (1.3, 0.77) * 4, strict=False)
    ]
    dropped = fit(_rows(planned, tmp_path / "steps.csv", lines))
    assert set(dropped.by_kernels.values()) == {Factors(0.0, 0.0)}
