"""Launch targets: who is to run a plan, and which decisions that leaves open.

A rule names one field of `search`, the values that a target can run, and why no others; a field
without a rule is free. Whoever adds a decision to `search` adds its rules here: what a user states
is checked by them, what he does not state is narrowed by them, and `wider` says what other targets
would allow. Rules that depend on the degrees of a plan stand below as functions.

Sources. Megatron-LM: core 0.20 (August 2026), `arguments.py` and `pipeline_parallel/schedules.py`:
any layers per stage, all else alike on all ranks. FlagScale: `arguments_fs.py` and Megatron-LM-FL's
`parallel_context.py`: tp and dp per process mesh, a run of ranks (its own tests have three on one
machine), so every mesh runs equally many micro-batches;
`--recompute-*-per-stage-micro-batch` under granularity full; no virtual pipeline, cp 1. torchtitan
0.3: any fixed schedule through `pipeline_parallel_schedule_csv`, FSDP2, one activation checkpoint
mode for all parts, whose selective mode keeps other tensors than Megatron-LM's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from formulations.instance.workload import ExpertSplit, OptimizerState, Workload

Target = Literal["megatron", "flagscale", "torchtitan", "any"]
TARGET_NAMES: dict[Target, str] = {
    "megatron": "Megatron-LM",
    "flagscale": "FlagScale",
    "torchtitan": "torchtitan",
    "any": "any target",
}


@dataclass(frozen=True)
class Rule:
    """Values of a field that a target can run, as they are written, and why no others."""

    allowed: tuple[object, ...]
    reason: str

    def kept(self, value: object) -> object:
        """What of a choice, or of several, a target can run; the first that it can where none."""
        if isinstance(value, list | tuple):
            possible = [choice for choice in value if choice in self.allowed]
            return type(value)(possible or self.allowed[:1])
        return value if value in self.allowed else self.allowed[0]


_EVEN = Rule(("even",), "which runs equally many micro-batches in all replicas")
_ALIKE = Rule(("plan",), "which recomputes alike on all ranks")
_UNIFORM = Rule(("uniform",), "which has the same degrees on all ranks")
_STATES = Rule((0, 1), "whose distributed optimizer splits optimizer states alone")

RULES: Mapping[Target, Mapping[str, Rule]] = {
    "megatron": {
        "degrees": _UNIFORM,
        "schedule": Rule(("1f1b", "interleaved"), "which has no such schedule"),
        "micro_batches": _EVEN,
        "recompute_per": _ALIKE,
        "zero": _STATES,
    },
    "flagscale": {
        "schedule": Rule(("1f1b",), "whose process meshes run 1F1B without chunks"),
        "micro_batches": _EVEN,
        "recompute": Rule(("none", "full"), "whose stages differ in full recomputation alone"),
        "zero": _STATES,
        "embedding_only_stages": Rule((False,), "which starts no stage without a block"),
        "context_parallel": Rule((1,), "whose process meshes have no context parallelism"),
    },
    "torchtitan": {
        "degrees": _UNIFORM,
        "micro_batches": _EVEN,
        "recompute": Rule(("none", "full"), "whose selective mode keeps other tensors"),
        "context_method": Rule(("ring",), "which passes keys and values on, and no heads"),
        "recompute_per": _ALIKE,
    },
    "any": {},
}


def allows(target: Target, field: str, value: object) -> bool:
    """Whether a target can run a value of a field."""
    rule = RULES[target].get(field)
    return rule is None or value in rule.allowed


def launchers(field: str, value: object) -> list[Target]:
    """The targets that can run a value of a field; `any` is the last."""
    return [target for target in RULES if allows(target, field, value)]


_CORE_MOMENTS = Rule(("fp32", "bf16"), "which keeps no moments in 8 bit")
STACK = Rule(("one stack of blocks",), "whose layouts know embedding, blocks, head")

#: Rules about what is trained, which no search can change: fields of `workload`, its `layers`, and
#: the `num_nextn_predict_layers` of a config.json.
WORKLOAD_RULES: Mapping[Target, Mapping[str, Rule]] = {
    "megatron": {"optimizer_state": _CORE_MOMENTS, "layers": STACK},
    "flagscale": {
        "optimizer_state": _CORE_MOMENTS,
        "layers": STACK,
        "num_nextn_predict_layers": Rule((0,), "whose layer split counts blocks alone"),
    },
    "torchtitan": {
        "optimizer_state": Rule(("fp32",), "whose AdamW keeps moments in 32 bit"),
        "layers": STACK,
        "precision": Rule(("bf16", "fp32"), "whose FSDP2 trains in these"),
        "gradient_precision": Rule(("fp32",), "which reduces gradients in 32 bit"),
    },
    "any": {},
}


def trained(workload: Workload) -> dict[str, object]:
    """What the rules about a workload look at, by field."""
    gradients = "fp32" if workload.gradient_bytes == 4 else "16 bit"
    return {
        "optimizer_state": workload.optimizer_state,
        "layers": chain_of(workload),
        "num_nextn_predict_layers": workload.mtp_layers,
        "precision": workload.precision,
        "gradient_precision": gradients,
    }


def chain_of(workload: Workload) -> str:
    """The chain of layers in words."""
    layers = [run.layer for run in workload.layer_runs]
    if {"encoder", "decoder"} <= {layer.kind for layer in layers}:
        return "an encoder and a decoder"
    ends, inner = (layers[0], layers[-1]), layers[1:-1]
    if any(layer.is_block for layer in ends) or not all(layer.is_block for layer in inner):
        return "a chain that is not embedding, blocks, head"
    return "one stack of blocks"


def untrained(target: Target, workload: Workload) -> Iterator[tuple[str, object, Rule]]:
    """What of a workload a target cannot train: the field, its value, the rule.

    An optimizer state of no known format is nobody's business.
    """
    found = trained(workload)
    for field, rule in WORKLOAD_RULES[target].items():
        if found[field] is not None and found[field] not in rule.allowed:
            yield field, found[field], rule


def trainers(field: str, value: object) -> list[Target]:
    """The targets that can train a workload with a value of a field; `any` is the last."""
    ruled = ((target, rules.get(field)) for target, rules in WORKLOAD_RULES.items())
    return [target for target, rule in ruled if rule is None or value in rule.allowed]


def most_stages(target: Target, workload: Workload) -> int | None:
    """Pipeline stages that a target can run at most; None: any number.

    torchtitan shares a tied matrix only inside one stage (`models/common/decoder.py`), and
    predicts further tokens in one.
    """
    needs_one_stage = workload.tied_embeddings or workload.mtp_layers
    return 1 if target == "torchtitan" and needs_one_stage else None


def zero_stages(target: Target, pp: int) -> tuple[int, ...]:
    """ZeRO stages that a target can run in pipelines of so many stages, of what has copies.

    torchtitan's FSDP2 reduces gradients with every micro-batch where there is one stage; with
    several it keeps parameters and gradients whole until the last micro-batch: ZeRO 1.
    """
    if target == "torchtitan":
        return (2, 3) if pp == 1 else (0, 1)
    return (0, 1, 2, 3) if target == "any" else (0, 1)


def least_zero(target: Target, state: OptimizerState | None) -> int:
    """ZeRO stage that optimizer states of a format ask for, even of one replica.

    Megatron-Core's precision-aware optimizer, which keeps moments in bf16, is distributed.
    """
    return int(state == "bf16" and target in ("megatron", "flagscale"))


class Sharing(NamedTuple):
    """How GPUs share what there is of a model with experts, or of long sequences.

    sharded: ZeRO splits states of what several GPUs have, if there is any.
    """

    tp: int
    cp: int
    ep: int
    sharded: bool
    sequence_parallel: bool
    etp: ExpertSplit = "tp"


def shares(target: Target, workload: Workload, sharing: Sharing) -> tuple[str, str] | None:
    """The field by which a target cannot share experts and sequences so, and why; None if it can.

    torchtitan takes ranks of FSDP and of tensor groups for experts that it shares, which it keeps
    whole, and splits others over tensor groups; it counts the GPUs of a sequence among FSDP's ranks
    (0.3, `distributed/parallel_dims.py`, `models/common/moe_sharding.py`). Megatron-LM shares no
    experts in fp16 (`validate_args`), trains none in tensor groups without sequence parallelism
    (core 0.16, `transformer/moe/moe_layer.py`), and splits none with biases
    (`transformer_config.py`).
    """
    if target in ("megatron", "flagscale"):
        if sharing.ep > 1 and workload.precision == "fp16":
            return "expert_parallel", "which shares no experts in fp16"
        if workload.experts and sharing.tp > 1 and not sharing.sequence_parallel:
            return "sequence_parallel", "which trains no experts in tensor groups without"
        if workload.expert_biases and sharing.tp > 1 and sharing.etp == "tp":
            return "expert_tensor_parallel", "which splits no experts with biases"
    if target != "torchtitan":
        return None
    if sharing.tp > 1 and sharing.ep > 1 and sharing.etp == "tp":
        return "expert_tensor_parallel", "which keeps experts whole where several GPUs share them"
    if sharing.tp > 1 and sharing.ep == 1 and sharing.etp == 1:
        return "expert_tensor_parallel", "which keeps no experts whole that each GPU has all of"
    if sharing.ep > 1 and not sharing.sharded:
        return "expert_parallel", "which takes FSDP's ranks for experts"
    if sharing.cp > 1 and not sharing.sharded:
        return "context_parallel", "whose FSDP splits states among the GPUs of a sequence too"
    return None
