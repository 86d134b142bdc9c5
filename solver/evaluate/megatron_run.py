"""Megatron-LM's argument files, and what they make of an instance's model.

Flags are read one by one with their lines: those that decide a plan, and those of
`megatron_flags.yaml`, that no plan describes, and all others. They stand as on a command line:
several a line, `--flag=value`, a backslash at the end of a line, remarks behind `#`. Source:
`megatron/training/arguments.py` at 000c4ac2, and core 0.20.

Missing flags have Megatron-LM's defaults (core 0.20, `arguments.py`). What the instance states of
model, batch and precision must be what the flags say.

Where no layout says the split, it is `get_num_layers_to_build` of Megatron-Core 0.20
(`core/transformer/transformer_block.py`): evenly; or a number for the first and the last rank and
the rest evenly; or evenly with the embedding and the loss counted as a block each. Chunks of a
rank are equal, before these are taken off.
"""

import re
import shlex
from collections.abc import Iterator
from difflib import get_close_matches
from enum import StrEnum
from itertools import accumulate
from typing import Any, cast

from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.instance.search import ZeroStage
from formulations.instance.targets import ONE_STACK, chain_of
from formulations.instance.workload import NARROW, Precision, Recompute
from solver.evaluate.launched import Launched, Settings, Stated
from solver.export.megatron import CONTEXT_METHODS, parsed
from solver.files import table_beside


class Flag(StrEnum):
    """Flags that are read."""

    TP = "--tensor-model-parallel-size"
    PP = "--pipeline-model-parallel-size"
    CP = "--context-parallel-size"
    EP = "--expert-model-parallel-size"
    EXPERT_TP = "--expert-tensor-parallel-size"
    DISPATCHER = "--moe-token-dispatcher-type"
    METHODS = "--cp-comm-type"
    MTP = "--mtp-num-layers"
    FSDP = "--use-megatron-fsdp"
    SHARDING = "--data-parallel-sharding-strategy"
    LAYOUT = "--pipeline-model-parallel-layout"
    BLOCKS_PER_CHUNK = "--num-layers-per-virtual-pipeline-stage"
    CHUNKS = "--num-virtual-stages-per-pipeline-rank"
    GROUP = "--microbatch-group-size-per-virtual-pipeline-stage"
    FIRST = "--decoder-first-pipeline-num-layers"
    LAST = "--decoder-last-pipeline-num-layers"
    EMBEDDING = "--account-for-embedding-in-pipeline-split"
    LOSS = "--account-for-loss-in-pipeline-split"
    BY_REPLICA = "--use-tp-pp-dp-mapping"
    SIZE = "--micro-batch-size"
    BATCH = "--global-batch-size"
    BLOCKS = "--num-layers"
    LENGTH = "--seq-length"
    HIDDEN = "--hidden-size"
    KV_HEADS = "--num-query-groups"
    GRANULARITY = "--recompute-granularity"
    METHOD = "--recompute-method"
    NUMBER = "--recompute-num-layers"
    SELECTIVE = "--recompute-activations"
    MODULES = "--recompute-modules"
    ZERO = "--use-distributed-optimizer"
    INSTANCES = "--num-distributed-optimizer-instances"
    SEQUENCE = "--sequence-parallel"
    TP_OVERLAP = "--tp-comm-overlap"
    SYNC_OVERLAP = "--overlap-grad-reduce"
    BF16 = "--bf16"
    FP16 = "--fp16"
    FP8 = "--fp8-format"
    FP4 = "--fp4-format"
    GRADIENTS_FP32 = "--accumulate-allreduce-grads-in-fp32"
    GRADIENTS_BF16 = "--grad-reduce-in-bf16"
    ATTENTION = "--attention-backend"
    OPTIMIZER = "--optimizer"
    MOMENT = "--exp-avg-dtype"
    SECOND_MOMENT = "--exp-avg-sq-dtype"


_TABLE = table_beside("solver.evaluate", "megatron_flags.yaml")
_OTHERS = re.compile(rf"--(no-)?({'|'.join(_TABLE['others'].split())})(-[a-z0-9-]+)?")


#: From how alike on, of 1, an unknown flag is taken for one that is read, misspelt.
_NEAR = 0.93


