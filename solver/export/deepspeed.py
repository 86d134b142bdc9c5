"""DeepSpeed 0.19: JSON, and with several stages a `PipelineModule` cut as planned.

Its `partition_method` knows no list of layers, so a subclass sets the parts.
Ranks are as in the plan: `PipeDataParallelTopology`.
"""

import json

from formulations.instance.targets import mixed_gradients
from solver.export.job import IMPORTABLE, Job, template
from solver.export.launcher import launcher_files

CONFIG, MODULE = "ds_config.json", "planned_pipeline.py"


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    config, workload = job.config, job.instance.workload
    mixed = mixed_gradients(workload)
    configuration: dict[str, object] = {
        "train_batch_size": workload.global_batch,
        "train_micro_batch_size_per_gpu": config.micro_batch,
        "gradient_accumulation_steps": job.micro_batches,
        # of one replica ZeRO 1 splits nothing, and takes mixed gradients
        "zero_optimization": {"stage": config.zero if config.has_copies else int(mixed)},
    }
    if workload.precision in ("bf16", "fp16"):
        configuration[workload.precision] = {"enabled": True}
    if mixed:
        configuration["data_types"] = {"grad_accum_dtype": "fp32"}
    if job.tp > 1:
        configuration["tensor_parallel"] = {"autotp_size": job.tp}
    texts = {CONFIG: json.dumps(configuration, indent=1) + "\n"}
    if config.pp > 1:
        texts[MODULE] = template(MODULE).format(
            job=job,
            parts=[0, *(stage.layers[1] for stage in job.plan.replicas[0].stages)],
            tied=", the tied ones as TiedLayerSpec" * workload.tied_embeddings,
            run=int(job.recompute_way == "full"),
        )
    command = f'"$1" --deepspeed_config "$here/{CONFIG}" "${{@:2}}"'
    return texts | launcher_files(job, "SCRIPT [ARGUMENTS]", command, IMPORTABLE)
