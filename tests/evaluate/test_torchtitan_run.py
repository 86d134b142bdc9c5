"""torchtitan's module and schedule: what they make of a model, and what is refused where."""

from pathlib import Path

import pytest

from formulations.errors import PlanError
from solver.evaluate.launched import Launched
from solver.evaluate.torchtitan_run import launched
from solver.export import torchtitan
from tests.export_cases import UNTIED, WHOLE_EXPERTS, instance_of, job_of

JOB = job_of(workload=UNTIED, recompute=("full",))
MODULE = torchtitan.files(JOB)["planned_config.py"]
SCHEDULE = torchtitan.files(JOB)["schedule.csv"]


def read(folder: Path, module: str = MODULE, schedule: str = SCHEDULE) -> Launched:
    """The run of a folder with these files."""
    (folder / "planned_config.py").write_text(module)
    (folder / "schedule.csv").write_text(schedule)
    return launched(folder, instance_of(UNTIED))


def test_fields(tmp_path: Path) -> None:
    """Degrees, batches, sharding, checkpointing, and the schedule of the file."""
    run = read(tmp_path)
    assert (run.tp, run.dp, run.pp, run.micro_batch, run.zero) == (1, 2, 4, 2, 1)
    assert (run.schedule, run.recompute, run.target) == ("1f1b", "full", "torchtitan")
    assert run.boundaries == (0, 4, 7, 9, 14)


def test_experts_are_whole_on_tensor_groups(tmp_path: Path) -> None:
    """As exported: where GPUs share experts, those of tensor groups do so too."""
    for file, text in torchtitan.files(WHOLE_EXPERTS).items():
        (tmp_path / file).write_text(text)
    run = launched(tmp_path, WHOLE_EXPERTS.instance)
    assert (run.tp, run.ep, run.etp, run.zero) == (2, 4, 1, 1)


def test_named_schedule(tmp_path: Path) -> None:
    """Without a file, by name; one that runs other numbers of parts is refused."""
    line = next(one for one in MODULE.splitlines() if "schedule_csv" in one)
    plain = MODULE.replace(line, "")
    assert read(tmp_path, plain.replace("PipelineScheduleMulti", "GPipe")).schedule == "gpipe"
    for name in ("Interleaved1F1B", "ZBVZeroBubble"):
        with pytest.raises(PlanError, match=r"_schedule: '\w+' with 1 parts per rank; allowed"):
            read(tmp_path, plain.replace("PipelineScheduleMulti", name))


def test_only_module_of_a_folder(tmp_path: Path) -> None:
    """Any name will do; of several, none is guessed."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "schedule.csv").write_text(SCHEDULE)
    assert launched(tmp_path, instance_of(UNTIED)).source.endswith("mine.py")
    (tmp_path / "other.py").write_text(MODULE)
    with pytest.raises(PlanError, match=r"2 modules .*; allowed: a folder with planned_config.py"):
        launched(tmp_path, instance_of(UNTIED))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tensor_parallel_degree = 1", "tensor_parallel_degree = 0", "0; allowed: a whole number"),
        ("tensor_parallel_degree = 1", "tensor_parallel_degree = N", "N; allowed: a literal"),
        (
            "shard_degree = 2\n    config.parallelism.data_parallel_replicate_degree = 1",
            "shard_degree = 1\n    config.parallelism.data_parallel_replicate_degree = 2\n"
            "    config.parallelism.expert_parallel_degree = 2",
            "2; allowed: 1 beside parallelism.expert_parallel_degree",
        ),
        (
            "shard_degree = 2\n    config.parallelism.data_parallel_replicate_degree = 1",
            "shard_degree = 1\n    config.parallelism.data_parallel_replicate_degree = 2\n"
            "    config.parallelism.context_parallel_degree = 2",
            "2; allowed: 1 beside",
        ),
        ("context_parallel_degree", "context_paralel_degree", "an unknown field; allowed: "),
        ("replicate_degree = 1", "replicate_degree = 2", "2; allowed: 1 beside"),
        ("LAYERS = 12", "LAYERS = 13", "13; allowed: 12, as in the instance"),
        ("seq_len = 1024", "seq_len = 2048", "2048; allowed: 1024, as in the instance"),
        (
            "global_batch_size = 16",
            "global_batch_size = 8",
            "8; allowed: 16, workload.global_batch",
        ),
        ("local_batch_size = 8", "local_batch_size = 4", "4; allowed: what 2 replicas share of 16"),
        ("layers_per_stage = None", "layers_per_stage = 3", "3; allowed: None, and"),
        ("['tok_embeddings', ", "[", r"parts?\[0\]: .*; allowed: tok_embeddings, layers.0 to"),
        ("'layers.4', ", "", r"parts?\[1\]: .*; allowed: "),
        ("'norm', ", "", "14 layers; allowed: all 14 layers, and norm"),
        (", 'norm', 'lm_head'", "", "13 layers; allowed: all 14 layers, and norm"),
        ("'never'", "'always'", "'always'; allowed: never with several stages"),
        ("'never'", "'often'", "'often'; allowed: default, always or never"),
        ("FullAC.Config()", "SelectiveAC.Config()", r"SelectiveAC.Config\(\); allowed: None or"),
        ("    return config", "    return (", "never closed; allowed: a module of Python"),
    ],
)
def test_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    """File and line, field, what was found, what is allowed."""
    assert old in MODULE
    message = message.replace("parts?", "module_fqns_per_model_part")
    with pytest.raises(PlanError, match=rf"planned_config\.py:\d+(:\d+)?\b.*{message}"):
        read(tmp_path, MODULE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1F1,", "", r"schedule\.csv:2: operations of no schedule .*; allowed: 1f1b or gpipe or"),
        ("0F0,0F1,", "0F1,0F0,", r"schedule\.csv:1: operations of no schedule"),
        ("3F0,", "\n3F0,", r"schedule\.csv: 5 rows; allowed: 4, one per pipeline rank"),
    ],
)
def test_refused_schedule(old: str, new: str, message: str, tmp_path: Path) -> None:
    """Rows of operations that cannot be simulated."""
    assert old in SCHEDULE
    with pytest.raises(PlanError, match=message):
        read(tmp_path, schedule=SCHEDULE.replace(old, new, 1))
