"""Launch targets: who is to run a plan, and which decisions that leaves open.

A rule names one field of `search`, the values that a target can run, and why no others; a field
without a rule is free. Whoever adds a decision to `search` adds its rules here: what a user states
is checked by them, what he does not state is narrowed by them, and `wider` says what other targets
would allow. Rules that depend on the degrees of a plan stand below as functions.

Sources. Megatron-LM: core 0.20 (August 2026), `arguments.py` and `pipeline_parallel/schedules.py`:
any layers per stage, all else alike on all ranks. FlagScale: `arguments_fs.py` and Megatron-LM-FL's
`parallel_context.py`: tp and dp per process mesh, so every mesh runs equally many micro-batches;
`--recompute-*-per-stage-micro-batch` under granularity full; no virtual pipeline, cp 1. torchtitan
0.3: any fixed schedule through `pipeline_parallel_schedule_csv`, FSDP2, one activation checkpoint
mode for all parts, whose selective mode keeps other tensors than Megatron-LM's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
        "degrees": Rule(("uniform", "per_group"), "whose process meshes are whole nodes"),
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


def most_stages(target: Target, tied_embeddings: bool) -> int | None:
    """Pipeline stages that a target can run at most; None: any number.

    torchtitan shares a tied matrix only inside one stage (`models/common/decoder.py`).
    """
    return 1 if target == "torchtitan" and tied_embeddings else None


def zero_stages(target: Target, pp: int) -> tuple[int, ...]:
    """ZeRO stages that a target can run in pipelines of so many stages and several replicas.

    torchtitan's FSDP2 reduces gradients with every micro-batch where there is one stage; with
    several it keeps parameters and gradients whole until the last micro-batch: ZeRO 1.
    """
    if target == "torchtitan":
        return (2, 3) if pp == 1 else (0, 1)
    return (0, 1, 2, 3) if target == "any" else (0, 1)
