"""What launch targets run of degrees, experts, sequences and ZeRO, written again from the docs.

Tensors are counted GPU by GPU. Nothing is the planner's but the fields of a configuration.
"""

from collections import Counter
from collections.abc import Iterator

from formulations.instance import Instance
from formulations.instance.search import ZeroStage
from formulations.instance.targets import Target
from formulations.plan import Configuration, Degrees


def _tensors(config: Configuration, degrees: Degrees) -> Iterator[tuple[str, int, int]]:
    """What every GPU of a stage has: its share of all else, then its experts and share of these."""
    lanes = degrees.tp if config.etp is None else config.etp
    for gpu in range(config.dp * degrees.tp * degrees.parts * degrees.cp):
        yield "dense", gpu % degrees.tp, 0
        yield "experts", gpu % lanes, gpu // lanes % config.ep


def held_twice(config: Configuration) -> bool:
    return any(max(Counter(_tensors(config, used)).values()) > 1 for used in config.degrees_used)


def runs_zero(instance: Instance, config: Configuration, target: Target, zero: int) -> bool:
    if target == "torchtitan":
        shared = config.ep > 1 or config.degrees[0].cp > 1
        return zero in ((2, 3) if config.pp == 1 else (1,) if shared else (0, 1))
    return target == "any" or zero <= 1


def runs_states(instance: Instance, target: Target, zero: int) -> bool:
    """Megatron-Core keeps moments in 16 bit with its distributed optimizer alone."""
    workload = instance.workload
    copy = 0 if workload.precision in ("fp32", "tf32") else 4
    halves = workload.optimizer_bytes - copy == 4 and not workload.optimizer_block_bytes
    return not (halves and target in ("megatron", "flagscale")) or zero > 0


def _splits(instance: Instance, config: Configuration) -> bool:
    tokens = instance.search.split_tokens
    even = all(tokens % degrees.tp == 0 for degrees in config.degrees_used)
    return instance.search.sequence_parallel and even


def runs_experts(instance: Instance, config: Configuration, target: Target) -> bool:
    """Whether GPUs may share experts so; Megatron-LM's tensor groups split the sequence, too."""
    workload, wide = instance.workload, any(used.tp > 1 for used in config.degrees_used)
    if target in ("megatron", "flagscale"):
        torn = workload.experts > 0 and wide and not _splits(instance, config)
        torn |= workload.expert_biases and wide and config.etp is None
        return not torn and (config.ep == 1 or workload.precision != "fp16")
    return target != "torchtitan" or not wide or (config.ep > 1) == (config.etp is not None)


def zero_stages(instance: Instance, config: Configuration, target: Target) -> list[ZeroStage]:
    """ZeRO stages of a config of equal degrees on all its node groups, in the space of a target.

    Of those that are the same, as nothing is held twice, the least.
    """
    one_stage = instance.workload.tied_embeddings or instance.workload.mtp_layers > 0
    if target == "torchtitan" and config.pp > 1 and one_stage:
        return []  # it keeps the matrix, and all heads, in one stage
    often = config.pp == 1 and instance.search.micro_batches == "even"
    stages = [
        zero
        for zero in sorted(instance.search.zero)
        if (zero < 2 or often)
        and runs_states(instance, target, zero)
        and runs_experts(instance, config, target)
        and (not held_twice(config) or runs_zero(instance, config, target, zero))
    ]
    return stages if held_twice(config) else stages[:1]
