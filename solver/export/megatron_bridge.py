"""Megatron-Bridge: a module that trains, and a function that puts a plan into a configuration.

`config` there has the model; another recipe may bring it, data and optimizer. `apply` sets what the
plan decides and checks that the model has as many layers as the plan was made for. At start
`mixed_precision` overwrites formats in `model` and `ddp`, and `comm_overlap`, where there is one,
what of `ddp` is overlapped (`runtime_config_update` of `training/config.py`), so `apply` sets both.
It clears what excludes a layout, and gives the data the model's sequence length, without which
`validate` ends the job.
"""

from formulations.instance.targets import PUBLISHED
from solver.export.job import IMPORTABLE, Job, launcher_files, template
from solver.export.megatron import (
    GROUP_SIZE,
    NAMES,
    batches,
    degrees,
    model,
    recomputation,
    strategies,
    vocabulary,
)

RECIPE, TRAINING = "planned_recipe.py", "planned_training.py"
_GROUP_SIZE = "microbatch_group_size_per_vp_stage"  #: a field of Megatron-Core's configuration


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    workload, hidden = job.instance.workload, strategies(job)
    overlap = {name: hidden[name] for name in ("tp_comm_overlap", "overlap_grad_reduce")}
    overlap["overlap_param_gather"] = False
    formats, weights = NAMES["bridge_precision"][workload.precision]
    precision = f"{formats}, params_dtype=torch.{weights}, pipeline_dtype=torch.{weights}"
    lines = [f"    cfg.{name} = {value!r}" for name, value in settings(job).items()]
    if workload.optimizer_state == "bf16":
        moments = "cfg.optimizer.exp_avg_dtype = cfg.optimizer.exp_avg_sq_dtype"
        lines += [f"    {moments} = torch.bfloat16"]
    module = template(RECIPE).format(
        job=job,
        precision=f"{precision}, grad_reduce_in_fp32={workload.gradient_bytes == 4}",
        overlap=", ".join(f"{n}={on}" for n, on in overlap.items()),
        lines="\n".join(lines),
    )
    fields = provided(job)
    if fields:
        module += template(TRAINING).format(
            job=job,
            kind="MLA" if "kv_lora_rank" in fields else "GPT",
            fields="".join(f"        {name}={value!r},\n" for name, value in fields.items()),
        )
    usage = "SCRIPT [ARGUMENTS]    (a script that trains with apply(RECIPE()))"
    return {
        RECIPE: module,
        **launcher_files(job, usage, '"$@"', IMPORTABLE, start=RECIPE * bool(fields)),
    }


_YARN = ("rotary_scaling_factor", "mscale", "mscale_all_dim")  #: here with a prefix


def provided(job: Job) -> dict[str, object]:
    """Fields of the model's provider; empty where the model is the user's."""
    fields: dict[str, object] = {}
    for name, value in (model(job) and vocabulary(job) | model(job)).items():
        field = NAMES["bridge_names"].get(name, name)
        if value is None or value is False or field is None:
            continue
        if name in NAMES["bridge_flags"]:
            fields |= NAMES["bridge_flags"][name]
        else:
            fields[field] = list(value) if isinstance(value, tuple) else value
    if fields.get("position_embedding_type") == "yarn":
        given = {name: fields.pop(name, None) for name in _YARN}
        fields |= {f"yarn_{name}": value for name, value in given.items() if value is not None}
        fields |= {f"yarn_{name}": value for name, value in PUBLISHED["yarn"].items()}
    return fields


def settings(job: Job) -> dict[str, object]:
    """Fields of the configuration: those of `model` are Megatron-LM's options."""
    config, hidden = job.config, strategies(job)
    sizes = batches(job, config.micro_batch)
    of_model: dict[str, object] = {
        "expert_model_parallel_size": 1,
        "expert_tensor_parallel_size": job.tp,
        **{name: value for name, value in degrees(job).items() if name != GROUP_SIZE},
        **recomputation(job),
        "virtual_pipeline_model_parallel_size": config.vpp if config.vpp > 1 else None,
        _GROUP_SIZE: config.microbatch_group,
        "sequence_parallel": job.sequence_parallel,
        "mtp_num_layers": sizes["mtp_num_layers"],
        "seq_length": sizes["seq_length"],
    }
    if job.instance.workload.fused_cross_entropy:
        fused = ("cross_entropy_loss_fusion", "cross_entropy_fusion_impl")
        of_model |= {name: hidden[name] for name in fused}
    match of_model["cp_comm_type"]:
        case [method]:  # of all layers
            of_model["cp_comm_type"] = method
    return {
        **{f"model.{name}": value for name, value in of_model.items()},
        "train.global_batch_size": sizes["global_batch_size"],
        "train.micro_batch_size": sizes["micro_batch_size"],
        "ddp.use_distributed_optimizer": config.zero > 0,
        "ddp.num_distributed_optimizer_instances": config.optimizer_instances,
        "ddp.overlap_grad_reduce": hidden["overlap_grad_reduce"],
        "ddp.overlap_param_gather": False,
        "ddp.grad_reduce_in_fp32": hidden["accumulate_allreduce_grads_in_fp32"],
        "optimizer.use_distributed_optimizer": config.zero > 0,
        "optimizer.use_precision_aware_optimizer": hidden["use_precision_aware_optimizer"],
        "dist.use_tp_pp_dp_mapping": False,
    }
