"""torchtitan 0.3: a module that configures a recipe, and the schedule as a file of operations.

Every schedule goes as `pipeline_parallel_schedule_csv`: a row per pipeline rank, cells such as
`0F3` (stage, operation, micro-batch; F forward, B backward, I and W its parts for inputs and
weights), run by `_PipelineScheduleRuntime`. Stages go round the ranks, as in the plan.
ZeRO 1 with several stages is FSDP2 that keeps parameters after the forward pass and reduces
gradients with the last micro-batch; with one stage it reduces them with each: ZeRO 2, and 3 where
it drops parameters in between.
"""

import csv
import io
from collections.abc import Mapping

from formulations.instance.search import ScheduleName
from formulations.schedules import SCHEDULES, device_order
from formulations.schedules.operations import Kind
from solver.export.job import IMPORTABLE, Job, Piece, read_settings
from solver.export.launcher import check_launcher, expect, launcher_files

MODULE, SCHEDULE = "planned_config.py", "schedule.csv"
_PARAMETERS = {"bf16": "bfloat16", "fp32": "float32"}
_LETTERS = {Kind.FORWARD: "F", Kind.BACKWARD: "B", Kind.WEIGHT: "W"}

_TEXT = '''\
"""torchtitan configuration of {title}.

    torchtitan.train --module planned_config --config NAME
with a function NAME here that returns apply(RECIPE()), where RECIPE is a function of a model's
config_registry, such as torchtitan.models.llama3.config_registry.llama3_8b.

The order of the hosts (hosts.txt) places the stages. Receives are posted early and may block
compute (github.com/pytorch/pytorch/issues/172668): then steps are longer than planned.
"""

from pathlib import Path

HERE = Path(__file__).resolve().parent
LAYERS = {layers}


def apply(config):
    """The configuration of a recipe, with all that the plan decides."""
    if len(config.model_spec.model.layers) != LAYERS:
        raise ValueError(f"the plan is for {{LAYERS}} layers")
{lines}
    return config
'''


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    lines = [f"    config.{name} = {value!r}" for name, value in settings(job).items()]
    if job.recompute_way == "full":
        lines.append("    from torchtitan.distributed.activation_checkpoint import FullAC")
        lines.append("    config.activation_checkpoint = FullAC.Config()")
    else:
        lines.append("    config.activation_checkpoint = None")
    if job.shape.pp > 1:
        path = f'str(HERE / "{SCHEDULE}")'
        lines.append(f"    config.parallelism.pipeline_parallel_schedule_csv = {path}")
    text = _TEXT.format(title=job.title, layers=job.num_blocks, lines="\n".join(lines))
    usage = "--config NAME [ARGUMENTS]    (NAME: a function of planned_config.py)"
    command = '-m torchtitan.train --module planned_config "$@"'
    schedule = {SCHEDULE: schedule_text(job)} if job.shape.pp > 1 else {}
    return {MODULE: text, **schedule, **launcher_files(job, usage, command, IMPORTABLE)}


def settings(job: Job) -> dict[str, object]:
    """Fields of the configuration."""
    shape, workload = job.shape, job.instance.workload
    split = shape.zero > 0
    local = shape.micro_batch * (job.micro_batches if shape.pp > 1 else 1)
    found: dict[str, object] = {
        "parallelism.tensor_parallel_degree": job.tp,
        "parallelism.enable_sequence_parallel": job.sequence_parallel,
        "parallelism.pipeline_parallel_degree": shape.pp,
        "parallelism.context_parallel_degree": shape.cp,
        "parallelism.expert_parallel_degree": shape.ep,
        "parallelism.data_parallel_shard_degree": shape.dp if split else 1,
        "parallelism.data_parallel_replicate_degree": 1 if split else shape.dp,
        "parallelism.fsdp_reshard_after_forward": "always" if shape.zero == 3 else "never",
        "training.local_batch_size": local,
        "training.global_batch_size": workload.global_batch,
        "training.seq_len": workload.sequence_length,
        "training.mixed_precision_param": _PARAMETERS[workload.precision],
    }
    if shape.pp > 1 or shape.ep > 1:
        found["training.disable_cuda_graphs"] = True  # else the configuration is refused
    if shape.pp > 1:
        found |= {
            "parallelism.pipeline_parallel_layers_per_stage": None,
            "parallelism.pipeline_parallel_microbatch_size": shape.micro_batch,
            "parallelism.pipeline_parallel_schedule": "PipelineScheduleMulti",
            "parallelism.module_fqns_per_model_part": [modules(piece) for piece in job.pieces],
        }
    return found


def modules(piece: Piece) -> list[str]:
    """Names of the modules of a piece."""
    blocks = [f"layers.{i}" for i in piece.blocks]
    return [*["tok_embeddings"] * piece.embedding, *blocks, *["norm", "lm_head"] * piece.head]


def schedule_text(job: Job) -> str:
    """A row of operations per pipeline rank."""
    page = io.StringIO()
    csv.writer(page, lineterminator="\n").writerows(operations(job))
    return page.getvalue()


def operations(job: Job) -> list[list[str]]:
    """Per pipeline rank, its operations in order."""
    shape = job.shape
    return schedule_rows(shape.schedule, shape.pp, shape.vpp, job.micro_batches)


def schedule_rows(name: ScheduleName, pp: int, vpp: int, micro_batches: int) -> list[list[str]]:
    """The same of a schedule, for so many stages, chunks per rank and micro-batches."""
    letters = _LETTERS
    if SCHEDULES[name].splits_backward:
        letters = {**_LETTERS, Kind.BACKWARD: "I"}
    return [
        [
            f"{one.stage}{letters[one.kind]}{one.micro_batch}"
            for one in device_order(name, pp, k, micro_batches, vpp)
        ]
        for k in range(pp)
    ]


def check(job: Job, texts: Mapping[str, str]) -> None:
    """Raises PlannerError unless the files, read back, say what the plan does."""
    check_launcher(job, texts)
    found = read_settings(texts[MODULE])
    degrees = [f"{name}_degree" for name in _DEGREES]
    tp, pp, shard, replicate = (found[f"parallelism.{name}"] for name in degrees)
    expect("degrees", (tp, pp), (job.tp, job.shape.pp))
    expect("data-parallel degrees", {shard, replicate} - {1}, {job.shape.dp} - {1})
    local, total = (found[f"training.{name}_batch_size"] for name in ("local", "global"))
    expect("layers", found["LAYERS"], job.num_blocks)
    expect("global batch", total, job.micro_batches * job.shape.micro_batch * job.shape.dp)
    if job.shape.pp > 1:
        expect("sequences per rank", local, job.micro_batches * job.shape.micro_batch)
        parts = found["parallelism.module_fqns_per_model_part"]
        expect("modules", parts, [modules(piece) for piece in job.pieces])
        _check_schedule(job, texts[SCHEDULE])


_DEGREES = (
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel_shard",
    "data_parallel_replicate",
)


def _check_schedule(job: Job, text: str) -> None:
    """Every micro-batch forward and backward once on every stage of every rank, in plan order."""
    rows = list(csv.reader(io.StringIO(text)))
    expect("ranks of the schedule", len(rows), job.shape.pp)
    expect("operations", rows, operations(job))
    kinds = 3 if SCHEDULES[job.shape.schedule].splits_backward else 2
    counts = [len(set(row)) for row in rows]
    planned = kinds * job.micro_batches * job.shape.vpp
    expect("operations per rank", counts, [planned] * job.shape.pp)
