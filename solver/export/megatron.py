"""Megatron-LM (core 0.20): an argument file with the layout, torchrun per host, Slurm, ranks.

The arguments are those that the plan decides, the model's own, and a user's, which train on mock
data until he writes others. They are options by name: a flag is the name with dashes, and most
fields of Megatron-Bridge's configuration have these names. Layouts exclude
`--decoder-first-pipeline-num-layers`, `--account-for-*-in-pipeline-split` and the flags of virtual
pipelines, which they imply.

Layouts are written for a plan, and judged as Megatron-LM does. Their grammar: pieces apart by `|`;
E embedding, t block, m multi-token prediction, L loss; `x*n` and `(...)*n` repeat, commas are
ignored. Piece i goes to pp rank i mod pp as its chunk i div pp.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from formulations.costs.context import context_methods
from formulations.instance.search import ContextMethod
from formulations.instance.sizes import MoeSizes, TransformerSizes
from formulations.instance.targets import traits
from formulations.instance.workload import VOCABULARY_MULTIPLE
from formulations.space.launch import first_blocks
from solver.export.job import Job, Piece, launcher_files
from solver.files import fields_of, table_beside

#: Letters of the grammar.
LAYERS = "EtmL"
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


def parsed(text: str, pp: int, num_layers: int, num_mtp: int = 0) -> list[str]:
    """The pieces, a letter per layer, as Megatron-LM reads a layout.

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
    return pieces


#: By name; True: the flag alone; False or None: left out.
Options = dict[str, bool | int | float | str | Sequence[object] | None]

ARGUMENTS = "megatron_args.txt"
GROUP_SIZE = "microbatch_group_size_per_virtual_pipeline_stage"
USAGE = "pretrain_gpt.py [ARGUMENTS]"
START = "/path/to/Megatron-LM/pretrain_gpt.py"
COMMAND = '"$1" "${plan[@]}" "${@:2}"'
_ONE_QUEUE = 'export CUDA_DEVICE_MAX_CONNECTIONS="${CUDA_DEVICE_MAX_CONNECTIONS:-1}"\n'
#: Reads an argument file into an array without expanding `*` and `|`.
_READ = """\
plan=()
while read -r -a words; do plan+=("${{words[@]}}"); done < <(grep -v '^#' "$here/{name}")"""
#: What it and Megatron-Bridge call things.
NAMES = table_beside("solver.export", "megatron.yaml")
CONTEXT_METHODS: dict[ContextMethod, str] = {"ring": "p2p", "all_to_all": "a2a"}


def files(job: Job) -> dict[str, str]:
    """All files of the export, by name."""
    options = {**degrees(job), **batches(job, job.config.micro_batch), **strategies(job)}
    return {
        ARGUMENTS: argument_file(job, [f"Megatron-LM arguments of {job.title}."], options),
        **launcher_files(job, USAGE, COMMAND, setup(job, ARGUMENTS), start=START),
    }


def argument_file(job: Job, head: Sequence[str], planned: Mapping[str, object]) -> str:
    """The text of a file: what the plan decides, below lines on it; the model; the user's part."""
    remarks = *head, "The order of the hosts (hosts.txt) places the stages."
    sections = {
        "".join(f"# {line}\n" for line in remarks): planned,
        "# The model.\n": model(job),
        f"# {job.yours}\n": NAMES["users"] | vocabulary(job),
    }
    return "".join(above + _lines(options) for above, options in sections.items() if options)


def _lines(options: Mapping[str, object]) -> str:
    """A flag a line; tuples are one value, and numbers of layers in a row are counted."""
    lines = ""
    for name, value in options.items():
        if value is not None and value is not False:
            values = value if isinstance(value, list) else [] if value is True else [value]
            if isinstance(value, tuple):
                runs = [(layer, len(list(run))) for layer, run in groupby(value)]
                counted = "+".join(f"[{layer}]*{number}" for layer, number in runs)
                values = [counted if name.endswith("_freq") else ",".join(map(str, value))]
            lines += " ".join((f"--{name.replace('_', '-')}", *map(str, values))) + "\n"
    return lines


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


def vocabulary(job: Job) -> Options:
    """Of the tokenizer, which sets the rows of the matrices, padded as in plans."""
    rows = job.instance.workload.layers[-1].vocabulary_rows
    return {"vocab_size": rows, "make_vocab_size_divisible_by": VOCABULARY_MULTIPLE}


