"""Megatron-LM (core 0.20): an argument file with the layout, torchrun per host, Slurm, ranks.

The arguments are those that the plan decides; the model's own (hidden size, heads, tokenizer,
data) come from the user, after them. Layouts exclude `--decoder-first-pipeline-num-layers`,
`--account-for-*-in-pipeline-split` and the flags of virtual pipelines, which they imply.

Layouts are written for a plan, and judged as Megatron-LM does. Their grammar: pieces apart by `|`;
E embedding, t block, m multi-token prediction, L loss; `x*n` and `(...)*n` repeat, commas are
ignored. Piece i goes to pp rank i mod pp as its chunk i div pp.

Rank groups, which ranks communicate in which dimension, follow from an order that names the
dimensions from the fastest to the slowest, as `tp-cp-ep-dp-pp`. Experts have a grid of their own
over the same ranks: their tensor parallelism, ep, and the data parallelism that is left; other
layers have one with ep = 1.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

from formulations.costs.context import context_methods
from formulations.space.launch import first_blocks
from solver.export.job import Job, Piece
from solver.export.launcher import RANKS, check_launcher, expect, launcher_files

#: Letters of the grammar, with Megatron-LM's names.
LAYERS = {"E": "embedding", "t": "decoder", "m": "mtp", "L": "loss"}
_REPEATED = (re.compile(r"\(([^)]+)\)\*(\d+)"), re.compile(r"(.)\*(\d+)"))
_MOST = 1 << 20  # letters of a layout that is written out


class Layout(NamedTuple):
    """A layout that Megatron-LM takes.

    stages: by pp rank, by chunk, the layers by name.
    """

    stages: list[list[list[str]]]
    mtp_standalone: bool  #: is the prediction of further tokens on another rank than the loss?

    @property
    def vpp(self) -> int:
        """Chunks per rank."""
        return len(self.stages[0])


def written(pieces: Sequence[Piece], num_mtp: int = 0) -> str:
    """The layout of pieces, such as `Et*9|t*7|t*5|t*3L`; the head predicts further tokens."""
    ends = ["m" * num_mtp + "L" if piece.head else "" for piece in pieces]
    return "|".join(
        "E" * piece.embedding + _blocks(len(piece.blocks)) + end
        for piece, end in zip(pieces, ends, strict=True)
    )


def _blocks(number: int) -> str:
    return "t" * number if number <= 1 else f"t*{number}"


def parsed(text: str, pp: int, num_layers: int, num_mtp: int | None = None) -> Layout:
    """The layout that Megatron-LM reads. Raises ValueError, in words, where it would refuse."""
    pieces = _written_out(text).split("|")
    unknown = set("".join(pieces)) - set(LAYERS)
    if unknown:
        raise ValueError(f"the letter {min(unknown)!r}, where {', '.join(LAYERS)} are known")
    if len(pieces) % pp:
        raise ValueError(f"{len(pieces)} pieces, which {pp} pipeline ranks do not divide")
    chain = "".join(pieces)
    _check_chain(chain, num_layers, num_mtp or 0)
    _check_prediction(pieces, pp, num_mtp or 0)
    stages = [[[LAYERS[one] for one in piece] for piece in pieces[k::pp]] for k in range(pp)]
    return Layout(stages, any("mtp" in chunks[-1] for chunks in stages[:-1]))


def _written_out(text: str) -> str:
    """The layout without repetitions and commas."""
    plain = text.replace(",", "")
    for pattern in _REPEATED:
        if sum(len(one[1]) * int(one[2]) for one in pattern.finditer(plain)) > _MOST:
            raise ValueError(f"a layout of more than {_MOST} letters")
        plain = pattern.sub(lambda found: found[1] * int(found[2]), plain)
    return plain


def _check_chain(chain: str, num_layers: int, num_mtp: int) -> None:
    """Embedding first, loss last, blocks and predictions as many as the model has, in order."""
    if chain[:1] != "E" or chain[-1:] != "L" or chain.count("E") > 1 or chain.count("L") > 1:
        raise ValueError("one E, the first letter, and one L, the last one, are needed")
    if chain.count("t") != num_layers:
        raise ValueError(f"{chain.count('t')} blocks t, where the model has {num_layers}")
    if chain.count("m") != num_mtp:
        raise ValueError(f"{chain.count('m')} layers m, where the model has {num_mtp}")
    if "m" in chain and "t" in chain[chain.index("m") :]:
        raise ValueError("a block t after a layer m")


def _check_prediction(pieces: Sequence[str], pp: int, num_mtp: int) -> None:
    """All layers m in one piece, the last chunk of its rank."""
    held = [i for i, piece in enumerate(pieces) if "m" in piece]
    if len(held) > 1:
        raise ValueError(f"layers m in {len(held)} pieces, where one has all {num_mtp}")
    if held and held[0] < len(pieces) - pp:
        raise ValueError("layers m in a piece that is not the last chunk of its rank")


DEFAULT_ORDER = "tp-cp-ep-dp-pp"  #: stages are contiguous


def rank_groups(
    sizes: Mapping[str, int], dimensions: str, order: str = DEFAULT_ORDER
) -> list[list[int]]:
    """Groups along some dimensions, such as `tp`, `dp-cp`; dimensions without a size have 1.

    Ranks inside a group, and groups, are in the order of the dimensions.
    """
    names = order.split("-")
    strides, stride = {}, 1
    for name in names:
        strides[name] = stride
        stride *= sizes.get(name, 1)
    chosen = set(dimensions.split("-"))
    inside = _offsets([name for name in names if name in chosen], sizes, strides)
    outside = _offsets([name for name in names if name not in chosen], sizes, strides)
    return [[base + offset for offset in inside] for base in outside]


def _offsets(names: list[str], sizes: Mapping[str, int], strides: Mapping[str, int]) -> list[int]:
    """Sums of strides over all coordinates, the first dimension fastest."""
    axes = [range(sizes.get(name, 1)) for name in reversed(names)]
    slow_first = [strides[name] for name in reversed(names)]
    return [
        sum(at * stride for at, stride in zip(place, slow_first, strict=True))
        for place in product(*axes)
    ]


Arguments = list[tuple[str, ...]]

_PRECISION: dict[str, Arguments] = {
    "bf16": [("--bf16",)],
    "fp16": [("--fp16",)],
    "fp8": [("--bf16",), ("--fp8-format", "hybrid")],
}


def argument_file(head: Sequence[str], arguments: Arguments) -> str:
    """The text of a file: remarks, then arguments."""
    lines = [f"# {line}" for line in head] + [" ".join(words) for words in arguments]
    return "".join(f"{line}\n" for line in lines)


def read_arguments(text: str) -> dict[str, list[str]]:
    """Flags of an argument file with their values; remarks are left out."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {words[0]: words[1:] for words in lines}


