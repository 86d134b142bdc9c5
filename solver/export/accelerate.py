"""Accelerate 1.15: `ParallelismConfig` and what goes with it, for plans of one stage.

Ranks are as in the plan: tensor fastest, then data.
"""

from collections.abc import Mapping

from solver.export.job import IMPORTABLE, Job, read_settings
from solver.export.launcher import check_launcher, expect, launcher_files

MODULE = "planned_accelerator.py"

_PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp32": "no", "tf32": "no"}

_TEXT = '''\
"""Accelerate configuration of {title}.

accelerator() returns an Accelerator of the plan; data loaders take batches of MICRO_BATCH
sequences. Train inside `with accelerator.accumulate(model)`, and call recomputed(model) first.
"""

from accelerate import Accelerator
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin, GradientAccumulationPlugin

BLOCKS = {blocks}
MICRO_BATCH = {micro_batch}
GLOBAL_BATCH = {global_batch}
PROCESSES = {world}
#: Of ParallelismConfig; None: data parallelism alone, nothing sharded.
SIZES = {sizes}
#: Of FullyShardedDataParallelPlugin; None: parameters are not sharded.
SHARDING = {sharding}
ACCUMULATION = {accumulation}
PRECISION = {precision!r}
RECOMPUTES = {recomputes}


def accelerator(**options):
    """An Accelerator that runs the plan."""
    return Accelerator(
        parallelism_config=SIZES and ParallelismConfig(**SIZES),
        fsdp_plugin=SHARDING and FullyShardedDataParallelPlugin(**SHARDING),
        gradient_accumulation_plugin=GradientAccumulationPlugin(**ACCUMULATION),
        mixed_precision=PRECISION,
        **options,
    )


def recomputed(model):
    """The model of the transformers library, recomputing its blocks if the plan does."""
    if model.config.num_hidden_layers != BLOCKS:
        raise ValueError(f"the plan is for {{BLOCKS}} blocks")
    if RECOMPUTES:
        model.gradient_checkpointing_enable()
    return model
'''


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    text = _TEXT.format(
        title=job.title,
        blocks=job.num_blocks,
        micro_batch=job.shape.micro_batch,
        global_batch=job.instance.workload.global_batch,
        world=job.world,
        sizes=_sizes(job),
        sharding=_sharding(job),
        accumulation={"num_steps": job.micro_batches, "sync_each_batch": _shards(job)},
        precision=_PRECISIONS[job.instance.workload.precision],
        recomputes=job.recompute_way == "full",
    )
    return {MODULE: text, **launcher_files(job, "SCRIPT [ARGUMENTS]", '"$@"', IMPORTABLE)}


def _shards(job: Job) -> bool:
    return job.shape.zero > 0 and job.shape.has_copies


def _sizes(job: Job) -> dict[str, int] | None:
    if not _shards(job) and job.tp == 1:
        return None
    shard = job.shape.dp if _shards(job) else 1
    return {"dp_replicate_size": 1, "dp_shard_size": shard, "tp_size": job.tp}


def _sharding(job: Job) -> dict[str, object] | None:
    if not _shards(job):
        return None
    wrapped = {"auto_wrap_policy": "transformer_based_wrap"}  # else the model is gathered whole
    return {"fsdp_version": 2, "reshard_after_forward": job.shape.zero == 3, **wrapped}


def check(job: Job, texts: Mapping[str, str]) -> None:
    """Raises PlannerError unless the files, read back, say what the plan does."""
    check_launcher(job, texts)
    found = read_settings(texts[MODULE])
    sizes, steps = found["SIZES"], found["ACCUMULATION"]
    product = 1
    for size in sizes.values() if isinstance(sizes, dict) else (job.world,):
        product *= size
    expect("processes", (product, found["PROCESSES"]), (job.world, job.world))
    expect("blocks", found["BLOCKS"], job.num_blocks)
    number = steps["num_steps"] if isinstance(steps, dict) else None
    expect("micro-batches per replica", number, job.micro_batches)
    batches = found["MICRO_BATCH"], found["GLOBAL_BATCH"]
    total = job.micro_batches * job.shape.micro_batch * job.shape.dp
    expect("micro and global batch", batches, (job.shape.micro_batch, total))
