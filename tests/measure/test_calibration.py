"""Corrections of layer times by measured steps: what they are fitted to, what they say."""

from math import exp, log
from pathlib import Path

import pytest

from formulations.costs.layer_factors import BLOCKS
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from solver.evaluate.launched import run_of_degrees
from solver.evaluate.run_plan import planned as planned_run
from solver.measure.calibration import MACHINE, Factors, Fit, MeasuredStep, Tangent, fit
from solver.measure.steps_file import read_steps
from tests.conftest import text_of

INSTANCE = text_of("measured_node.txt")
HEADING = "tensor_parallel,data_parallel,pipeline_parallel,micro_batch,seconds"
DEGREES = ("1,8,1,1", "1,4,2,1", "1,2,4,1", "2,4,1,1", "2,2,2,1", "2,1,4,1", "1,8,1,2")


@pytest.fixture
def planned() -> Instance:
    """Twelve blocks on one node."""
    return parse_instance(INSTANCE, "small.yaml", Path())


def _rows(planned: Instance, path: Path, lines: list[str]) -> list[MeasuredStep]:
    path.write_text("\n".join([HEADING, *lines]) + "\n", encoding="utf-8")
    return read_steps(path, planned)


def step_of(planned: Instance, tp: int = 1, dp: int = 8, pp: int = 1) -> MeasuredStep:
    """A step of 0.3 s with these degrees."""
    run = run_of_degrees(f"tp={tp},dp={dp},pp={pp}", planned)
    return MeasuredStep(planned, planned_run(planned, run, (0,)).plan, 0.3)


def _measured(planned: Instance, path: Path, factors: Factors) -> list[MeasuredStep]:
    """Steps as long as if layer times were off by these factors."""
    modelled = _rows(planned, path, [f"{degrees},0.8" for degrees in DEGREES])
    times = [step.predicted_s(dict.fromkeys(step.shapes, factors)) for step in modelled]
    return _rows(planned, path, [f"{d},{t:.9f}" for d, t in zip(DEGREES, times, strict=True)])


def test_factors_of_layer_times_are_found_again(planned: Instance, tmp_path: Path) -> None:
    """Several steps of unlike stages tell blocks from ends; one of them left out is predicted."""
    found = fit(_measured(planned, tmp_path / "steps.csv", Factors(log(1.2), log(0.7))))
    for step in (tangent.step for tangent in found.tangents if tangent.step.kernels.tp == 1):
        assert exp(found.factors(step.kernels).blocks) == pytest.approx(1.2, rel=0.03)
        assert exp(found.factors(step.kernels).ends) == pytest.approx(0.7, rel=0.2)
        assert found.predicted_s(step) == pytest.approx(step.measured_s, rel=0.02)
    assert (found.expected_error() or 1) < 0.02
    assert (found.expected_error(elsewhere=True) or 1) < 0.1
    told = "A100-80: 7 steps, blocks ± 2.6 %, embedding and head ± 16 % told; not network"
    assert found.told("A100-80") == told


def test_one_step_tells_layers_together(planned: Instance, tmp_path: Path) -> None:
    """Its own time comes out; what error to expect of others is not known."""
    (step,) = _rows(planned, tmp_path / "steps.csv", ["2,2,2,1,0.5"])
    found = fit([step])
    assert found.predicted_s(step) == pytest.approx(0.5, rel=0.02)
    assert found.expected_error() is None
    assert found.expected_error(elsewhere=True) is None
    assert "1 step, which tells blocks, embedding and head only together" in found.told("A100-80")
    assert found.factors(step.kernels._replace(gpu="H100")) == Factors(0.0, 0.0)


def test_the_network_has_a_factor_of_its_own(tmp_path: Path) -> None:
    """Steps on one node say how long layers take, those on two then what passes between them."""
    text = INSTANCE.replace("nodes: 1", "nodes: 2, inter_node: 25 Gbit/s")
    planned = parse_instance(text, "small.yaml", Path())
    degrees = (*DEGREES, "1,16,1,1", "1,8,2,1", "2,8,1,1", "1,16,1,2")
    modelled = _rows(planned, tmp_path / "a.csv", [f"{each},0.8" for each in degrees])
    slower_network = Factors(0.0, 0.0, log(1.5))
    times = [step.predicted_s(dict.fromkeys(step.shapes, slower_network)) for step in modelled]
    assert times[7] > 1.1 * modelled[7].predicted_s()
    lines = [f"{each},{time_s:.9f}" for each, time_s in zip(degrees, times, strict=True)]
    found = fit(_rows(planned, tmp_path / "b.csv", lines))
    factors = found.factors(modelled[7].kernels)
    assert exp(factors.network) == pytest.approx(1.5, rel=0.1)
    assert factors.blocks == pytest.approx(0, abs=0.02)
    assert "network ±" in found.told("A100-80")
    assert fit(found.tangents[i].step for i in range(7)).factors(modelled[0].kernels).network == 0
    # The instance that is written has slower links
    section = "calibration: {source: a, network: 1.5, factors: {block: {A100-80: {1: {1: 1.0}}}}}"
    slower = parse_instance(f"{text}{section}\n", "small.yaml", Path()).cluster.groups[0].inter_node
    link = planned.cluster.groups[0].inter_node
    assert slower.bandwidth_bytes_per_s == link.bandwidth_bytes_per_s / 1.5
    assert slower.latency_s == pytest.approx(1.5 * link.latency_s)


def test_steps_of_other_widths_count_by_how_near_they_are(planned: Instance) -> None:
    """Covariance of layers with those of a model as wide, half and a quarter as wide, by hand."""
    step = step_of(planned)
    kernels = step.kernels
    shapes = [kernels._replace(width=width) for width in (1024, 512, 256)]
    prior = Fit((Tangent.of(step, {kernels: Factors(0.0, 0.0)}),)).prior(shapes)
    common, own = BLOCKS.common**2, BLOCKS.own**2
    near = [MACHINE**2 + 0.5 ** (i / BLOCKS.width) * (common + own) for i in range(3)]
    assert prior[0, 0, 0] == pytest.approx(near, rel=1e-6)
    assert prior[0, 0, 1] == pytest.approx([MACHINE**2] * 3)


def test_factors_that_meet_no_other_step_are_dropped(planned: Instance, tmp_path: Path) -> None:
    """Steps of one shape, a third too long and as much too short: no factor helps the others."""
    modelled = _rows(planned, tmp_path / "a.csv", [f"{degrees},0.8" for degrees in DEGREES])
    lines = [
        f"{degrees},{step.predicted_s() * factor:.9f}"
        for degrees, step, factor in zip(DEGREES, modelled, (1.3, 0.77) * 4, strict=False)
    ]
    dropped = fit(_rows(planned, tmp_path / "steps.csv", lines))
    assert dropped.kept == "none"
    assert dropped.factors(modelled[0].kernels) == Factors(0.0, 0.0)
    assert "no factor kept" in dropped.told("A100-80")