def read_flags(text: str, name: str) -> Settings:
    """The flags of an argument file. Raises PlanError for one that is unknown, or said twice."""
    stated: dict[str, Stated] = {}
    for flag, (values, line) in _flags(text, name):
        where = f"{name}:{line}"
        if flag in stated and stated[flag].values != values:
            problem = f"{' '.join((flag, *values))}, otherwise in line {stated[flag].line}"
            raise PlanError(where, problem, "one of the two")
        if flag in list(Flag):
            number = _TABLE["values"].get(flag.removeprefix("--"), 1)
            if number not in ("any", len(values)):
                allowed = f"{number} value" if number else "no value"
                raise PlanError(where, f"{flag} with {len(values)} values", allowed)
            stated[flag] = Stated(values, line)
            continue
        for pattern, instead in _TABLE["not_planned"].items():
            if re.fullmatch(f"--({pattern})", flag):
                raise PlanError(where, f"{flag}, which no plan describes", instead)
        near = get_close_matches(flag, Flag, n=1, cutoff=_NEAR)
        if near or not _OTHERS.fullmatch(flag):
            allowed = "flags of Megatron-LM; leave out one that changes neither time nor memory"
            raise PlanError(where, f"the unknown flag {flag}", near[0] if near else allowed)
    return Settings(name, stated)


def _flags(text: str, name: str) -> Iterator[tuple[str, Stated]]:
    flag, values, since = "", list[str](), 0
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line.rstrip().removesuffix("\\"), comments=True)
        except ValueError as error:
            raise PlanError(f"{name}:{number}", str(error).lower(), "quotes in pairs") from None
        for word in words:
            if word.startswith("--"):
                if flag:
                    yield flag, Stated(tuple(values), since)
                flag, given, value = word.partition("=")
                values, since = [value] if given else [], number
            elif flag:
                values.append(word)
            else:
                allowed = "flags, which begin with --"
                raise PlanError(f"{name}:{number}", f"the word {word}", allowed)
    if flag:
        yield flag, Stated(tuple(values), since)


_METHODS = {name: method for method, name in CONTEXT_METHODS.items()}
#: What Megatron-FSDP splits, by the ZeRO stage that it is.
_SHARDED = ("no_shard", "optim", "optim_grads", "optim_grads_params")
#: Flags of one format, and those of the instance with which they may stand.
_PRECISIONS: dict[Flag, tuple[Precision, ...]] = {
    Flag.BF16: ("bf16", *NARROW),
    Flag.FP16: ("fp16", "fp8"),
    Flag.FP8: ("fp8",),
    Flag.FP4: ("fp4",),
}
_NUMBERS = {
    "tp": Flag.TP,
    "pp": Flag.PP,
    "cp": Flag.CP,
    "ep": Flag.EP,
    "micro_batch": Flag.SIZE,
    "optimizer_instances": Flag.INSTANCES,
}


def launched(flags: Settings, instance: Instance) -> Launched:
    """The run that the flags start. Raises PlanError for one that Megatron-LM would refuse."""
    _check(flags, instance)
    numbers: dict[str, Any] = {name: flags.number(flag, 1) for name, flag in _NUMBERS.items()}
    pp, tp = numbers["pp"], numbers["tp"]

    # the split: by a layout, which excludes all that says it otherwise, or by numbers
    counted, ends = (Flag.EMBEDDING, Flag.LOSS), (Flag.FIRST, Flag.LAST)
    flags.exclude(Flag.LAYOUT, *ends, *counted, Flag.BLOCKS_PER_CHUNK, Flag.CHUNKS)
    for flag in ends:
        flags.exclude(flag, *counted)
    flags.exclude(Flag.BLOCKS_PER_CHUNK, Flag.CHUNKS)
    text = flags.text(Flag.LAYOUT)
    pieces = _even(flags, instance, pp) if text is None else _layout(flags, text, instance, pp)
    vpp, group = len(pieces) // pp, flags.optional(Flag.GROUP)

    way, blocks = _recomputed(flags, vpp)
    alone = flags.number(Flag.EXPERT_TP, tp) < tp  # has each GPU of a tensor group whole experts?
    flash = flags.text(Flag.ATTENTION) == "flash"
    chunked = (flag for flag in (Flag.CHUNKS, Flag.BLOCKS_PER_CHUNK) if flags.has(flag))
    places = {
        **_NUMBERS,
        "etp": Flag.EXPERT_TP,
        "by_replica": Flag.BY_REPLICA,
        "recompute": Flag.GRANULARITY,
        "zero": Flag.SHARDING if flags.has(Flag.SHARDING) else Flag.ZERO,
        "vpp": next(chunked, Flag.LAYOUT),
        "microbatch_group": Flag.GROUP,
    }
    return Launched(
        source=flags.source,
        target="megatron",
        boundaries=(0, *accumulate(pieces)),
        vpp=vpp,
        schedule="interleaved" if vpp > 1 else "1f1b",
        microbatch_group=group if vpp > 1 and group != pp else None,
        etp=1 if instance.workload.experts and alone else None,
        zero=_sharded(flags),
        by_replica=flags.has(Flag.BY_REPLICA),
        flash=(f"{Flag.ATTENTION} flash", flags.place(Flag.ATTENTION)) if flash else None,
        recompute=way,
        first_blocks=blocks,
        settings=_settings(flags, instance, tp),
        places={name: flags.place(flag) for name, flag in places.items()},
        **numbers,
    )


