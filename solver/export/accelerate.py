"""Accelerate 1.15: `ParallelismConfig` and what goes with it, for plans of one stage.

Ranks are as in the plan: tensor fastest, then data.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

from solver.export.job import IMPORTABLE, Job, read_settings, template
from solver.export.launcher import expect, launcher_files

MODULE = "planned_accelerator.py"

_PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp32": "no", "tf32": "no"}


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    sizes: dict[str, int] | None = None
    sharding: dict[str, object] | None = None
    shards = job.config.zero > 0 and job.config.has_copies
    if shards or job.tp > 1:
        shard = job.config.dp if shards else 1
        sizes = {"dp_replicate_size": 1, "dp_shard_size": shard, "tp_size": job.tp}
    if shards:
        sharding = {
            "fsdp_version": 2,
            "reshard_after_forward": job.config.zero == 3,
            "auto_wrap_policy": "transformer_based_wrap",  # else the model is gathered whole
        }
    text = template(MODULE).format(
        title=job.title,
        blocks=job.num_blocks,
        micro_batch=job.config.micro_batch,
        global_batch=job.instance.workload.global_batch,
        world=job.world,
        sizes=sizes,
        sharding=sharding,
        accumulation={"num_steps": job.micro_batches, "sync_each_batch": shards},
        precision=_PRECISIONS[job.instance.workload.precision],
        recomputes=job.recompute_way == "full",
    )
    return {MODULE: text, **launcher_files(job, "SCRIPT [ARGUMENTS]", '"$@"', IMPORTABLE)}


def check(job: Job, texts: Mapping[str, str]) -> None:
    """Raises PlannerError unless the module, read back, says what the plan does."""
    told: dict[str, Any] = read_settings(texts[MODULE])
    processes = prod(told["SIZES"].values()) if told["SIZES"] else job.world
    expect("processes", (processes, told["PROCESSES"]), (job.world, job.world))
    expect("blocks", told["BLOCKS"], job.num_blocks)
    expect("micro-batches per replica", told["ACCUMULATION"]["num_steps"], job.micro_batches)
    batches = told["MICRO_BATCH"], told["GLOBAL_BATCH"]
    expect("micro and global batch", batches, (job.config.micro_batch, job.sequences))
