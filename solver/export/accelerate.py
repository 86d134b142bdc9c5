"""Accelerate 1.15: `ParallelismConfig` and what goes with it, for plans of one stage.

Ranks are as in the plan: tensor fastest, then data.
"""

from typing import Any

from formulations.errors import Fault
from solver.export import huggingface
from solver.export.huggingface import TRAINING, model_files
from solver.export.job import IMPORTABLE, Job, launcher_files, template

MODULE = "planned_accelerator.py"

_PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp32": "no", "tf32": "no"}


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    text = template(MODULE).format(title=job.title, **settings(job))
    model = model_files(job, "accelerate_training.py")
    start = TRAINING * bool(model)
    launcher = launcher_files(job, "SCRIPT [ARGUMENTS]", '"$@"', IMPORTABLE, start=start)
    return {MODULE: text, **model, **launcher}


def model_faults(job: Job) -> list[Fault]:
    """Of models that are written here, none is split over tensor groups."""
    split = "tensor_parallel: {} is not for Accelerate, which splits models of checkpoints alone"
    allowed = "--own-model, and a model of yours"
    several = job.tp > 1 and job.instance.workload.sizes is not None
    return [*huggingface.model_faults(job), *[Fault(split.format(job.tp), allowed)] * several]


def settings(job: Job) -> dict[str, Any]:
    """What the module assigns."""
    sizes = sharding = None
    shards = job.config.zero > 0 and job.config.has_copies
    reduces = shards and job.config.sync_each_batch
    if shards or job.tp > 1:
        shard = job.config.dp if shards else 1
        sizes = {"dp_replicate_size": 1, "dp_shard_size": shard, "tp_size": job.tp}
    if shards:
        sharding = {
            "fsdp_version": 2,
            "reshard_after_forward": job.config.zero == 3,
            "auto_wrap_policy": "transformer_based_wrap",  # else the model is gathered whole
        }
    return {
        "BLOCKS": job.num_blocks,
        "MICRO_BATCH": job.config.micro_batch,
        "GLOBAL_BATCH": job.instance.workload.global_batch,
        "PROCESSES": job.world,
        "SIZES": sizes,
        "SHARDING": sharding,
        "ACCUMULATION": {"num_steps": job.micro_batches, "sync_each_batch": reduces},
        "PRECISION": _PRECISIONS[job.instance.workload.precision],
        "RECOMPUTES": job.recompute_way == "full",
    }