def _check(flags: Settings, instance: Instance) -> None:
    """Raises PlanError for what contradicts the instance, or what no plan describes."""
    workload = instance.workload
    if (chain := chain_of(workload)) != ONE_STACK:
        raise flags.error(Flag.PP, "a model of one stack of blocks", f" for {chain}")
    for flag, planned, what in (
        (Flag.BLOCKS, workload.num_blocks, "the blocks of the model"),
        (Flag.LENGTH, workload.sequence_length, "workload.sequence_length"),
        (Flag.MTP, workload.mtp_layers, "what the config.json has"),
        (Flag.HIDDEN, workload.hidden_size, "the hidden size of the model"),
        (Flag.KV_HEADS, workload.kv_heads, "the key and value heads"),
        (Flag.BATCH, workload.global_batch, "workload.global_batch"),
    ):
        if flags.number(flag, planned) != planned:
            raise flags.error(flag, f"{planned}, {what} of the instance")
    # experts are placed, and reached, as in plans
    tp, ep = flags.number(Flag.TP, 1), flags.number(Flag.EP, 1)
    if flags.number(Flag.EXPERT_TP, tp) not in (1, tp):
        allowed = f"1, or {tp} as {Flag.TP}: plans split experts as all else, or not"
        raise flags.error(Flag.EXPERT_TP, allowed)
    if ep > 1 and flags.text(Flag.DISPATCHER) not in ("alltoall", "flex"):
        allowed = "alltoall or flex: plans send tokens to their experts alone"
        raise flags.error(Flag.DISPATCHER, allowed, f", with {Flag.EP} {ep}")

    # precisions are those that the instance's times and memory are for
    flags.exclude(Flag.BF16, Flag.FP16)
    for name, precisions in _PRECISIONS.items():
        if flags.has(name) and workload.precision not in precisions:
            raise flags.error(name, f"{workload.precision}, workload.precision of the instance")
    for flag, size in ((Flag.GRADIENTS_FP32, 4), (Flag.GRADIENTS_BF16, 2)):
        if flags.has(flag) and workload.gradient_bytes != size:
            expected = f"{workload.gradient_bytes} bytes, workload.gradient_precision"
            raise flags.error(flag, f"{expected} of the instance")
    if flags.text(Flag.OPTIMIZER) not in (None, "adam"):
        raise flags.error(Flag.OPTIMIZER, "adam, whose states the memory is for")
    state = workload.optimizer_state
    for flag in (Flag.MOMENT, Flag.SECOND_MOMENT):
        if state is not None and flags.text(flag) not in (None, state):
            raise flags.error(flag, f"{state}, workload.optimizer_state of the instance")


def _sharded(flags: Settings) -> ZeroStage:
    """What replicas split: states by the distributed optimizer, or more by Megatron-FSDP."""
    if not flags.has(Flag.FSDP):
        if flags.has(Flag.SHARDING):
            raise flags.error(Flag.SHARDING, f"{Flag.FSDP} with it", " alone")
        return 1 if flags.has(Flag.ZERO) else 0
    strategy = flags.text(Flag.SHARDING) or "no_shard"
    if strategy not in _SHARDED:
        raise flags.error(Flag.SHARDING, " or ".join(_SHARDED))
    return cast(ZeroStage, _SHARDED.index(strategy))


def _recomputed(flags: Settings, vpp: int) -> tuple[Recompute, int | None]:
    """What every rank recomputes, and how many blocks of it; None: all."""
    flags.exclude(Flag.GRANULARITY, Flag.SELECTIVE)
    granularity, method = flags.text(Flag.GRANULARITY), flags.text(Flag.METHOD)
    if flags.has(Flag.SELECTIVE) or granularity == "selective":
        flags.exclude(Flag.GRANULARITY, Flag.METHOD)
        if flags.has(Flag.MODULES) and flags.stated[Flag.MODULES].values != ("core_attn",):
            allowed = "core_attn: plans recompute attention's core, or blocks"
            raise flags.error(Flag.MODULES, allowed)
        return "selective", None
    if granularity is None:
        if method is not None:
            raise flags.error(Flag.METHOD, f"{Flag.GRANULARITY} full with it", " alone")
        return "none", None
    if granularity != "full":
        raise flags.error(Flag.GRANULARITY, "full or selective")
    if method not in ("uniform", "block"):
        with_full = f" with {Flag.GRANULARITY} full" if method is None else ""
        raise flags.error(Flag.METHOD, "uniform or block", with_full)
    number = flags.number(Flag.NUMBER, 1)
    if method == "uniform":
        if number > 1:
            allowed = "1 with the method uniform: plans keep every block's input"
            raise flags.error(Flag.NUMBER, allowed)
        return "full", None
    if vpp > 1:
        raise flags.error(Flag.METHOD, "uniform where ranks have several chunks")
    return "full", number


