"""Rows of frameworks of today as runs: Megatron-LM, Megatron-Bridge, torchtitan, NeMo AutoModel.

SimuMax v1.2: Megatron-LM on one node of 8 B200, Llama 3 70B cut to 12 layers and DeepSeek-V2 cut to
4; distributed optimizer, gradients in 32 bit, fused cross-entropy and flash attention, as its
measured memory shows; keys and values of long sequences go round a ring.
Megatron-Bridge: FSDP rows as ZeRO 3, the others with the distributed optimizer; gradients in 16
bit, overlap as the catalogue has it for megatron-bridge; interleaved where there are several
chunks. MXFP8 counts as fp8. Of more than 72 GB200 or GB300, 64 are one NVLink domain; of fewer all
are. Experts get as many tokens each, as the recipes force, and tensor groups split none
(`expert_tensor_parallel_size` 1 in the recipes). What the recipes recompute is not published with
the rows, so nothing is; DeepSeek-V3 trains its module of multi-token prediction where the row does
not say otherwise.
FlagPerf: Megatron-core 0.6 with the distributed optimizer; recompute-activations is selective
recomputation, of which flash attention leaves nothing. Where the batch is not stated and a replica
is one stage, 32 micro-batches: the speed hardly depends on it.
torchtitan, NeMo AutoModel: FSDP2 as ZeRO 3, with several stages as ZeRO 1; gradients in 32 bit.
Selective recomputation is torchtitan's per operator, as `llama3_8b.toml` of its releases has it.
Pipelines have as many micro-batches as stages unless stated (`pipeline_parallel_microbatches` of
its first releases).
Stages have as many blocks each, or where that cannot be as much work.
"""

from typing import Any, TypedDict

from bench.runs import Case, NotExpressible, Row, Run, catalogue_name, plain, sizes_of
from formulations.units import GIB

FP8 = ("FP8", "FP8-CS", "FP8-MX", "MXFP8", None)  # the release without a precision states FP8
NODES = {
    "DGX-H100": ("H100", 8),
    "DGX-H200": ("H200", 8),
    "DGX-B200": ("B200", 8),
    "DGX-B300": ("B300", 8),
    "DGX-GB200": ("GB200", 72),
    "DGX-GB300": ("GB300", 72),
}
DOMAIN = 64  # GPUs of a domain of 72 that jobs over several of them use
NETWORK = "InfiniBand 8x NDR"
ASSUMED_MICRO_BATCHES = 32


def _kind(name: str) -> str:
    """Dense or with experts."""
    return "experts" if sizes_of(name).get("moe") else "dense"


def _label(row: Row, name: str) -> str:
    """Degrees in words."""
    more = [f" {degree} {row[degree]}" for degree in ("ep", "cp") if (row.get(degree) or 1) > 1]
    return f"{name} tp {row['tp']} pp {row['pp']}{''.join(more)}"


def _search(row: Row, tp: int) -> dict[str, Any]:
    return {
        "sequence_parallel": tp > 1,
        "expert_parallel": row.get("ep") or 1,
        "context_parallel": row.get("cp") or 1,
        "context_method": "ring",
    }


def _workload(
    row: Row, sizes: dict[str, Any], batch: int, precision: str, gradients: str
) -> dict[str, Any]:
    return {
        "sizes": sizes,
        "sequence_length": row["sequence_length"],
        "global_batch": batch,
        "precision": precision,
        "gradient_precision": gradients,
        "flash_attention": True,
    }


def _group(gpu: str, size: int, gpus: int) -> dict[str, Any]:
    """Nodes of so many GPUs."""
    size = min(size, gpus)
    if gpus % size:
        raise NotExpressible(f"{gpus} GPUs in nodes of {size}")
    return {
        "name": "node",
        "gpu": gpu,
        "gpus_per_node": size,
        "nodes": gpus // size,
        "inter_node": NETWORK,
    }


class RowDegrees(TypedDict):
    """Those that all rows state; null is 1."""

    tp: int
    pp: int
    cp: int
    ep: int


def _degrees(row: Row) -> RowDegrees:
    tp, pp, cp, ep = (int(row.get(degree) or 1) for degree in ("tp", "pp", "cp", "ep"))
    return {"tp": tp, "pp": pp, "cp": cp, "ep": ep}


def simumax(row: Row) -> tuple[Case, Run]:
    """A row of SimuMax's measured steps."""
    name, batch = catalogue_name(row["model"]), row["micro_batches"] * row["dp"]
    sizes = sizes_of(name, layers=row.get("num_layers"))
    workload = _workload(row, sizes, batch, "bf16", "fp32") | {"fused_cross_entropy": True}
    degrees = _degrees(row)
    gpus = row["dp"] * degrees["tp"] * degrees["pp"] * degrees["cp"]
    words = f"dp {row['dp']} m {row['micro_batches']} s {row['sequence_length']}"
    case = Case(
        source="SimuMax",
        kind=_kind(name),
        model=name,
        label=f"{_label(row, name)} {words}",
        system="B200",
        precision="bf16",
        measured_s=row["measured_step_ms"] / 1e3,
        other_s=row["simumax_step_ms"] / 1e3 if row.get("simumax_step_ms") else None,
        measured_bytes=_gib(row, "measured_allocated_gib"),
        other_bytes=_gib(row, "simumax_allocated_gib"),
    )
    group = _group("B200", 8, gpus)
    search = _search(row, row["tp"])
    return case, Run(workload, [group], search, dp=row["dp"], micro_batch=1, **degrees)


def _gib(row: Row, field: str) -> float | None:
    """Bytes of a field in GiB."""
    return None if row.get(field) is None else row[field] * GIB