def batch_arguments(job: Job, micro_batch: int) -> Arguments:
    """What the plan was made for, and its batch sizes; micro_batch: sequences of the first rank."""
    workload = job.instance.workload
    mtp: Arguments = [("--mtp-num-layers", str(job.num_mtp))] if job.num_mtp else []
    return [
        ("--num-layers", str(job.num_blocks)),
        *mtp,
        ("--seq-length", str(workload.sequence_length)),
        ("--micro-batch-size", str(micro_batch)),
        ("--global-batch-size", str(workload.global_batch)),
    ]


def precision_arguments(job: Job) -> Arguments:
    """Precision of products and gradients, and attention without stored scores."""
    workload = job.instance.workload
    found = list(_PRECISION.get(workload.precision, []))
    if workload.gradient_bytes == 4:
        found.append(("--accumulate-allreduce-grads-in-fp32",))
    elif workload.precision != "fp16":
        found.append(("--grad-reduce-in-bf16",))
    if workload.flash_attention:
        found.append(("--attention-backend", "flash"))
    return found


ARGUMENTS = "megatron_args.txt"
LAYOUT = "--pipeline-model-parallel-layout"
_ONE_QUEUE = """\
export CUDA_DEVICE_MAX_CONNECTIONS="${CUDA_DEVICE_MAX_CONNECTIONS:-1}"
"""
#: Reads an argument file into an array without expanding `*` and `|`.
_READ = """\
plan=()
while read -r -a words; do plan+=("${{words[@]}}"); done < <(grep -v '^#' "$here/{name}")"""
USAGE = "pretrain_gpt.py [ARGUMENTS OF THE MODEL]"
COMMAND = '"$1" "${plan[@]}" "${@:2}"'


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    head = (
        f"Megatron-LM arguments of {job.title}.",
        "Add those of the model. The order of the hosts (hosts.txt) places the stages.",
    )
    batches = batch_arguments(job, job.shape.micro_batch)
    arguments = [*degrees(job), *batches, *strategies(job), *precision_arguments(job)]
    launch = launcher_files(job, USAGE, COMMAND, setup(job, ARGUMENTS))
    return {ARGUMENTS: argument_file(head, arguments), **launch}


def setup(job: Job, arguments: str) -> str:
    """For the shell of a host: the plan's arguments, and what Megatron asks for at start.

    With tensor or context parallelism on GPUs before Blackwell kernels must be queued in one order
    (`validate_args`).
    """
    ordered = max(job.shape.widest_tp, job.shape.cp) > 1
    return _ONE_QUEUE * ordered + _READ.format(name=arguments)


def degrees(job: Job) -> Arguments:
    """Degrees, and the layout where there are several pieces."""
    shape = job.shape
    found: Arguments = [
        ("--tensor-model-parallel-size", str(job.tp)),
        ("--pipeline-model-parallel-size", str(shape.pp)),
        ("--context-parallel-size", str(shape.cp)),
        *shared(job),
    ]
    return [*found, (LAYOUT, written(job.pieces, job.num_mtp))] if len(job.pieces) > 1 else found