def model(job: Job) -> Options:
    """The model's own arguments, as far as it is known."""
    sizes = job.instance.workload.sizes
    if sizes is None:
        return {}
    grouped, biases = sizes.num_kv_heads != sizes.heads, traits(sizes)["biases"]
    options: Options = {
        "hidden_size": sizes.hidden_size,
        "num_attention_heads": sizes.heads,
        "kv_channels": None if sizes.latent_attention else sizes.width_per_head,
        "group_query_attention": grouped,
        "num_query_groups": sizes.num_kv_heads if grouped else None,
        "ffn_hidden_size": sizes.dense_ffn_size,
        "swiglu": sizes.gated_ffn and not sizes.attention_sinks,
        "squared_relu": traits(sizes)["activation"] == "relu^2",
        "normalization": {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[sizes.norm],
        "norm_epsilon": sizes.norm_epsilon,
        "qk_layernorm": sizes.qk_norms or sizes.latent_attention is not None,
        "disable_bias_linear": biases in ("none", "qkv"),
        "add_qkv_bias": biases == "qkv",
        "untie_embeddings_and_output_weights": not sizes.tied_embeddings,
        "max_position_embeddings": (
            sizes.learned_positions or job.instance.workload.sequence_length
        ),
        **_rotary(sizes),
    }
    if not sizes.dropout:
        options |= {"hidden_dropout": 0.0, "attention_dropout": 0.0}
    if sizes.window:
        options["window_size"] = (sizes.window.tokens - 1, 0)  # behind a token, and before it
        covered = tuple(int(sizes.window.covers(block)) for block in range(sizes.layers))
        options["window_attn_skip_freq"] = None if all(covered) else covered
    if sizes.attention_sinks:  # gpt-oss, whose networks are gated so, too
        options |= {
            "softmax_type": "learnable",
            "quick_geglu": True,
            "glu_linear_offset": 1.0,
            "activation_func_clamp_value": 7.0,
        }
    if sizes.latent_attention:
        options["multi_latent_attention"] = True
        options |= fields_of(sizes.latent_attention, **NAMES["latent_attention"])
    return options | (_experts(sizes, sizes.moe) if sizes.moe else {})


def _rotary(sizes: TransformerSizes) -> Options:
    """Positions, and how rotary ones are stretched."""
    if not sizes.rotary_positions:
        kind = "none" if sizes.learned_positions is None else "learned_absolute"
        return {"position_embedding_type": kind}
    stretched, base = traits(sizes)["rotary_scaling"], sizes.rotary_base
    scaling: Mapping[str, Any] = sizes.rotary_scaling or {}
    factor = scaling.get("factor")
    options: Options = {
        "position_embedding_type": "rope",
        "rotary_base": None if base is None else round(base),
        "rotary_percent": sizes.rotary_share,
    }
    if sizes.latent_attention:  # whose fused rotation is for YaRN alone
        options |= {"rope_type": "rope", "no_rope_fusion": stretched != "yarn"}
    if stretched == "linear":
        options["rotary_seq_len_interpolation_factor"] = factor
    elif stretched == "llama3":
        options |= {"use_rope_scaling": True, "rope_scaling_factor": factor}
    elif stretched == "yarn":
        kind = "position_embedding_type" if sizes.latent_attention is None else "rope_type"
        options |= {kind: "yarn", "rotary_scaling_factor": factor}
        options["no_yarn_correction_range_round_to_int"] = scaling.get("truncate") is False
        options |= {name: scaling.get(name) for name in ("mscale", "mscale_all_dim")}
    return options


def _experts(sizes: TransformerSizes, moe: MoeSizes) -> Options:
    dense, groups = moe.dense_first_layers, moe.groups or 1
    return {
        "num_experts": moe.experts,
        "moe_router_topk": moe.experts_per_token,
        "moe_ffn_hidden_size": moe.ffn_size,
        "moe_shared_expert_intermediate_size": moe.shared_experts * moe.ffn_size or None,
        "moe_layer_freq": (0,) * dense + (1,) * (sizes.layers - dense) if dense else None,
        "moe_grouped_gemm": True,
        "moe_router_score_function": moe.scores,
        "moe_router_enable_expert_bias": moe.scores == "sigmoid",
        # softmax over all experts, whose weights then do not sum to 1
        "moe_router_pre_softmax": moe.scores == "softmax" and moe.normalized is False,
        "moe_router_topk_scaling_factor": moe.scale if moe.scale != 1 else None,
        "moe_router_num_groups": groups if groups > 1 else None,
        "moe_router_group_topk": moe.groups_per_token if groups > 1 else None,
    }


def strategies(job: Job) -> Options:
    """Memory strategies, formats, and what the plan assumes to be hidden."""
    workload, overlap = job.instance.workload, job.instance.search.overlap
    groups = job.config.optimizer_instances
    moments = "bf16" if workload.optimizer_state == "bf16" else None
    in_fp32 = workload.gradient_bytes == 4
    return {
        **recomputation(job),
        "use_distributed_optimizer": job.config.zero > 0,
        "num_distributed_optimizer_instances": groups if groups > 1 else None,
        "use_precision_aware_optimizer": moments is not None,
        "exp_avg_dtype": moments,
        "exp_avg_sq_dtype": moments,
        "sequence_parallel": job.sequence_parallel,
        # which asks for sequence parallelism
        "tp_comm_overlap": job.sequence_parallel and bool(overlap.tensor_parallel),
        "overlap_grad_reduce": bool(overlap.gradient_sync),
        **NAMES["precision"].get(workload.precision, {}),
        "accumulate_allreduce_grads_in_fp32": in_fp32,
        "grad_reduce_in_bf16": not in_fp32 and workload.precision != "fp16",
        "attention_backend": "flash" if workload.flash_attention else None,
        "cross_entropy_loss_fusion": workload.fused_cross_entropy,
        "cross_entropy_fusion_impl": "te" if workload.fused_cross_entropy else None,
    }


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
