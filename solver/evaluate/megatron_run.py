"""What Megatron-LM's arguments make of an instance's model: degrees, split, strategies.

Missing flags have Megatron-LM's defaults (core 0.20, `arguments.py`). What the instance states of
model, batch and precision must be what the flags say.
"""

from collections.abc import Callable
from typing import Literal

from formulations.instance import Instance
from formulations.instance.search import ContextMethod, ZeroStage
from formulations.instance.target import STACK, chain_of
from formulations.instance.workload import Precision, Recompute, Workload
from solver.evaluate.flags import Flags
from solver.evaluate.launched import Launched, num_blocks
from solver.evaluate.splits import BLOCKS_PER_CHUNK, CHUNKS, LAYOUT, PP, boundaries

TP, CP, EP = (
    "--tensor-model-parallel-size",
    "--context-parallel-size",
    "--expert-model-parallel-size",
)
EXPERT_TP, DISPATCHER = "--expert-tensor-parallel-size", "--moe-token-dispatcher-type"
METHODS, BY_REPLICA = "--cp-comm-type", "--use-tp-pp-dp-mapping"
FSDP, SHARDING = "--use-megatron-fsdp", "--data-parallel-sharding-strategy"
SIZE, BATCH = "--micro-batch-size", "--global-batch-size"
GRANULARITY, METHOD = "--recompute-granularity", "--recompute-method"
MODULES = "--recompute-modules"
NUMBER, SELECTIVE = "--recompute-num-layers", "--recompute-activations"
_METHODS: dict[str, ContextMethod] = {"p2p": "ring", "a2a": "all_to_all"}
#: What Megatron-FSDP splits, and the ZeRO stage that it is.
_SHARDED: dict[str, ZeroStage] = {
    "no_shard": 0,
    "optim": 1,
    "optim_grads": 2,
    "optim_grads_params": 3,
}
ZERO, SEQUENCE = "--use-distributed-optimizer", "--sequence-parallel"
ATTENTION = "--attention-backend"

#: Flags that say what the instance says too: the field, and its value.
_STATED: dict[str, tuple[str, Callable[[Instance], int]]] = {
    "--num-layers": ("the blocks of the model", num_blocks),
    "--seq-length": ("workload.sequence_length", lambda one: one.workload.sequence_length),
    "--mtp-num-layers": ("what the config.json has", lambda one: one.workload.mtp_layers),
    "--hidden-size": ("the hidden size of the model", lambda one: one.workload.hidden_size),
    "--num-query-groups": ("the key and value heads", lambda one: one.workload.kv_heads),
    BATCH: ("workload.global_batch", lambda one: one.workload.global_batch),
}
#: Flags of one format, and those of the instance with which they may stand.
_PRECISIONS: dict[str, tuple[Precision, ...]] = {
    "--bf16": ("bf16", "fp8"),
    "--fp16": ("fp16", "fp8"),
    "--fp8-format": ("fp8",),
}
_GRADIENT_BYTES = {"--accumulate-allreduce-grads-in-fp32": 4, "--grad-reduce-in-bf16": 2}


def launched(flags: Flags, instance: Instance) -> Launched:
    """The run that the flags start. Raises PlanError for one that Megatron-LM would refuse."""
    _check(flags, instance)
    pp, tp = flags.number(PP, 1), flags.number(TP, 1)
    cuts = boundaries(flags, instance, pp)
    vpp = (len(cuts) - 1) // pp
    way, blocks = _recomputed(flags, vpp)
    places = {"tp": TP, "pp": PP, "cp": CP, "ep": EP, "etp": EXPERT_TP, "by_replica": BY_REPLICA}
    places |= {"micro_batch": SIZE, "recompute": GRANULARITY}
    places["zero"] = SHARDING if flags.has(SHARDING) else ZERO
    places["vpp"] = next((one for one in (CHUNKS, BLOCKS_PER_CHUNK) if flags.has(one)), LAYOUT)
    return Launched(
        source=flags.name,
        target="megatron",
        tp=tp,
        pp=pp,
        boundaries=cuts,
        micro_batch=flags.number(SIZE, 1),
        vpp=vpp,
        schedule="interleaved" if vpp > 1 else "1f1b",
        cp=flags.number(CP, 1),
        ep=flags.number(EP, 1),
        etp=_expert_split(flags, instance.workload),
        zero=_sharded(flags),
        by_replica=flags.has(BY_REPLICA),
        flash=_flash(flags),
        recompute=way,
        first_blocks=blocks,
        settings=_settings(flags, instance, tp),
        places={name: flags.place(flag) for name, flag in places.items()},
    )


def _check(flags: Flags, instance: Instance) -> None:
    """Raises PlanError for what contradicts the instance, or what no plan describes."""
    if (chain := chain_of(instance.workload)) not in STACK.allowed:
        raise flags.error(PP, "a model of one stack of blocks", f" for {chain}")
    for flag, (field, value) in _STATED.items():
        known = value(instance)
        if flags.number(flag, known) != known:
            raise flags.error(flag, f"{known}, {field} of the instance")
    _check_formats(flags, instance.workload)
    _check_experts(flags)