def shared(job: Job) -> Arguments:
    """How GPUs share sequences and experts, where they do."""
    shape = job.shape
    found: Arguments = []
    names = {"ring": "p2p", "all_to_all": "a2a"}
    methods = [names[one] for one in context_methods(job.instance, shape)]
    if methods:
        found.append(("--cp-comm-type", *(methods if len(set(methods)) > 1 else methods[:1])))
    if shape.has_expert_grid:
        found += [
            ("--expert-model-parallel-size", str(shape.ep)),
            ("--expert-tensor-parallel-size", str(shape.etp or job.tp)),
            ("--moe-token-dispatcher-type", "alltoall"),
        ]
    return found


def strategies(job: Job) -> Arguments:
    """Memory strategies, and what the plan assumes to be hidden."""
    overlap, found = job.instance.search.overlap, recomputation(job)
    if job.shape.zero:
        found.append(("--use-distributed-optimizer",))
    if job.instance.workload.optimizer_state == "bf16":
        found.append(("--use-precision-aware-optimizer",))
        found += [("--exp-avg-dtype", "bf16"), ("--exp-avg-sq-dtype", "bf16")]
    if job.sequence_parallel:
        found.append(("--sequence-parallel",))
    if hides_tensor_traffic(job):
        found.append(("--tp-comm-overlap",))
    if overlap.gradient_sync:
        found.append(("--overlap-grad-reduce",))
    return found


def hides_tensor_traffic(job: Job) -> bool:
    """Whether traffic of tensor groups is taken to hide, which asks for sequence parallelism."""
    return job.sequence_parallel and bool(job.instance.search.overlap.tensor_parallel)


def recomputation(job: Job) -> Arguments:
    """How all ranks recompute: whole blocks, the first ones of a rank, or the attention core."""
    number = first_blocks(job.instance, job.plan)
    if job.recompute_way == "selective":
        return [("--recompute-granularity", "selective"), ("--recompute-modules", "core_attn")]
    if job.recompute_way != "full" or not number:
        return []
    whole = all(
        one.blocks == len(p.blocks) for one, p in zip(job.recomputed, job.pieces, strict=True)
    )
    method, size = ("uniform", 1) if whole else ("block", number)
    return [
        ("--recompute-granularity", "full"),
        ("--recompute-method", method),
        ("--recompute-num-layers", str(size)),
    ]


def check(job: Job, texts: Mapping[str, str]) -> None:
    """Raises PlannerError unless the files, read back, say what the plan does."""
    check_launcher(job, texts)
    found = read_arguments(texts[ARGUMENTS])
    check_batches(job, found)
    check_layout(job, found.get(LAYOUT, [written(job.pieces, job.num_mtp)])[0])
    check_ranks(job, texts[RANKS])


def check_batches(job: Job, found: Mapping[str, list[str]]) -> None:
    """Layers, degrees and batches of an argument file: the micro-batches of a replica result."""
    number = {flag: int(words[0]) for flag, words in found.items() if words and words[0].isdigit()}
    tp, pp = number["--tensor-model-parallel-size"], number["--pipeline-model-parallel-size"]
    dp = job.world // (tp * pp * number["--context-parallel-size"])
    expect("degrees", (tp, dp, pp), (job.tp, job.shape.dp, job.shape.pp))
    expect("layers", number["--num-layers"], job.num_blocks)
    share, rest = divmod(number["--global-batch-size"], number["--micro-batch-size"] * dp)
    expect("micro-batches per replica", (share, rest), (job.micro_batches, 0))


def check_layout(job: Job, text: str) -> None:
    """A layout, parsed as Megatron-LM does, against the pieces."""
    stages = parsed(text, job.shape.pp, job.num_blocks, job.num_mtp).stages
    for i, piece in enumerate(job.pieces):
        names = ["embedding"] * piece.embedding + ["decoder"] * len(piece.blocks)
        own = names + (["mtp"] * job.num_mtp + ["loss"]) * piece.head
        expect(f"piece {i} of the layout", stages[i % job.shape.pp][i // job.shape.pp], own)


def check_ranks(job: Job, text: str) -> None:
    """The rank table against Megatron-LM's groups: who shares tensors, gradients, activations."""
    rows = [tuple(map(int, line.split(",")[4:])) for line in text.splitlines()[1:]]
    sizes = {"tp": job.tp, "cp": job.shape.cp, "dp": job.shape.dp, "pp": job.shape.pp}
    for place, name in enumerate(("tp", "cp-dp", "pp")):
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank, row in enumerate(rows):
            groups.setdefault(row[:place] + row[place + 1 :], []).append(rank)
        expect(f"{name} groups", sorted(groups.values()), sorted(rank_groups(sizes, name)))