def bridge(row: Row) -> tuple[Case, Run]:
    """A row of the tables that NVIDIA publishes with Megatron-Bridge."""
    if row.get("phase") == "lora":
        raise NotExpressible("frozen weights (LoRA)")
    if row["system"] not in NODES:
        raise NotExpressible(f"{row['system']}: not a system known here")
    gpus, (gpu, size) = row["num_gpus"], NODES[row["system"]]
    name, degrees = catalogue_name(row["model"]), _degrees(row)
    mtp = plain(row["model"]) == "deepseekv3" and "w/o MTP" not in row["model"]
    precision = "fp8" if row.get("precision") in FP8 else "bf16"
    precision = "fp4" if row.get("precision") == "NVFP4" else precision
    sizes = sizes_of(name, mtp_layers=1 if mtp else None)
    fsdp = " FSDP" if row.get("fsdp") else ""
    case = Case(
        source="Megatron-Bridge",
        kind=_kind(name),
        model=name,
        label=f"{row['release']} {row['phase']} {_label(row, name)}{fsdp}",
        system=row["system"].removeprefix("DGX-"),
        precision=row.get("precision") or "FP8",
        measured_s=_seconds(row, gpus),
    )
    run = Run(
        _workload(row, sizes, row["global_batch"], precision, "bf16"),
        [_group(gpu, size if gpus <= size else min(size, DOMAIN), gpus)],
        _search(row, row["tp"]) | {"overlap": "megatron-bridge"},
        dp=gpus // (degrees["tp"] * degrees["pp"] * degrees["cp"]),
        micro_batch=row["micro_batch"],
        chunks=row.get("virtual_pp") or 1,
        zero=3 if row.get("fsdp") else 1,
        **degrees,
    )
    return case, run


def _seconds(row: Row, gpus: int) -> float:
    """Step time of a speed."""
    tokens = row["global_batch"] * row["sequence_length"]
    return float(tokens / (row["tokens_per_s_per_gpu"] * gpus))


def flagperf(row: Row) -> tuple[Case, Run]:
    """A row of FlagPerf's tables."""
    name, degrees = catalogue_name(row["model"]), _degrees(row)
    if not row.get("global_batch"):
        if row["pp"] > 1:
            raise NotExpressible("a pipeline whose global batch is not stated")
        batch = ASSUMED_MICRO_BATCHES * row["dp"] * row["micro_batch"]
        row = {**row, "global_batch": batch}
    precision = row["precision"]
    case = Case(
        source="FlagPerf",
        kind=_kind(name),
        model=name,
        label=f"{_label(row, name)} dp {row['dp']}",
        system=row["gpu"],
        precision=precision,
        measured_s=_seconds(row, row["gpus"]),
        measured_bytes=_gib(row, "memory_gib"),
        counted="of the device",
    )
    run = Run(
        _workload(row, sizes_of(name), row["global_batch"], precision, "fp32"),
        [_group(row["gpu"], 8, row["gpus"])],
        _search(row, row["tp"]),
        dp=row["dp"],
        micro_batch=row["micro_batch"],
        chunks=row.get("virtual_pp") or row.get("vpp") or 1,
        recompute="full" if row.get("recompute") == "full" else "none",
        **degrees,
    )
    return case, run


def _sharded(row: Row, source: str, gpu: str, seconds: float, precision: str) -> tuple[Case, Run]:
    """A run of FSDP2."""
    name, degrees, gpus = catalogue_name(row["model"]), _degrees(row), row["gpus"]
    dp = gpus // (degrees["tp"] * degrees["pp"] * degrees["cp"])
    sharded = row.get("fsdp") or dp
    if sharded not in (dp, dp * degrees["cp"]):
        raise NotExpressible("groups that share parameters smaller than all replicas (HSDP)")
    micro_batch = row.get("micro_batch")
    if not micro_batch:
        micro_batch = max(1, row["global_batch"] // (dp * degrees["pp"]))
    case = Case(
        source=source,
        kind=_kind(name),
        model=name,
        label=f"{_label(row, name)} fsdp {sharded} s {row['sequence_length']}",
        system=gpu,
        precision=precision,
        measured_s=seconds,
        measured_bytes=_gib(row, "memory_gib"),
        counted="reserved",
    )
    recompute = row.get("recompute") or "none"
    run = Run(
        _workload(row, sizes_of(name), row["global_batch"], precision, "fp32"),
        [_group(gpu, 8, gpus)],
        _search(row, degrees["tp"]) | {"overlap": "torchtitan"},
        dp=dp,
        micro_batch=micro_batch,
        chunks=row.get("vpp") or (2 if "interleaved" in str(row.get("schedule")).lower() else 1),
        zero=3 if degrees["pp"] == 1 else 1,
        recompute={"selective": "per_op"}.get(recompute, recompute),
        **degrees,
    )
    return case, run


def torchtitan(row: Row) -> tuple[Case, Run]:
    """A row of torchtitan's tables."""
    seconds = _seconds(row, row["gpus"])
    case, run = _sharded(row, "torchtitan", row["gpu"], seconds, row["precision"])
    if not row.get("async_tp"):
        run.search["overlap"] = {"sharding": 0.61}
    return case, run


def automodel(row: Row) -> tuple[Case, Run]:
    """A row of NeMo AutoModel's summary, all of it on DGX H100 in bf16."""
    if row.get("ep") is None and _kind(catalogue_name(row["model"])) == "experts":
        raise NotExpressible("experts whose groups are not stated")
    return _sharded(row, "NeMo AutoModel", "H100", row["step_s"], "bf16")
