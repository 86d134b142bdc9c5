"""Files of measured steps: the plan of a row, and what is refused."""

from pathlib import Path

import pytest

from formulations.errors import InstanceError
from formulations.instance.load import parse_instance
from formulations.plan import Degrees
from solver.measure.steps_file import read_steps
from tests.measure.test_calibration import HEADING, INSTANCE
from tests.refusals import refusals


def test_a_row_is_a_plan_on_as_many_gpus(tmp_path: Path) -> None:
    """2 x 1 x 2 GPUs of the node of 8: four micro-batches of 4, six blocks a stage; 1.5 GiB."""
    steps = tmp_path / "steps.csv"
    heading = f"{HEADING},memory,global_batch,schedule,zero"
    steps.write_text(f"{heading}\n2,1,2,4,1.5,1.5 GiB,16,gpipe,\n", encoding="utf-8")
    [(step, memory)] = read_steps(steps, parse_instance(INSTANCE, "small.yaml", tmp_path))
    assert (step.measured_s, memory) == (1.5, 1.5 * 2**30)
    [group] = step.instance.cluster.groups
    assert (group.nodes, group.gpus_per_node, step.instance.workload.global_batch) == (1, 4, 16)
    config, [replica] = step.plan.config, step.plan.replicas
    assert config.degrees == (Degrees(tp=2),)
    assert (config.dp, config.pp, config.schedule, config.zero) == (1, 2, "gpipe", 0)
    assert replica.micro_batches == 4
    assert [stage.layers for stage in replica.stages] == [(0, 7), (7, 14)]


@refusals("steps")
def test_bad_rows_are_refused(text: str, message: str, tmp_path: Path) -> None:
    steps = tmp_path / "steps.csv"
    steps.write_text(f"{text}\n", encoding="utf-8")
    with pytest.raises(InstanceError) as caught:
        read_steps(steps, parse_instance(INSTANCE, "small.yaml", tmp_path))
    assert str(caught.value) == f"{tmp_path}/{message}"
