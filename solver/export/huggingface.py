"""DeepSpeed 0.19 and Accelerate 1.15, which train models of the transformers library.

Ranks are as in the plan: tensor fastest, then data, then the stage (`PipeDataParallelTopology`).
The model is a `config.json`, where the plan has its sizes. The module beside it makes the model,
with random weights, and feeds it random tokens; data and optimizer are the user's.

DeepSpeed takes JSON, and with several stages a `PipelineModule` cut as planned: its
`partition_method` knows no list of layers, so a subclass sets the parts. Accelerate takes a
`ParallelismConfig` and what goes with it, for plans of one stage.
"""

import json
from typing import Any

from formulations.errors import Fault
from formulations.instance.huggingface import config_from_sizes, model_types
from formulations.instance.targets import mixed_gradients
from formulations.instance.workload import padded_vocabulary
from formulations.space.launch import model_obstacles
from solver.export.job import IMPORTABLE, Job, launcher_files, template

CONFIG, MODEL, TRAINING = "config.json", "planned_transformer.py", "planned_training.py"
ENGINE, PIPELINE = "ds_config.json", "planned_pipeline.py"
ACCELERATOR = "planned_accelerator.py"
_POSITIONS, _KV_HEADS = "max_position_embeddings", "num_key_value_heads"
_PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp32": "no", "tf32": "no"}


def deepspeed_files(job: Job) -> dict[str, str]:
    """All files of an export for DeepSpeed, by name."""
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
    texts = {ENGINE: json.dumps(configuration, indent=1) + "\n"}
    if config.pp > 1:
        texts[PIPELINE] = template(PIPELINE).format(
            job=job,
            parts=[0, *(stage.layers[1] for stage in job.plan.replicas[0].stages)],
            tied=", the tied ones as TiedLayerSpec" * workload.tied_embeddings,
            run=int(job.recompute_way == "full"),
        )
    training = "deepspeed_pipeline_training.py" if config.pp > 1 else "deepspeed_training.py"
    command = f'"$1" --deepspeed_config "$here/{ENGINE}" "${{@:2}}"'
    return texts | _model_files(job, training, command)


def accelerate_files(job: Job) -> dict[str, str]:
    """All files of an export for Accelerate, by name."""
    text = template(ACCELERATOR).format(title=job.title, **accelerate_settings(job))
    return {ACCELERATOR: text, **_model_files(job, "accelerate_training.py", '"$@"')}


def _model_files(job: Job, training: str, command: str) -> dict[str, str]:
    """The model and a script that trains it, none where it is the user's; what starts either.

    training: the script's template. command: what torchrun runs.
    """
    workload, sizes, texts = job.instance.workload, job.instance.workload.sizes, dict[str, str]()
    config = sizes and config_from_sizes(sizes)
    if sizes and config:
        # some classes compute with null
        for name, number in (("head_dim", sizes.width_per_head), (_KV_HEADS, sizes.num_kv_heads)):
            config.update({name: number} if name in config else {})
        config["vocab_size"] = padded_vocabulary(workload.layers[-1].vocabulary_rows, job.tp)
        if _POSITIONS in model_types()[str(config["model_type"])].defaults:
            config[_POSITIONS] = workload.sequence_length
        recomputes = job.recompute_way == "full"
        texts = {
            CONFIG: json.dumps(config, indent=1) + "\n",
            MODEL: template(MODEL).format(job=job),
            TRAINING: template(training).format(job=job, recomputes=recomputes),
        }
    start = TRAINING * bool(texts)
    return texts | launcher_files(job, "SCRIPT [ARGUMENTS]", command, IMPORTABLE, start=start)


def _model_faults(job: Job) -> list[Fault]:
    """A model that no type of the library has."""
    sizes = job.instance.workload.sizes
    if sizes is None or config_from_sizes(sizes):
        return []
    found = "a model of sizes that no decoder of the transformers library has"
    return [Fault(found, "--own-model, and a model of yours")]


def deepspeed_faults(job: Job) -> list[Fault]:
    """Pipelines are of fewer models than whole ones."""
    barring = model_obstacles(job.instance, "deepspeed-pipelines") if job.config.pp > 1 else []
    return [*_model_faults(job), *barring]


def accelerate_faults(job: Job) -> list[Fault]:
    """Of models that are written here, none is split over tensor groups."""
    split = "tensor_parallel: {} is not for Accelerate, which splits models of checkpoints alone"
    allowed = "--own-model, and a model of yours"
    several = job.tp > 1 and job.instance.workload.sizes is not None
    return [*_model_faults(job), *[Fault(split.format(job.tp), allowed)] * several]


def accelerate_settings(job: Job) -> dict[str, Any]:
    """What Accelerate's module assigns."""
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
