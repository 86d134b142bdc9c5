"""Launch targets: what each framework can run, said once.

Whoever adds a decision to `search` adds its rules here: what a user states is checked by them,
what he does not state is narrowed by them, and plans are held against them. DeepSpeed and
Accelerate are no targets of a search: they take what they can of the others' plans.
"""

from collections.abc import Iterator
from typing import Literal

from formulations.instance.launcher import ONE_STACK, Demands, Launcher, Refusal, Rule
from formulations.instance.workload import Workload

STACK = Rule((ONE_STACK,), "whose layouts know embedding, blocks, head")
#: Of those who launch all ranks alike.
ALIKE = {
    "degrees": Rule(("uniform",), "which has the same degrees on all ranks"),
    "micro_batches": Rule(("even",), "which runs equally many micro-batches in all replicas"),
    "recompute_per": Rule(("plan",), "which recomputes alike on all ranks"),
}
MOMENTS_IN_32_BIT = Rule(("fp32",), "whose Adam keeps moments in 32 bit")

# Megatron-LM, core 0.20 (August 2026): any layers per stage, all else alike on all ranks.
# Sources: `arguments.py`, `pipeline_parallel/schedules.py`; of experts `validate_args`, which
# shares none in fp16, `transformer/moe/moe_layer.py` (core 0.16), which trains none in tensor
# groups without sequence parallelism, and `transformer_config.py`, which splits none with biases.
# The precision-aware optimizer, which keeps moments in bf16, is distributed.

_STATES = Rule((0, 1), "whose distributed optimizer splits optimizer states alone")
_MEGATRON_WORKLOAD = {
    "optimizer_state": Rule(("fp32", "bf16"), "which keeps no moments in 8 bit"),
    "layers": STACK,
}


def shared_experts(workload: Workload, demands: Demands) -> Iterator[Refusal]:
    """Experts that Megatron-LM's GPUs cannot share, or split, so."""
    if demands.ep > 1 and workload.precision == "fp16":
        yield Refusal("expert_parallel", demands.ep, "which shares no experts in fp16")
    elif workload.experts and demands.tp > 1 and not demands.splits_sequence:
        reason = "which trains no experts in tensor groups without"
        yield Refusal("sequence_parallel", False, reason)
    elif workload.expert_biases and demands.tp > 1 and demands.etp == "tp":
        yield Refusal("expert_tensor_parallel", "tp", "which splits no experts with biases")


_MEGATRON = Launcher(
    name="Megatron-LM",
    search={
        **ALIKE,
        "schedule": Rule(("1f1b", "interleaved"), "which has no such schedule"),
        "zero": _STATES,
    },
    workload=_MEGATRON_WORKLOAD,
    zero_stages=lambda pp: (0, 1),
    distributed=("bf16",),
    together=shared_experts,
)

# FlagScale: Megatron-LM-FL's process meshes, each with degrees and recomputation of its own.
# Sources: `arguments_fs.py`, and Megatron-LM-FL's `parallel_context.py`: tp and dp per process
# mesh, a run of ranks that may end inside a node (its own tests have three on one machine), so
# every mesh runs equally many micro-batches; `--recompute-*-per-stage-micro-batch` under
# granularity full; no virtual pipeline, cp 1. Where all stages recompute alike it does so as
# Megatron-LM.

_FLAGSCALE = Launcher(
    name="FlagScale",
    search={
        "schedule": Rule(("1f1b",), "whose process meshes run 1F1B without chunks"),
        "micro_batches": ALIKE["micro_batches"],
        "recompute": Rule(("none", "full"), "whose stages differ in full recomputation alone"),
        "zero": _STATES,
        "embedding_only_stages": Rule((False,), "which starts no stage without a block"),
        "context_parallel": Rule((1,), "whose process meshes have no context parallelism"),
    },
    workload={
        **_MEGATRON_WORKLOAD,
        "num_nextn_predict_layers": Rule((0,), "whose layer split counts blocks alone"),
    },
    zero_stages=lambda pp: (0, 1),
    distributed=("bf16",),
    together=shared_experts,
    free_if_alike=("recompute",),
)

# torchtitan 0.3: any fixed schedule through `pipeline_parallel_schedule_csv`, and FSDP2.
# FSDP2 reduces gradients with every micro-batch where there is one stage; with several it keeps
# parameters and gradients whole until the last micro-batch: ZeRO 1. One activation checkpoint mode
# holds for all parts; its selective mode keeps other tensors than Megatron-LM's. A tied matrix is
# shared only inside one stage (`models/common/decoder.py`), which predicts further tokens, too.
# Ranks of FSDP and of tensor groups share experts, which are then whole; experts that all have are
# split over tensor groups. The GPUs of a sequence are among FSDP's ranks
# (`distributed/parallel_dims.py`, `models/common/moe_sharding.py`).


def _fsdp_ranks(workload: Workload, demands: Demands) -> Iterator[Refusal]:
    """Experts and sequences that torchtitan's GPUs cannot share so."""
    tp, ep, cp, etp = demands.tp, demands.ep, demands.cp, demands.etp
    if tp > 1 and ep > 1 and etp == "tp":
        reason = "which keeps experts whole where several GPUs share them"
        yield Refusal("expert_tensor_parallel", etp, reason)
    elif tp > 1 and ep == 1 and etp == 1:
        reason = "which keeps no experts whole that each GPU has all of"
        yield Refusal("expert_tensor_parallel", etp, reason)
    elif ep > 1 and not demands.sharded:
        yield Refusal("expert_parallel", ep, "which takes FSDP's ranks for experts")
    elif cp > 1 and not demands.sharded:
        reason = "whose FSDP splits states among the GPUs of a sequence too"
        yield Refusal("context_parallel", cp, reason)


