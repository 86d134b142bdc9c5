"""What Megatron-LM's arguments make of an instance's model: degrees, split, strategies.

Missing flags have Megatron-LM's defaults (core 0.20, `arguments.py`). What the instance states of
model, batch and precision must be what the flags say.

Where no layout says the split, it is `get_num_layers_to_build` of Megatron-Core 0.20
(`core/transformer/transformer_block.py`): evenly; or a number for the first and the last rank and
the rest evenly; or evenly with the embedding and the loss counted as a block each. Chunks of a
rank are equal, before these are taken off.
"""

from collections.abc import Callable
from typing import Literal

from formulations.instance import Instance
from formulations.instance.search import ContextMethod, ZeroStage
from formulations.instance.targets.launcher import STACK, chain_of
from formulations.instance.workload import Precision, Recompute, Workload
from solver.evaluate.launched import Launched, num_blocks
from solver.evaluate.megatron_flags import Flags
from solver.export.megatron import parsed

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
    places["vpp"] = next((flag for flag in (CHUNKS, BLOCKS_PER_CHUNK) if flags.has(flag)), LAYOUT)
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
        expected = value(instance)
        if flags.number(flag, expected) != expected:
            raise flags.error(flag, f"{expected}, {field} of the instance")
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
            expected = (
                f"{workload.gradient_bytes} bytes, workload.gradient_precision of the instance"
            )
            raise flags.error(flag, expected)
    if flags.text("--optimizer") not in (None, "adam"):
        raise flags.error("--optimizer", "adam, whose states the memory is for")
    optimizer_state = workload.optimizer_state
    for flag in ("--exp-avg-dtype", "--exp-avg-sq-dtype"):
        stated = flags.text(flag)
        if optimizer_state is not None and stated is not None and stated != optimizer_state:
            raise flags.error(flag, f"{optimizer_state}, workload.optimizer_state of the instance")


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
    decided: dict[str, object] = {}
    overlap = instance.search.overlap
    if tp > 1:
        decided["sequence_parallel"] = flags.has(SEQUENCE)
        if not flags.has("--tp-comm-overlap") and flags.has(SEQUENCE):
            overlap = overlap.model_copy(update={"tensor_parallel": 0.0})
    if not flags.has("--overlap-grad-reduce"):
        overlap = overlap.model_copy(update={"gradient_sync": 0.0})
    if flags.number(CP, 1) > 1:
        decided["context_method"] = _context_method(flags)
    return {**decided, "overlap": overlap}


def _context_method(flags: Flags) -> ContextMethod:
    """How GPUs share sequences: in all blocks the same way, a ring unless it is said."""
    kinds = set(flags.found[METHODS].values if flags.has(METHODS) else ("p2p",))
    if len(kinds) != 1 or not kinds <= _METHODS.keys():
        raise flags.error(METHODS, f"{' or '.join(_METHODS)}, for all blocks the same")
    return _METHODS[kinds.pop()]


LAYOUT = "--pipeline-model-parallel-layout"
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
EMBEDDING = "--account-for-embedding-in-pipeline-split"
LOSS = "--account-for-loss-in-pipeline-split"
BLOCKS_PER_CHUNK = "--num-layers-per-virtual-pipeline-stage"
CHUNKS = "--num-virtual-stages-per-pipeline-rank"
PP = "--pipeline-model-parallel-size"


def boundaries(flags: Flags, instance: Instance, pp: int) -> tuple[int, ...]:
    """Layer boundaries of all virtual stages. Raises PlanError where Megatron-LM would refuse."""
    flags.exclude(LAYOUT, FIRST, LAST, EMBEDDING, LOSS, BLOCKS_PER_CHUNK, CHUNKS)
    flags.exclude(FIRST, EMBEDDING, LOSS)
    flags.exclude(LAST, EMBEDDING, LOSS)
    flags.exclude(BLOCKS_PER_CHUNK, CHUNKS)
    text = flags.text(LAYOUT)
    pieces = _even(flags, instance, pp) if text is None else _layout(flags, text, instance, pp)
    cuts = [0]
    for piece in pieces:
        cuts.append(cuts[-1] + piece)
    return tuple(cuts)


def _layout(flags: Flags, text: str, instance: Instance, pp: int) -> list[int]:
    """Layers of every piece; Megatron-LM takes empty ones, and leaves such ranks without work."""
    num_mtp = instance.workload.mtp_layers
    try:
        stages = parsed(text, pp, num_blocks(instance), num_mtp).stages
    except ValueError as error:
        allowed = f"E, then {num_blocks(instance)} t, then L, in n * {pp} pieces apart by |"
        raise flags.error(LAYOUT, allowed, f": {error}") from None
    pieces = [len(stages[i % pp][i // pp]) for i in range(pp * len(stages[0]))]
    if num_mtp and stages[-1][-1].count("mtp") < num_mtp:
        raise flags.error(LAYOUT, "layers m in the piece of the loss: plans have them in the head")
    pieces[-1] -= num_mtp
    if 0 in pieces:
        raise flags.error(LAYOUT, "a layer in every piece", f": piece {pieces.index(0)} is empty")
    return pieces


def _even(flags: Flags, instance: Instance, pp: int) -> list[int]:
    """Layers of every chunk: its blocks, the embedding with the first, the head with the last."""
    by_rank = _blocks_by_rank(flags, num_blocks(instance), pp)
    vpp = _chunks(flags, by_rank[0], pp)
    for count in by_rank:
        if count % vpp:
            flag = CHUNKS if flags.has(CHUNKS) else BLOCKS_PER_CHUNK
            raise flags.error(flag, "chunks of equally many blocks", f": a rank has {count}")
    pieces = [by_rank[s % pp] // vpp for s in range(pp * vpp)]
    pieces[0] += 1 - flags.has(EMBEDDING)
    pieces[-1] += 1 - flags.has(LOSS)
    if min(pieces) < 1:
        raise flags.error(PP, "a layer for every stage", f": stage {pieces.index(0)} has none")
    return pieces


def _blocks_by_rank(flags: Flags, blocks: int, pp: int) -> list[int]:
    """As many as each rank counts: embedding and loss among them where they are counted."""
    first, last = flags.optional(FIRST), flags.optional(LAST)
    counted = flags.has(EMBEDDING) + flags.has(LOSS)
    total = blocks + counted - (first or 0) - (last or 0)
    ranks = pp - (first is not None) - (last is not None)
    if total < 0 or ranks < 0 or (total % ranks if ranks else total):
        rest = f": {total} layers for {ranks} pipeline ranks"
        flag = next((flag for flag in (FIRST, LAST, EMBEDDING, LOSS) if flags.has(flag)), PP)
        raise flags.error(flag, f"an equal share of them for each, or {LAYOUT}", rest)
    middle = [total // ranks] * ranks if ranks else []
    head, tail = ([count] if count is not None else [] for count in (first, last))
    return [*head, *middle, *tail]


def _chunks(flags: Flags, blocks: int, pp: int) -> int:
    """Virtual stages per rank; blocks: of the first one."""
    each, vpp = flags.optional(BLOCKS_PER_CHUNK), flags.number(CHUNKS, 1)
    if each is not None:
        vpp, rest = divmod(blocks, each)
        if rest or not vpp:
            raise flags.error(BLOCKS_PER_CHUNK, f"a divisor of {blocks}, the blocks of a rank")
    if vpp > 1 and pp == 1:
        flag = CHUNKS if flags.has(CHUNKS) else BLOCKS_PER_CHUNK
        raise flags.error(flag, "none, or several pipeline ranks", f" with {PP} 1")
    return vpp
