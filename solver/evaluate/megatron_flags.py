"""Argument files of Megatron-LM, flag by flag with its line.

Flags are those that decide a plan, and those of `megatron_flags.yaml`: that no plan describes, and
all others. They stand as on a command line: several a line, `--flag=value`, a backslash at the end
of a line, remarks behind `#`. Source: `megatron/training/arguments.py` at 000c4ac2, and core 0.20.
"""

import re
import shlex
from collections.abc import Iterator
from difflib import get_close_matches
from enum import StrEnum
from importlib import resources
from typing import Any

from formulations.errors import PlanError
from formulations.instance.documents import parse_document
from solver.evaluate.launched import Settings, Stated


class Flag(StrEnum):
    """Flags that are read."""

    num_values: int | None  #: None: any number

    def __new__(cls, flag: str, num_values: int | None = 1) -> "Flag":
        """A flag with so many values."""
        member = str.__new__(cls, flag)
        member._value_, member.num_values = flag, num_values
        return member

    TP = "--tensor-model-parallel-size"
    PP = "--pipeline-model-parallel-size"
    CP = "--context-parallel-size"
    EP = "--expert-model-parallel-size"
    EXPERT_TP = "--expert-tensor-parallel-size"
    DISPATCHER = "--moe-token-dispatcher-type"
    METHODS = "--cp-comm-type", None
    MTP = "--mtp-num-layers"
    FSDP = "--use-megatron-fsdp", 0
    SHARDING = "--data-parallel-sharding-strategy"
    LAYOUT = "--pipeline-model-parallel-layout"
    BLOCKS_PER_CHUNK = "--num-layers-per-virtual-pipeline-stage"
    CHUNKS = "--num-virtual-stages-per-pipeline-rank"
    GROUP = "--microbatch-group-size-per-virtual-pipeline-stage"
    FIRST = "--decoder-first-pipeline-num-layers"
    LAST = "--decoder-last-pipeline-num-layers"
    EMBEDDING = "--account-for-embedding-in-pipeline-split", 0
    LOSS = "--account-for-loss-in-pipeline-split", 0
    BY_REPLICA = "--use-tp-pp-dp-mapping", 0
    SIZE = "--micro-batch-size"
    BATCH = "--global-batch-size"
    BLOCKS = "--num-layers"
    LENGTH = "--seq-length"
    HIDDEN = "--hidden-size"
    KV_HEADS = "--num-query-groups"
    GRANULARITY = "--recompute-granularity"
    METHOD = "--recompute-method"
    NUMBER = "--recompute-num-layers"
    SELECTIVE = "--recompute-activations", 0
    MODULES = "--recompute-modules", None
    ZERO = "--use-distributed-optimizer", 0
    INSTANCES = "--num-distributed-optimizer-instances"
    SEQUENCE = "--sequence-parallel", 0
    TP_OVERLAP = "--tp-comm-overlap", 0
    SYNC_OVERLAP = "--overlap-grad-reduce", 0
    BF16 = "--bf16", 0
    FP16 = "--fp16", 0
    FP8 = "--fp8-format"
    FP4 = "--fp4-format"
    GRADIENTS_FP32 = "--accumulate-allreduce-grads-in-fp32", 0
    GRADIENTS_BF16 = "--grad-reduce-in-bf16", 0
    ATTENTION = "--attention-backend"
    OPTIMIZER = "--optimizer"
    MOMENT = "--exp-avg-dtype"
    SECOND_MOMENT = "--exp-avg-sq-dtype"


_TABLE: Any = parse_document(
    resources.files("solver.evaluate").joinpath("megatron_flags.yaml").read_text(encoding="utf-8"),
    "megatron_flags.yaml",
).value
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
            number = Flag(flag).num_values
            if number not in (None, len(values)):
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
