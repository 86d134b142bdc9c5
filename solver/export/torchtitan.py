"""torchtitan 0.3: a module that configures a recipe, and the schedule as a file of operations.

Every schedule goes as `pipeline_parallel_schedule_csv`: a row per pipeline rank, cells such as
`0F3` (stage, operation, micro-batch; F forward, B backward, I and W its parts for inputs and
weights), run by `_PipelineScheduleRuntime`. Stages go round the ranks, as in the plan.
ZeRO 1 with several stages is FSDP2 that keeps parameters after the forward pass and reduces
gradients with the last micro-batch; with one stage it reduces them with each: ZeRO 2, and 3 where
it drops parameters in between. Several shard groups are its hybrid sharding, HSDP: replicas
of groups.
"""

from enum import StrEnum

from formulations.instance.search import ScheduleName
from formulations.instance.sizes import TransformerSizes
from formulations.instance.targets import PUBLISHED
from formulations.instance.workload import Recompute, padded_vocabulary
from formulations.schedules.registry import SCHEDULES, Kind, device_order
from solver.export.job import IMPORTABLE, Job, Piece, launcher_files, table_text, template
from solver.files import fields_of, table_beside

#: Its activation checkpointing for each way to recompute.
POLICIES: dict[Recompute, str] = {"none": "", "per_op": "SelectiveAC", "full": "FullAC"}
MODULE, MODEL, SCHEDULE = "planned_config.py", "planned_model.py", "schedule.csv"


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    config = job.config
    lines = [f"    config.{name} = {value!r}" for name, value in settings(job).items()]
    if policy := POLICIES[job.recompute_way]:
        lines.append(f"    from torchtitan.distributed.activation_checkpoint import {policy}")
    checkpoint = f"{policy}.Config()" if policy else "None"
    lines.append(f"    config.activation_checkpoint = {checkpoint}")
    schedule = {}
    if config.pp > 1:
        lines.append(f'    config.{Field.CSV} = str(HERE / "{SCHEDULE}")')
        rows = schedule_rows(config.schedule, config.pp, config.vpp, job.micro_batches)
        schedule = {SCHEDULE: table_text(rows)}
    text = template(MODULE).format(title=job.title, layers=job.num_blocks, lines="\n".join(lines))
    usage = "--config NAME [ARGUMENTS]    (NAME: a function of planned_config.py)"
    command, start, written = '-m torchtitan.train --module planned_config "$@"', "", {}
    if sizes := job.instance.workload.sizes:
        values = model(sizes, job)
        constants = "".join(f"{name} = {value!r}\n" for name, value in values.items())
        written = {MODEL: template(MODEL).format(job=job, sizes=constants)}
        text, start = text + template("planned_of_model.py"), "--config planned"
    launcher = launcher_files(job, usage, command, IMPORTABLE, start=start)
    return {MODULE: text, **written, **schedule, **launcher}


def model(sizes: TransformerSizes, job: Job) -> dict[str, object]:
    """Constants of the module that builds a model."""
    moe, scaling = sizes.moe, sizes.rotary_scaling
    names = table_beside("solver.export", "torchtitan.yaml")
    rotary: dict[str, object] = {"theta": sizes.rotary_base}
    if scaling:  # of Llama 3, all others are refused
        rotary |= {"scaling": "llama", "scaling_factor": scaling.get("factor")}
        rotary |= {name: scaling.get(name) for name in PUBLISHED["llama3"]}
    router: dict[str, object] = {}
    if moe:
        router = fields_of(moe, **names["router"])
        router["score_func"] = moe.scores or "softmax"

    def stated(options: dict[str, object]) -> dict[str, object]:
        return {name: value for name, value in options.items() if value is not None}

    rows = job.instance.workload.layers[-1].vocabulary_rows
    return {
        **fields_of(sizes, **names["model"]),
        "VOCABULARY": padded_vocabulary(rows, job.tp),
        "TIED": sizes.tied_embeddings,
        "LENGTH": job.instance.workload.sequence_length,
        "NORM": stated({"eps": sizes.norm_epsilon}),
        "ROTARY": stated(rotary),
        "DENSE_BLOCKS": moe.dense_first_layers if moe else sizes.layers,
        "ROUTER": stated(router),
        "EXPERT_WIDTH": moe.ffn_size if moe else 0,
        "SHARED_WIDTH": moe.shared_experts * moe.ffn_size if moe else 0,
    }


