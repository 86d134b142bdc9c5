"""Megatron-Bridge: a function that puts the plan into a recipe's configuration.

The recipe brings model, data and optimizer; `apply` sets what the plan decides and checks that the
model has as many layers as the plan was made for. At start `mixed_precision` overwrites formats in
`model` and `ddp`, and `comm_overlap`, where there is one, what of `ddp` is overlapped
(`runtime_config_update` of `training/config.py`), so `apply` sets both. It clears what excludes a
layout, and gives the data the model's sequence length, without which `validate` ends the job.
"""

from collections.abc import Mapping

from solver.export.job import IMPORTABLE, Job, read_settings, template
from solver.export.launcher import launcher_files
from solver.export.megatron import (
    GROUP_SIZE,
    batches,
    check_options,
    degrees,
    recomputation,
    strategies,
)

RECIPE = "planned_recipe.py"
_GROUP_SIZE = "microbatch_group_size_per_vp_stage"  #: a field of Megatron-Core's configuration

#: Fields of MixedPrecisionConfig, and the format of weights and of what stages send.
_PRECISION = {
    "fp32": ("fp32=True", "float32"),
    "tf32": ("fp32=True", "float32"),
    "fp16": ("fp16=True", "float16"),
    "bf16": ("bf16=True", "bfloat16"),
    "fp8": ("bf16=True, fp8='hybrid', fp8_recipe='delayed'", "bfloat16"),
    "fp4": ("bf16=True, fp4='e2m1', fp4_recipe='nvfp4'", "bfloat16"),
}
#: Adam's moments in 16 bit.
_MOMENTS = [
    "    cfg.optimizer.use_precision_aware_optimizer = True",
    "    cfg.optimizer.exp_avg_dtype = cfg.optimizer.exp_avg_sq_dtype = torch.bfloat16",
]


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    workload, hidden = job.instance.workload, strategies(job)
    overlap = {name: hidden[name] for name in ("tp_comm_overlap", "overlap_grad_reduce")}
    overlap["overlap_param_gather"] = False
    formats, weights = _PRECISION[workload.precision]
    precision = f"{formats}, params_dtype=torch.{weights}, pipeline_dtype=torch.{weights}"
    lines = [f"    cfg.{name} = {value!r}" for name, value in settings(job).items()]
    module = template(RECIPE).format(
        job=job,
        precision=f"{precision}, grad_reduce_in_fp32={workload.gradient_bytes == 4}",
        overlap=", ".join(f"{n}={on}" for n, on in overlap.items()),
        lines="\n".join(lines + _MOMENTS * (workload.optimizer_state == "bf16")),
    )
    usage = "SCRIPT [ARGUMENTS]    (a script that trains with apply(RECIPE()))"
    return {RECIPE: module, **launcher_files(job, usage, '"$@"', IMPORTABLE)}


#: Fields of `model` that a recipe may have set, and the plan does without.
_CLEARED = {
    **dict.fromkeys(
        (
            "num_layers_in_first_pipeline_stage",
            "num_layers_in_last_pipeline_stage",
            "recompute_granularity",
            "recompute_method",
            "recompute_num_layers",
            "recompute_modules",
        )
    ),
    "account_for_embedding_in_pipeline_split": False,
    "account_for_loss_in_pipeline_split": False,
}


def settings(job: Job) -> dict[str, object]:
    """Fields of the configuration: those of `model` are Megatron-LM's options."""
    config, hidden = job.config, strategies(job)
    sizes = batches(job, config.micro_batch)
    model: dict[str, object] = {
        **_CLEARED,
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
        model |= {name: hidden[name] for name in fused}
    match model["cp_comm_type"]:
        case [method]:  # of all layers
            model["cp_comm_type"] = method
    return {
        **{f"model.{name}": value for name, value in model.items()},
        "train.global_batch_size": sizes["global_batch_size"],
        "train.micro_batch_size": sizes["micro_batch_size"],
        "ddp.use_distributed_optimizer": config.zero > 0,
        "ddp.num_distributed_optimizer_instances": config.optimizer_instances,
        "ddp.overlap_grad_reduce": hidden["overlap_grad_reduce"],
        "ddp.overlap_param_gather": False,
        "ddp.grad_reduce_in_fp32": hidden["accumulate_allreduce_grads_in_fp32"],
        "optimizer.use_distributed_optimizer": config.zero > 0,
        "dist.use_tp_pp_dp_mapping": False,
    }


def check(job: Job, texts: Mapping[str, str]) -> None:
    """Raises PlannerError unless the recipe, read back, says what the plan does."""
    told = read_settings(texts[RECIPE])
    fields = {name.rpartition(".")[2]: str(value) for name, value in told.items()}
    renamed = {"num_layers": fields["LAYERS"], GROUP_SIZE: fields[_GROUP_SIZE]}
    check_options(job, fields | renamed)