def _flash(flags: Flags) -> tuple[str, str] | None:
    """The flag that asks for flash attention, and where it is."""
    if flags.text(ATTENTION) != "flash":
        return None
    return f"{ATTENTION} flash", flags.place(ATTENTION)


def _check_experts(flags: Flags) -> None:
    """Raises PlanError for experts that are placed, or reached, otherwise than in plans."""
    tp, ep = flags.number(TP, 1), flags.number(EP, 1)
    if flags.number(EXPERT_TP, tp) not in (1, tp):
        raise flags.error(EXPERT_TP, f"1, or {tp} as {TP}: plans split experts as all else, or not")
    if ep > 1 and flags.text(DISPATCHER) not in ("alltoall", "flex"):
        allowed = "alltoall or flex: plans send tokens to their experts alone"
        raise flags.error(DISPATCHER, allowed, f", with {EP} {ep}")


def _expert_split(flags: Flags, workload: Workload) -> Literal[1] | None:
    """1 where the GPUs of tensor groups have experts whole."""
    tp = flags.number(TP, 1)
    return 1 if workload.experts and flags.number(EXPERT_TP, tp) < tp else None


def _sharded(flags: Flags) -> ZeroStage:
    """What replicas split: states by the distributed optimizer, or more by Megatron-FSDP."""
    if not flags.has(FSDP):
        if flags.has(SHARDING):
            raise flags.error(SHARDING, f"{FSDP} with it", " alone")
        return 1 if flags.has(ZERO) else 0
    strategy = flags.text(SHARDING) or "no_shard"
    if strategy not in _SHARDED:
        raise flags.error(SHARDING, " or ".join(_SHARDED))
    return _SHARDED[strategy]


def _check_formats(flags: Flags, workload: Workload) -> None:
    """Raises PlannerError for precisions that the instance's times and memory are not for."""
    flags.exclude("--bf16", "--fp16")
    for flag, precisions in _PRECISIONS.items():
        if flags.has(flag) and workload.precision not in precisions:
            raise flags.error(flag, f"{workload.precision}, workload.precision of the instance")
    for flag, size in _GRADIENT_BYTES.items():
        if flags.has(flag) and workload.gradient_bytes != size:
            found = f"{workload.gradient_bytes} bytes, workload.gradient_precision of the instance"
            raise flags.error(flag, found)
    if flags.text("--optimizer") not in (None, "adam"):
        raise flags.error("--optimizer", "adam, whose states the memory is for")
    own = workload.optimizer_state
    for flag in ("--exp-avg-dtype", "--exp-avg-sq-dtype"):
        stated = flags.text(flag)
        if own is not None and stated is not None and stated != own:
            raise flags.error(flag, f"{own}, workload.optimizer_state of the instance")


def _recomputed(flags: Flags, vpp: int) -> tuple[Recompute, int | None]:
    """What every rank recomputes, and how many blocks of it; None: all."""
    flags.exclude(GRANULARITY, SELECTIVE)
    granularity, method = flags.text(GRANULARITY), flags.text(METHOD)
    if flags.has(SELECTIVE) or granularity == "selective":
        flags.exclude(GRANULARITY, METHOD)
        if flags.has(MODULES) and flags.found[MODULES].values != ("core_attn",):
            raise flags.error(MODULES, "core_attn: plans recompute attention's core, or blocks")
        return "selective", None
    if granularity is None:
        if method is not None:
            raise flags.error(METHOD, f"{GRANULARITY} full with it", " alone")
        return "none", None
    if granularity != "full":
        raise flags.error(GRANULARITY, "full or selective")
    if method is None:
        raise flags.error(METHOD, "uniform or block", f" with {GRANULARITY} full")
    if method not in ("uniform", "block"):
        raise flags.error(METHOD, "uniform or block")
    number = flags.number(NUMBER, 1)
    if method == "uniform":
        if number > 1:
            raise flags.error(NUMBER, "1 with the method uniform: plans keep every block's input")
        return "full", None
    if vpp > 1:
        raise flags.error(METHOD, "uniform where ranks have several chunks")
    return "full", number


def _settings(flags: Flags, instance: Instance, tp: int) -> dict[str, object]:
    """Fields of `search` that the flags decide for the whole run; shares of overlap as stated."""
    found: dict[str, object] = {}
    overlap = instance.search.overlap
    if tp > 1:
        found["sequence_parallel"] = flags.has(SEQUENCE)
        if not flags.has("--tp-comm-overlap") and flags.has(SEQUENCE):
            overlap = overlap.model_copy(update={"tensor_parallel": 0.0})
    if not flags.has("--overlap-grad-reduce"):
        overlap = overlap.model_copy(update={"gradient_sync": 0.0})
    if flags.number(CP, 1) > 1:
        found["context_method"] = _context_method(flags)
    return {**found, "overlap": overlap}


def _context_method(flags: Flags) -> ContextMethod:
    """How GPUs share sequences: in all blocks the same way, a ring unless it is said."""
    kinds = set(flags.found[METHODS].values if flags.has(METHODS) else ("p2p",))
    if len(kinds) != 1 or not kinds <= _METHODS.keys():
        raise flags.error(METHODS, f"{' or '.join(_METHODS)}, for all blocks the same")
    return _METHODS[kinds.pop()]
