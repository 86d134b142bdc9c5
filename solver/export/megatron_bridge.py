"""Megatron-Bridge: a function that puts the plan into a recipe's configuration.

The recipe brings model, data and optimizer; `apply` sets what the plan decides and checks that the
model has as many layers as the plan was made for. At start `mixed_precision` overwrites formats in
`model` and `ddp`, and `comm_overlap`, where there is one, what of `ddp` is overlapped
(`runtime_config_update` of `training/config.py`), so `apply` sets both. It clears what excludes a
layout, and gives the data the model's sequence length, without which `validate` ends the job.
"""

from collections.abc import Mapping

from solver.export.job import IMPORTABLE, Job, read_settings
from solver.export.launcher import RANKS, check_launcher, expect, launcher_files
from solver.export.megatron import (
    check_layout,
    check_ranks,
    hides_tensor_traffic,
    recomputation,
    shared,
    written,
)

RECIPE = "planned_recipe.py"

_MODULE = '''\
"""Megatron-Bridge recipe of {title}.

    from planned_recipe import apply
    cfg = apply(RECIPE())  # such as llama3_8b_pretrain_config of megatron.bridge.recipes

The order of the hosts (hosts.txt) places the stages.
"""

LAYERS = {layers}


def apply(cfg):
    """The configuration of a recipe, with all that the plan decides."""
    if cfg.model.num_layers != LAYERS:
        raise ValueError(f"the plan is for {{LAYERS}} layers, not {{cfg.model.num_layers}}")
    import torch
    from megatron.bridge.training.comm_overlap import CommOverlapConfig
    from megatron.bridge.training.mixed_precision import MixedPrecisionConfig

    cfg.mixed_precision = MixedPrecisionConfig({precision})
    cfg.comm_overlap = CommOverlapConfig({overlap})
{lines}
    for name in ("seq_length", "sequence_length"):
        if hasattr(cfg.dataset, name):
            setattr(cfg.dataset, name, cfg.model.seq_length)
    return cfg
'''

#: Fields of MixedPrecisionConfig, and the format of weights and of what stages send.
_PRECISION = {
    "fp32": ("fp32=True", "float32"),
    "tf32": ("fp32=True", "float32"),
    "fp16": ("fp16=True", "float16"),
    "bf16": ("bf16=True", "bfloat16"),
    "fp8": ("bf16=True, fp8='hybrid', fp8_recipe='delayed'", "bfloat16"),
}
_EXCLUDED = [f"model.account_for_{one}_in_pipeline_split" for one in ("embedding", "loss")]
#: Adam's moments in 16 bit.
_MOMENTS = [
    "    cfg.optimizer.use_precision_aware_optimizer = True",
    "    cfg.optimizer.exp_avg_dtype = cfg.optimizer.exp_avg_sq_dtype = torch.bfloat16",
]


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    lines = [f"    cfg.{name} = {value!r}" for name, value in settings(job).items()]
    lines += _MOMENTS if job.instance.workload.optimizer_state == "bf16" else []
    module = _MODULE.format(
        title=job.title,
        layers=job.num_blocks,
        precision=_precision(job),
        overlap=", ".join(f"{name}={value}" for name, value in _overlap(job).items()),
        lines="\n".join(lines),
    )
    usage = "SCRIPT [ARGUMENTS]    (a script that trains with apply(RECIPE()))"
    return {RECIPE: module, **launcher_files(job, usage, '"$@"', IMPORTABLE)}


def _precision(job: Job) -> str:
    """Arguments of MixedPrecisionConfig."""
    workload = job.instance.workload
    fields, weights = _PRECISION[workload.precision]
    formats = f"params_dtype=torch.{weights}, pipeline_dtype=torch.{weights}"
    return f"{fields}, {formats}, grad_reduce_in_fp32={workload.gradient_bytes == 4}"


def _overlap(job: Job) -> dict[str, bool]:
    """Arguments of CommOverlapConfig: what the plan assumes to be hidden."""
    return {
        "tp_comm_overlap": hides_tensor_traffic(job),
        "overlap_grad_reduce": bool(job.instance.search.overlap.gradient_sync),
        "overlap_param_gather": False,
    }


def settings(job: Job) -> dict[str, object]:
    """Fields of the configuration."""
    shape, workload = job.shape, job.instance.workload
    several = len(job.pieces) > 1
    return {
        "model.tensor_model_parallel_size": job.tp,
        "model.pipeline_model_parallel_size": shape.pp,
        "model.virtual_pipeline_model_parallel_size": shape.vpp if shape.vpp > 1 else None,
        "model.context_parallel_size": shape.cp,
        "model.expert_model_parallel_size": shape.ep,
        "model.expert_tensor_parallel_size": shape.etp or job.tp,
        "model.sequence_parallel": job.sequence_parallel,
        "model.pipeline_model_parallel_layout": written(job.pieces, job.num_mtp)
        if several
        else None,
        **dict.fromkeys(_EXCLUDED, False),
        "model.num_layers_in_first_pipeline_stage": None,
        "model.num_layers_in_last_pipeline_stage": None,
        "model.mtp_num_layers": job.num_mtp or None,
        **_flagged(job),
        "model.seq_length": workload.sequence_length,
        "train.global_batch_size": workload.global_batch,
        "train.micro_batch_size": shape.micro_batch,
        "ddp.use_distributed_optimizer": shape.zero > 0,
        "ddp.overlap_grad_reduce": _overlap(job)["overlap_grad_reduce"],
        "ddp.overlap_param_gather": False,
        "ddp.grad_reduce_in_fp32": workload.gradient_bytes == 4,
        "optimizer.use_distributed_optimizer": shape.zero > 0,
        "dist.use_tp_pp_dp_mapping": False,
    }


def _flagged(job: Job) -> dict[str, object]:
    """Fields for the flags that Megatron-LM takes."""
    flags = {words[0]: words[1] for words in [*recomputation(job), *shared(job)]}
    number = flags.get("--recompute-num-layers")
    modules = flags.get("--recompute-modules")
    dispatcher = flags.get("--moe-token-dispatcher-type")
    return {
        "model.cp_comm_type": flags.get("--cp-comm-type"),
        **({"model.moe_token_dispatcher_type": dispatcher} if dispatcher else {}),
        "model.recompute_granularity": flags.get("--recompute-granularity"),
        "model.recompute_method": flags.get("--recompute-method"),
        "model.recompute_num_layers": None if number is None else int(number),
        "model.recompute_modules": None if modules is None else [modules],
    }


def check(job: Job, texts: Mapping[str, str]) -> None:
    """Raises PlannerError unless the files, read back, say what the plan does."""
    check_launcher(job, texts)
    check_ranks(job, texts[RANKS])
    found = read_settings(texts[RECIPE])
    tp, pp = found["model.tensor_model_parallel_size"], found["model.pipeline_model_parallel_size"]
    expect("tensor and pipeline degrees", (tp, pp), (job.tp, job.shape.pp))
    expect("layers", found["LAYERS"], job.num_blocks)
    layout = found["model.pipeline_model_parallel_layout"]
    check_layout(job, str(layout) if layout else written(job.pieces, job.num_mtp))
    sizes = found["train.global_batch_size"], found["train.micro_batch_size"]
    planned = job.micro_batches * job.shape.dp * job.shape.micro_batch, job.shape.micro_batch
    expect("global and micro batch", sizes, planned)