class Field(StrEnum):
    """Fields of a configuration that a plan decides; `evaluate` reads them back."""

    TP = "parallelism.tensor_parallel_degree"
    SEQUENCE = "parallelism.enable_sequence_parallel"
    PP = "parallelism.pipeline_parallel_degree"
    CP = "parallelism.context_parallel_degree"
    EP = "parallelism.expert_parallel_degree"
    SHARD = "parallelism.data_parallel_shard_degree"
    REPLICATE = "parallelism.data_parallel_replicate_degree"
    RESHARD = "parallelism.fsdp_reshard_after_forward"
    NAME = "parallelism.pipeline_parallel_schedule"
    CSV = "parallelism.pipeline_parallel_schedule_csv"
    SIZE = "parallelism.pipeline_parallel_microbatch_size"
    PER_STAGE = "parallelism.pipeline_parallel_layers_per_stage"
    PARTS = "parallelism.module_fqns_per_model_part"
    LOCAL = "training.local_batch_size"
    GLOBAL = "training.global_batch_size"
    LENGTH = "training.seq_len"
    PARAMETERS = "training.mixed_precision_param"
    NO_GRAPHS = "training.disable_cuda_graphs"


def settings(job: Job) -> dict[Field, object]:
    """Their values."""
    config, workload = job.config, job.instance.workload
    split = config.zero > 0
    fields: dict[Field, object] = {
        Field.TP: job.tp,
        Field.SEQUENCE: job.sequence_parallel,
        Field.PP: config.pp,
        Field.CP: config.cp,
        Field.EP: config.ep,
        Field.SHARD: config.shard_replicas if split else 1,
        Field.REPLICATE: config.optimizer_instances if split else config.dp,
        Field.RESHARD: "always" if config.zero == 3 else "never",
        Field.LOCAL: config.micro_batch * (job.micro_batches if config.pp > 1 else 1),
        Field.GLOBAL: workload.global_batch,
        Field.LENGTH: workload.sequence_length,
        Field.PARAMETERS: {"bf16": "bfloat16", "fp32": "float32"}[workload.precision],
    }
    if config.pp > 1 or config.ep > 1:
        fields[Field.NO_GRAPHS] = True  # else the configuration is refused
    if config.pp > 1:
        fields |= {
            Field.PER_STAGE: None,
            Field.SIZE: config.micro_batch,
            Field.NAME: "PipelineScheduleMulti",
            Field.PARTS: [modules(piece) for piece in job.pieces],
        }
    return fields


def modules(piece: Piece) -> list[str]:
    """Names of the modules of a piece."""
    blocks = [f"layers.{i}" for i in piece.blocks]
    return [*["tok_embeddings"] * piece.embedding, *blocks, *["norm", "lm_head"] * piece.head]


def schedule_rows(name: ScheduleName, pp: int, vpp: int, micro_batches: int) -> list[list[str]]:
    """Per pipeline rank its operations in order, of so many stages, chunks and micro-batches."""
    backward = "I" if SCHEDULES[name].splits_backward else "B"
    letters = {Kind.FORWARD: "F", Kind.BACKWARD: backward, Kind.WEIGHT: "W"}
    return [
        [
            f"{operation.stage}{letters[operation.kind]}{operation.micro_batch}"
            for operation in device_order(name, pp, k, micro_batches, vpp)
        ]
        for k in range(pp)
    ]