_TORCHTITAN = Launcher(
    name="torchtitan",
    search={
        **ALIKE,
        "recompute": Rule(("none", "full"), "whose selective mode keeps other tensors"),
        "context_method": Rule(("ring",), "which passes keys and values on, and no heads"),
    },
    workload={
        "optimizer_state": Rule(("fp32",), "whose AdamW keeps moments in 32 bit"),
        "layers": STACK,
        "precision": Rule(("bf16", "fp32"), "whose FSDP2 trains in these"),
        "gradient_precision": Rule(("fp32",), "which reduces gradients in 32 bit"),
    },
    zero_stages=lambda pp: (2, 3) if pp == 1 else (0, 1),
    shared_in_one_stage=True,
    together=_fsdp_ranks,
)

# DeepSpeed 0.19, which takes plans of other targets: pipelines of 1F1B with ZeRO 0 or 1.
# Pipelines split no layer; tensor parallelism (AutoTP) is for one stage, without sequence
# parallelism. Gradients of another format than the weights end a job at start without ZeRO
# (`engine.py`, "unsupported mix"); of one replica ZeRO 1 splits nothing, so it stands in for 0.


def mixed_gradients(workload: Workload) -> bool:
    """Whether gradients are summed in another format than that of the weights."""
    return workload.precision in ("bf16", "fp16") and workload.gradient_bytes == 4


def _whole_layers(workload: Workload, demands: Demands) -> Iterator[Refusal]:
    """What DeepSpeed's pipelines, AutoTP and ZeRO do not do together."""
    tp, zero = demands.tp, demands.zero
    if tp > 1 and demands.pp > 1:
        yield Refusal("tensor_parallel", tp, "whose pipelines split no layer", (1,))
    if tp > 1 and demands.splits_sequence:
        reason = "whose AutoTP leaves sequences whole"
        yield Refusal("sequence_parallel", True, reason, ("false",))
    if tp > 1 and zero > 2:
        yield Refusal("zero", zero, "whose AutoTP leaves parameters whole", (0, 1, 2))
    if mixed_gradients(workload) and not zero and demands.copied:
        yield Refusal("zero", zero, "which sums no gradients in fp32 without", (1,))


_DEEPSPEED = Launcher(
    name="DeepSpeed",
    search={
        **ALIKE,
        "context_parallel": Rule((1,), "whose pipelines take whole sequences"),
        "expert_parallel": Rule((1,), "whose experts are not written here"),
        "expert_tensor_parallel": Rule(("tp",), "whose experts are not written here"),
        "schedule": Rule(("1f1b",), "whose pipelines run 1F1B"),
        "recompute": Rule(("none", "full"), "which recomputes layers as a whole"),
    },
    workload={
        "optimizer_state": MOMENTS_IN_32_BIT,
        "layers": STACK,
        "precision": Rule(("bf16", "fp16", "fp32", "tf32"), "which has no fp8 of its own"),
    },
    together=_whole_layers,
)

# Accelerate 1.15, which takes plans of other targets: those of one stage.
# FSDP2 reduces gradients with every micro-batch only where `sync_each_batch` is set; then it is
# ZeRO 2, and 3 where parameters are dropped after the forward pass. Without sharding it is DDP,
# for which there is no `ParallelismConfig`.


def _one_stage(workload: Workload, demands: Demands) -> Iterator[Refusal]:
    """What Accelerate's FSDP2 and DDP do not do together."""
    tp, zero = demands.tp, demands.zero
    if demands.pp > 1:
        yield Refusal("pipeline_parallel", demands.pp, "which has no pipelines", (1,))
    if zero == 1 and demands.copied:
        yield Refusal("zero", zero, "whose FSDP2 splits gradients too", ([0, 2, 3],))
    if tp > 1 and demands.copied and not zero:
        yield Refusal("zero", zero, "whose tensor groups go with sharded parameters", ([2, 3],))
    if tp > 1 and demands.splits_sequence:
        reason = "whose tensor groups have whole sequences"
        yield Refusal("sequence_parallel", True, reason, ("false",))


_ACCELERATE = Launcher(
    name="Accelerate",
    search={
        **ALIKE,
        "context_parallel": Rule((1,), "whose context parallelism asks for sharded parameters"),
        "expert_parallel": Rule((1,), "which places no experts"),
        "expert_tensor_parallel": Rule(("tp",), "which places no experts"),
        "recompute": Rule(("none", "full"), "which recomputes blocks as a whole"),
    },
    workload={"layers": STACK, "optimizer_state": MOMENTS_IN_32_BIT},
    together=_one_stage,
)

#: Who is to run the plans of a search; `any` has no rules, so it is the widest.
Target = Literal["megatron", "flagscale", "torchtitan", "any"]
TARGETS: dict[Target, Launcher] = {
    "megatron": _MEGATRON,
    "flagscale": _FLAGSCALE,
    "torchtitan": _TORCHTITAN,
    "any": Launcher("any target"),
}
#: Who can be asked to run a plan.
LAUNCHERS: dict[str, Launcher] = {str(name): launcher for name, launcher in TARGETS.items()}
LAUNCHERS |= {"deepspeed": _DEEPSPEED, "accelerate": _ACCELERATE}


def launchers(field: str, value: object) -> list[Target]:
    """The targets that can run a value of a field, of `search` or a workload; `any` is the last."""
    return [name for name, target in TARGETS.items() if target.allows(field, value)]
