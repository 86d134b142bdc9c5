"""DeepSpeed 0.19: JSON, and with several stages a `PipelineModule` cut as planned.

Its `partition_method` knows no list of layers, so a subclass sets the parts.
Ranks are as in the plan: `PipeDataParallelTopology`.
"""

import json

from formulations.errors import Fault
from formulations.instance.targets import mixed_gradients
from formulations.space.launch import model_obstacles
from solver.export import huggingface
from solver.export.huggingface import TRAINING, model_files
from solver.export.job import IMPORTABLE, Job, launcher_files, template

CONFIG, MODULE = "ds_config.json", "planned_pipeline.py"


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    config, workload = job.config, job.instance.workload
    mixed = mixed_gradients(workload)
    # checked against all ranks, whatever AutoTP makes of them
    batch = {"train_batch_size": workload.global_batch} if job.tp == 1 else {}
    configuration: dict[str, object] = {
        **batch,
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
    training = "deepspeed_pipeline_training.py" if config.pp > 1 else "deepspeed_training.py"
    model = model_files(job, training, recomputes=job.recompute_way == "full")
    command = f'"$1" --deepspeed_config "$here/{CONFIG}" "${{@:2}}"'
    start = TRAINING * bool(model)
    launcher = launcher_files(job, "SCRIPT [ARGUMENTS]", command, IMPORTABLE, start=start)
    return texts | model | launcher


def model_faults(job: Job) -> list[Fault]:
    """Pipelines are of fewer models than whole ones."""
    barring = model_obstacles(job.instance, "deepspeed-pipelines") if job.config.pp > 1 else []
    return [*huggingface.model_faults(job), *barring]
