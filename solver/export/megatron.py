"""Megatron-LM (core 0.20): an argument file with the layout, torchrun per host, Slurm, ranks.

The arguments are those that the plan decides; the model's own (hidden size, heads, tokenizer,
data) come from the user, after them. Layouts exclude `--decoder-first-pipeline-num-layers`,
`--account-for-*-in-pipeline-split` and the flags of virtual pipelines, which they imply.
"""

from collections.abc import Iterator, Mapping

from formulations.costs.context import context_methods
from formulations.launch import first_blocks
from solver.export.arguments import (
    Arguments,
    argument_file,
    batch_arguments,
    precision_arguments,
    read_arguments,
)
from solver.export.faults import Fault, launch_faults
from solver.export.job import Job
from solver.export.launcher import RANKS, check_launcher, expect, launcher_files
from solver.export.megatron_layout import parsed, written
from solver.export.megatron_ranks import rank_groups

NAME = "Megatron-LM"
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


def faults(job: Job) -> Iterator[Fault]:
    """What Megatron-LM cannot express."""
    yield from launch_faults(job, "megatron")


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
