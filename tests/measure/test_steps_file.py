"""Files of measured steps: the plan of a row, and what is refused."""

from functools import partial
from pathlib import Path

import pytest

from formulations.errors import InstanceError
from formulations.instance.load import parse_instance
from formulations.plan import Degrees
from formulations.space import configs
from solver.evaluate.run_plan import judged
from solver.files import to_json
from solver.heuristics.baselines import minmax_of
from solver.heuristics.node_orders import best_plan
from solver.measure.calibration import fit
from solver.measure.steps_file import read_steps, resized
from solver.options import SolveOptions
from solver.plan_figures import build_document
from tests.architectures import build, gpt
from tests.conftest import ROOT, present
from tests.measure.test_calibration import HEADING, INSTANCE
from tests.refusals import refusal, refusals


def test_a_row_is_a_plan_on_as_many_gpus(tmp_path: Path) -> None:
    """2 x 1 x 2 GPUs of the node of 8: four micro-batches of 4, seven blocks and five; 1.5 GiB."""
    steps = tmp_path / "steps.csv"
    heading = f"{HEADING},memory,global_batch,schedule,zero,split"
    steps.write_text(f"{heading}\n2,1,2,4,1.5,1.5 GiB,16,gpipe,,7/5\n", encoding="utf-8")
    [step] = read_steps(steps, parse_instance(INSTANCE, "small.yaml", tmp_path))
    assert (step.measured_s, step.memory_bytes) == (1.5, 1.5 * 2**30)
    [group] = step.instance.cluster.groups
    assert (group.nodes, group.gpus_per_node, step.instance.workload.global_batch) == (1, 4, 16)
    config, [replica] = step.plan.config, step.plan.replicas
    assert config.degrees == (Degrees(tp=2),)
    assert (config.dp, config.pp, config.schedule, config.zero) == (1, 2, "gpipe", 0)
    assert replica.micro_batches == 4
    assert [stage.layers for stage in replica.stages] == [(0, 8), (8, 14)]


def test_rows_of_other_models_and_machines(tmp_path: Path) -> None:
    """Width and depth of the row, heads in proportion, on more and smaller nodes than there are."""
    text = INSTANCE.replace("heads: 16", "heads: 16, ffn_size: 3072, learned_positions: 1024")
    steps, planned = tmp_path / "steps.csv", parse_instance(text, "small.yaml", tmp_path)
    columns = "hidden_size,layers,sequence_length,gpus_per_node,model"
    rows = ["2,4,2,1,2.0,2048,24,2048,4,wide", "1,8,1,1,0.25,,,,,"]
    steps.write_text("\n".join([f"{HEADING},{columns}", *rows]) + "\n", encoding="utf-8")
    other = partial(resized, text, "small.yaml", tmp_path)
    wide, narrow = read_steps(steps, planned, other)
    workload, [group] = wide.instance.workload, wide.instance.cluster.groups
    assert (workload.hidden_size, workload.num_blocks, workload.sequence_length) == (2048, 24, 2048)
    assert (workload.kv_heads, group.nodes, group.gpus_per_node) == (32, 4, 4)
    assert narrow.instance.workload == planned.workload
    expected = build(gpt(2048, 24, 32, 50257, 2048).but(ffn_size=6144), 2048)
    assert workload.parameters == expected.parameters
    steps.write_text(f"{HEADING},hidden_size,heads\n1,8,1,1,0.25,1000,16\n", encoding="utf-8")
    with pytest.raises(InstanceError, match="2:14 hidden_size: 1000, of a model that cannot be"):
        read_steps(steps, planned, other)


def test_a_row_may_be_a_plan_on_unlike_gpus(tmp_path: Path) -> None:
    """Both types get factors of blocks, by which the step is nearer to what was measured."""
    text = (ROOT / "docs" / "examples" / "my_cluster.yaml").read_text(encoding="utf-8")
    instance = parse_instance(text + "search: {pipeline_parallel: [4]}\n", "two.yaml", tmp_path)
    both = [config for config in configs(instance) if all(config.nodes_used)]
    found = present(best_plan(instance, both, minmax_of))
    document = build_document(judged(instance, found[0]), SolveOptions())
    (tmp_path / "plan.json").write_text(to_json(document), encoding="utf-8")
    steps = tmp_path / "measured.csv"
    steps.write_text(f"plan,seconds,memory\nplan.json,{1.3 * found[1] / 1e9},\n", encoding="utf-8")
    [step] = read_steps(steps, instance)
    assert step.plan == found[0]
    assert {shape.gpu for shape in step.shapes} == {"H100", "L40S"}
    fitted = fit([step])
    assert 1.1 * step.predicted_s() < fitted.predicted_s(step) < step.measured_s
    assert all(factors.blocks > 0.02 for factors in fitted.of(step).values())
    other = parse_instance(text, "two.yaml", tmp_path)
    with pytest.raises(InstanceError, match=r"2:1 plan: plan.json, of another instance; allowed:"):
        read_steps(steps, other)
    for name, found_text in (("none.json", "none.json: "), ("measured.csv", "measured.csv: ")):
        steps.write_text(f"plan,seconds\n{name},2\n", encoding="utf-8")
        with pytest.raises(InstanceError, match=f"2:1 plan: {found_text}"):
            read_steps(steps, instance)


@refusals("steps")
def test_bad_rows_are_refused(text: str, message: str, tmp_path: Path) -> None:
    steps = tmp_path / "steps.csv"
    steps.write_text(f"{text}\n", encoding="utf-8")
    planned = parse_instance(INSTANCE, "small.yaml", tmp_path)
    assert refusal(lambda: read_steps(steps, planned)) == f"{tmp_path}/{message}"


def test_degrees_on_joined_nodes_are_no_row(tmp_path: Path) -> None:
    """They say nothing of the GPUs of a sequence; plan files do."""
    steps = tmp_path / "steps.csv"
    steps.write_text(f"{HEADING}\n1,8,1,1,9\n", encoding="utf-8")
    instance = parse_instance(INSTANCE, "small.yaml", tmp_path)
    groups = [group.but(nodes=2).joined(2) for group in instance.cluster.groups]
    with pytest.raises(InstanceError, match=r"degrees on joined nodes; allowed: plan: the file"):
        read_steps(steps, instance.but(cluster=instance.cluster.with_groups(groups)))
