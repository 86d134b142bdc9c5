"""Megatron-LM (core 0.20): an argument file with the layout, torchrun per host, Slurm, ranks.

The arguments are those that the plan decides; the model's own (hidden size, heads, tokenizer,
data) come from the user, after them. They are options by name: a flag is the name with dashes, and
Megatron-Bridge's configuration has fields of the same names. Layouts exclude
`--decoder-first-pipeline-num-layers`, `--account-for-*-in-pipeline-split` and the flags of virtual
pipelines, which they imply.

Layouts are written for a plan, and judged as Megatron-LM does. Their grammar: pieces apart by `|`;
E embedding, t block, m multi-token prediction, L loss; `x*n` and `(...)*n` repeat, commas are
ignored. Piece i goes to pp rank i mod pp as its chunk i div pp.
"""

import re
from collections.abc import Mapping, Sequence

from formulations.costs.context import context_methods
from formulations.instance.search import ContextMethod
from formulations.space.launch import first_blocks
from solver.export.job import Job, Piece
from solver.export.launcher import expect, launcher_files

#: Letters of the grammar, with Megatron-LM's names.
LAYERS = {"E": "embedding", "t": "decoder", "m": "mtp", "L": "loss"}
_REPEATED = (re.compile(r"\(([^)]+)\)\*(\d+)"), re.compile(r"(.)\*(\d+)"))
_MOST = 1 << 20  # letters of a layout that is written out


def written(pieces: Sequence[Piece], num_mtp: int = 0) -> str:
    """The layout of pieces, such as `Et*9|t*7|t*5|t*3L`; the head predicts further tokens."""
    return "|".join(
        "E" * piece.embedding
        + (f"t*{blocks}" if (blocks := len(piece.blocks)) > 1 else "t" * blocks)
        + ("m" * num_mtp + "L") * piece.head
        for piece in pieces
    )


def parsed(text: str, pp: int, num_layers: int, num_mtp: int = 0) -> list[list[list[str]]]:
    """By pp rank, by chunk, the layers by name, as Megatron-LM reads a layout.

    Raises ValueError, in words, where it would refuse.
    """
    chain = text.replace(",", "")
    for pattern in _REPEATED:
        if sum(len(run[1]) * int(run[2]) for run in pattern.finditer(chain)) > _MOST:
            raise ValueError(f"a layout of more than {_MOST} letters")
        chain = pattern.sub(lambda run: run[1] * int(run[2]), chain)
    pieces, chain = chain.split("|"), chain.replace("|", "")
    if unknown := set(chain) - set(LAYERS):
        raise ValueError(f"the letter {min(unknown)!r}, where {', '.join(LAYERS)} are known")
    if len(pieces) % pp:
        raise ValueError(f"{len(pieces)} pieces, which {pp} pipeline ranks do not divide")

    # embedding first, loss last, blocks and predictions as many as the model has, in order
    if chain[:1] != "E" or chain[-1:] != "L" or chain.count("E") > 1 or chain.count("L") > 1:
        raise ValueError("one E, the first letter, and one L, the last one, are needed")
    if chain.count("t") != num_layers:
        raise ValueError(f"{chain.count('t')} blocks t, where the model has {num_layers}")
    if chain.count("m") != num_mtp:
        raise ValueError(f"{chain.count('m')} layers m, where the model has {num_mtp}")
    if "m" in chain and "t" in chain[chain.index("m") :]:
        raise ValueError("a block t after a layer m")

    # all layers m in one piece, the last chunk of its rank
    predicting = [i for i, piece in enumerate(pieces) if "m" in piece]
    if len(predicting) > 1:
        raise ValueError(f"layers m in {len(predicting)} pieces, where one has all {num_mtp}")
    if predicting and predicting[0] < len(pieces) - pp:
        raise ValueError("layers m in a piece that is not the last chunk of its rank")
    return [[[LAYERS[letter] for letter in piece] for piece in pieces[k::pp]] for k in range(pp)]