def _settings(flags: Settings, instance: Instance, tp: int) -> dict[str, object]:
    """Fields of `search` that the flags decide for the whole run; shares of overlap as stated."""
    decided: dict[str, object] = {}
    overlap, split = instance.search.overlap, flags.has(Flag.SEQUENCE)
    if tp > 1:
        decided["sequence_parallel"] = split
        if split and not flags.has(Flag.TP_OVERLAP):
            overlap = overlap.model_copy(update={"tensor_parallel": 0.0})
    if not flags.has(Flag.SYNC_OVERLAP):
        overlap = overlap.model_copy(update={"gradient_sync": 0.0})
    if flags.number(Flag.CP, 1) > 1:  # in all blocks the same way, a ring unless it is said
        methods = {*(flags.stated[Flag.METHODS].values if flags.has(Flag.METHODS) else ("p2p",))}
        if len(methods) != 1 or not methods <= _METHODS.keys():
            raise flags.error(Flag.METHODS, f"{' or '.join(_METHODS)}, for all blocks the same")
        decided["context_method"] = _METHODS[methods.pop()]
    return {**decided, "overlap": overlap}


def _layout(flags: Settings, text: str, instance: Instance, pp: int) -> list[int]:
    """Layers of every piece; Megatron-LM takes empty ones, and leaves such ranks without work."""
    num_mtp = instance.workload.mtp_layers
    try:
        layout = parsed(text, pp, instance.workload.num_blocks, num_mtp)
    except ValueError as error:
        allowed = f"E, then {instance.workload.num_blocks} t, then L, in n * {pp} pieces apart by |"
        raise flags.error(Flag.LAYOUT, allowed, f": {error}") from None
    pieces = list(map(len, layout))
    if layout[-1].count("m") < num_mtp:
        allowed = "layers m in the piece of the loss: plans have them in the head"
        raise flags.error(Flag.LAYOUT, allowed)
    pieces[-1] -= num_mtp
    if 0 in pieces:
        empty = f": piece {pieces.index(0)} is empty"
        raise flags.error(Flag.LAYOUT, "a layer in every piece", empty)
    return pieces


def _even(flags: Settings, instance: Instance, pp: int) -> list[int]:
    """Layers of every chunk: its blocks, the embedding with the first, the head with the last."""
    # as many as each rank counts: embedding and loss among them where they are counted
    first, last = flags.optional(Flag.FIRST), flags.optional(Flag.LAST)
    total = instance.workload.num_blocks + flags.has(Flag.EMBEDDING) + flags.has(Flag.LOSS)
    total -= (first or 0) + (last or 0)
    head, tail = ([count] if count is not None else [] for count in (first, last))
    ranks = pp - len(head) - len(tail)
    if total < 0 or ranks < 0 or (total % ranks if ranks else total):
        unequal = (Flag.FIRST, Flag.LAST, Flag.EMBEDDING, Flag.LOSS)
        flag = next((flag for flag in unequal if flags.has(flag)), Flag.PP)
        allowed = f"an equal share of them for each, or {Flag.LAYOUT}"
        raise flags.error(flag, allowed, f": {total} layers for {ranks} pipeline ranks")
    by_rank = [*head, *([total // ranks] * ranks if ranks else []), *tail]

    # chunks of a rank are equal, before embedding and loss are taken off
    chunked = Flag.CHUNKS if flags.has(Flag.CHUNKS) else Flag.BLOCKS_PER_CHUNK
    each, vpp = flags.optional(Flag.BLOCKS_PER_CHUNK), flags.number(Flag.CHUNKS, 1)
    if each is not None:
        vpp, rest = divmod(by_rank[0], each)
        if rest or not vpp:
            allowed = f"a divisor of {by_rank[0]}, the blocks of a rank"
            raise flags.error(Flag.BLOCKS_PER_CHUNK, allowed)
    if vpp > 1 and pp == 1:
        raise flags.error(chunked, "none, or several pipeline ranks", f" with {Flag.PP} 1")
    for count in by_rank:
        if count % vpp:
            raise flags.error(chunked, "chunks of equally many blocks", f": a rank has {count}")
    pieces = [by_rank[s % pp] // vpp for s in range(pp * vpp)]
    pieces[0] += 1 - flags.has(Flag.EMBEDDING)
    pieces[-1] += 1 - flags.has(Flag.LOSS)
    if min(pieces) < 1:
        empty = f": stage {pieces.index(0)} has none"
        raise flags.error(Flag.PP, "a layer for every stage", empty)
    return pieces