#: By name; True: the flag alone; False or None: left out.
Options = dict[str, bool | int | str | list[str] | None]

ARGUMENTS = "megatron_args.txt"
GROUP_SIZE = "microbatch_group_size_per_virtual_pipeline_stage"
USAGE = "pretrain_gpt.py [ARGUMENTS OF THE MODEL]"
COMMAND = '"$1" "${plan[@]}" "${@:2}"'
_ONE_QUEUE = """\
export CUDA_DEVICE_MAX_CONNECTIONS="${CUDA_DEVICE_MAX_CONNECTIONS:-1}"
"""
#: Reads an argument file into an array without expanding `*` and `|`.
_READ = """\
plan=()
while read -r -a words; do plan+=("${{words[@]}}"); done < <(grep -v '^#' "$here/{name}")"""
_PRECISION: dict[str, Options] = {
    "bf16": {"bf16": True},
    "fp16": {"fp16": True},
    "fp8": {"bf16": True, "fp8_format": "hybrid"},
    "fp4": {"bf16": True, "fp4_format": "e2m1"},
}
CONTEXT_METHODS: dict[ContextMethod, str] = {"ring": "p2p", "all_to_all": "a2a"}


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    head = (
        f"Megatron-LM arguments of {job.title}.",
        "Add those of the model. The order of the hosts (hosts.txt) places the stages.",
    )
    options = {**degrees(job), **batches(job, job.config.micro_batch), **strategies(job)}
    launch = launcher_files(job, USAGE, COMMAND, setup(job, ARGUMENTS))
    return {ARGUMENTS: argument_file(head, options), **launch}


def argument_file(head: Sequence[str], options: Mapping[str, object]) -> str:
    """The text of a file: remarks, then arguments."""
    lines = [f"# {line}" for line in head]
    for name, value in options.items():
        if value is not None and value is not False:
            values = value if isinstance(value, list) else [] if value is True else [value]
            lines.append(" ".join((f"--{name.replace('_', '-')}", *map(str, values))))
    return "".join(f"{line}\n" for line in lines)


def read_arguments(text: str) -> dict[str, list[str]]:
    """Options of an argument file, by name, with their values; remarks are left out."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {words[0][2:].replace("-", "_"): words[1:] for words in lines}


def setup(job: Job, arguments: str) -> str:
    """For the shell of a host: the plan's arguments, and what Megatron asks for at start.

    With tensor or context parallelism on GPUs before Blackwell kernels must be queued in one order
    (`validate_args`).
    """
    ordered = max(job.config.widest_tp, job.config.cp) > 1
    return _ONE_QUEUE * ordered + _READ.format(name=arguments)


def degrees(job: Job) -> Options:
    """Degrees, how GPUs share sequences and experts, and the layout of several pieces."""
    config, num_mtp = job.config, job.instance.workload.mtp_layers
    methods = [CONTEXT_METHODS[method] for method in context_methods(job.instance, config)]
    experts: Options = {
        "expert_model_parallel_size": config.ep,
        "expert_tensor_parallel_size": config.etp or job.tp,
        "moe_token_dispatcher_type": "alltoall",
    }
    return {
        "tensor_model_parallel_size": job.tp,
        "pipeline_model_parallel_size": config.pp,
        "context_parallel_size": config.cp,
        "cp_comm_type": (methods if len(set(methods)) > 1 else methods[:1]) or None,
        **(experts if config.has_expert_grid else {}),
        "pipeline_model_parallel_layout": (
            written(job.pieces, num_mtp) if len(job.pieces) > 1 else None
        ),
        GROUP_SIZE: config.microbatch_group,
    }


def batches(job: Job, micro_batch: int) -> Options:
    """What the plan was made for, and its batch sizes; micro_batch: sequences of the first rank."""
    workload = job.instance.workload
    return {
        "num_layers": job.num_blocks,
        "mtp_num_layers": workload.mtp_layers or None,
        "seq_length": workload.sequence_length,
        "micro_batch_size": micro_batch,
        "global_batch_size": workload.global_batch,
    }


def strategies(job: Job) -> Options:
    """Memory strategies, formats, and what the plan assumes to be hidden."""
    workload, overlap = job.instance.workload, job.instance.search.overlap
    moments = "bf16" if workload.optimizer_state == "bf16" else None
    in_fp32 = workload.gradient_bytes == 4
    return {
        **recomputation(job),
        "use_distributed_optimizer": job.config.zero > 0,
        "num_distributed_optimizer_instances": instances(job),
        "use_precision_aware_optimizer": moments is not None,
        "exp_avg_dtype": moments,
        "exp_avg_sq_dtype": moments,
        "sequence_parallel": job.sequence_parallel,
        # which asks for sequence parallelism
        "tp_comm_overlap": job.sequence_parallel and bool(overlap.tensor_parallel),
        "overlap_grad_reduce": bool(overlap.gradient_sync),
        **_PRECISION.get(workload.precision, {}),
        "accumulate_allreduce_grads_in_fp32": in_fp32,
        "grad_reduce_in_bf16": not in_fp32 and workload.precision != "fp16",
        "attention_backend": "flash" if workload.flash_attention else None,
        "cross_entropy_loss_fusion": workload.fused_cross_entropy,
        "cross_entropy_fusion_impl": "te" if workload.fused_cross_entropy else None,
    }


def instances(job: Job) -> int | None:
    """Groups of replicas that each have all optimizer states; None for one."""
    number = job.config.optimizer_instances
    return number if number > 1 else None


def recomputation(job: Job) -> Options:
    """How all ranks recompute: whole blocks, the first ones of a rank, or the attention core."""
    number = first_blocks(job.instance, job.plan)
    if job.recompute_way == "selective":
        return {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]}
    if job.recompute_way != "full" or not number:
        return {}
    pairs = zip(job.recomputed, job.pieces, strict=True)
    all_blocks = all(recomputed.blocks == len(piece.blocks) for recomputed, piece in pairs)
    return {
        "recompute_granularity": "full",
        "recompute_method": "uniform" if all_blocks else "block",
        "recompute_num_layers": 1 if all_blocks else number,
    }


def check(job: Job, texts: Mapping[str, str]) -> None:
    """Raises PlannerError unless the arguments, read back, say what the plan does."""
    options = read_arguments(texts[ARGUMENTS])
    check_options(job, {name: values[0] for name, values in options.items() if values})


def check_options(job: Job, options: Mapping[str, str]) -> None:
    """Raises PlannerError unless options sum to the plan; its layout is read as Megatron-LM does.

    Micro-batches of a replica result from the batches.
    """
    names = "tensor_model_parallel", "pipeline_model_parallel", "context_parallel"
    tp, pp, cp = (int(options[f"{name}_size"]) for name in names)
    dp, num_mtp = job.world // (tp * pp * cp), job.instance.workload.mtp_layers
    expect("degrees", (tp, dp, pp), (job.tp, job.config.dp, job.config.pp))
    expect("layers", int(options["num_layers"]), job.num_blocks)
    group = job.config.microbatch_group
    expect("micro-batches of a group", options.get(GROUP_SIZE, "None"), str(group))
    micro, total = (int(options[f"{name}_batch_size"]) for name in ("micro", "global"))
    expect("micro-batches per replica", divmod(total, micro * dp), (job.micro_batches, 0))
    if len(job.pieces) > 1:
        layout = options["pipeline_model_parallel_layout"]
        stages = parsed(layout, pp, job.num_blocks, num_mtp)
        for i, piece in enumerate(job.pieces):
            planned = ["embedding"] * piece.embedding + ["decoder"] * len(piece.blocks)
            planned += (["mtp"] * num_mtp + ["loss"]) * piece.head
            expect(f"piece {i} of the layout", stages[i % pp][i // pp], planned)
