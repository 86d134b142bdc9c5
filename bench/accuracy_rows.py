"""Published steps of dense models as instances and plans of ours, and why others are left out.

SimuMax v1.2 (b200_steps.json): Megatron-LM on one node of 8 B200, Llama 3 70B cut to 12 layers;
distributed optimizer, gradients in 32 bit and flash attention, as its measured memory shows.
Megatron-Bridge (throughput.json): Llama 3 70B; FSDP rows as ZeRO 3, the others with the distributed
optimizer; gradients in 16 bit, overlap as the catalogue has it for megatron; interleaved where
there are several chunks. MXFP8 counts as fp8. On GB200 and GB300 all GPUs are one NVLink domain.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formulations.costs.tables import build_tables
from formulations.decisions import Decisions
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from formulations.plan import Degrees, Plan, Shape

Row = Mapping[str, Any]

DENSE = {"llama3_70b", "LLAMA3_70B"}
FP8 = ("FP8", "FP8-CS", "MXFP8", None)  # the release without a precision states FP8
LLAMA = (
    "{hidden_size: 8192, layers: %d, heads: 64, kv_heads: 8, ffn_size: 28672, gated_ffn: true,"
    " vocabulary_size: 128256, tied_embeddings: false, rotary_positions: true, norm: rmsnorm,"
    " qkv_biases: false, output_bias: false, ffn_biases: false, dropout: false}"
)
LAYERS = 80
NODES = {"DGX-H100": ("H100", 8), "DGX-GB200": ("GB200", 72), "DGX-GB300": ("GB300", 72)}


@dataclass(frozen=True)
class Case:
    """One row: where it is from, what was measured, and the plan, or why there is none."""

    source: str
    label: str
    system: str
    precision: str
    measured_s: float
    other_s: float | None  #: the prediction published beside it
    plan: tuple[Instance, Plan] | None
    why_not: str | None


def cases(reference: Path) -> Iterator[Case]:
    """Every row of both files."""
    for row in json.loads((reference / "simumax" / "b200_steps.json").read_text())["rows"]:
        yield _simumax(row)
    for row in json.loads((reference / "megatron_bridge" / "throughput.json").read_text())["rows"]:
        yield _bridge(row)


def _why_not(row: Row) -> str | None:
    """What of a row no plan of ours has."""
    if row["model"] not in DENSE:
        return "experts"
    if row.get("phase") == "lora":
        return "frozen weights (LoRA)"
    if row["cp"] != 1:
        return "context parallel"
    if row.get("precision") == "NVFP4":
        return "fp4"
    return None


def _simumax(row: Row) -> Case:
    why, shape = _why_not(row), None
    if why is None:
        text = _text(row, row["num_layers"], "B200", 8, 1, row["micro_batches"] * row["dp"], "bf16")
        shape = _planned(text, row, dp=row["dp"], micro_batch=1, chunks=1, zero=1)
    return Case(
        source="SimuMax",
        label=f"tp {row['tp']} dp {row['dp']} pp {row['pp']} m {row['micro_batches']}",
        system="B200",
        precision="bf16",
        measured_s=row["measured_step_ms"] / 1e3,
        other_s=row["simumax_step_ms"] / 1e3,
        plan=shape,
        why_not=why,
    )


def _bridge(row: Row) -> Case:
    gpus, tokens = row["num_gpus"], row["global_batch"] * row["sequence_length"]
    why, plan = _why_not(row), None
    if why is None:
        gpu, most = NODES[row["system"]]
        size, dp = min(gpus, most), gpus // (row["tp"] * row["pp"] * row["cp"])
        precision = "fp8" if row.get("precision") in FP8 else "bf16"
        text = _text(row, LAYERS, gpu, size, gpus // size, row["global_batch"], precision)
        zero = 3 if row.get("fsdp") else 1
        chunks = row["virtual_pp"] or 1
        plan = _planned(text, row, dp=dp, micro_batch=row["micro_batch"], chunks=chunks, zero=zero)
    fsdp = " FSDP" if row.get("fsdp") else ""
    return Case(
        source="Megatron-Bridge",
        label=f"{row['release']} {row['phase']} tp {row['tp']} pp {row['pp']}{fsdp}",
        system=row["system"].removeprefix("DGX-"),
        precision=row.get("precision") or "FP8",
        measured_s=tokens / (row["tokens_per_s_per_gpu"] * gpus),
        other_s=None,
        plan=plan,
        why_not=why,
    )


def _text(
    row: Row, layers: int, gpu: str, size: int, nodes: int, batch: int, precision: str
) -> str:
    """The instance of a row; memory is not what is compared, so there is enough."""
    bridge = "system" in row
    return f"""
name: published
workload:
  sizes: {LLAMA % layers}
  sequence_length: {row["sequence_length"]}
  global_batch: {batch}
  precision: {precision}
  gradient_precision: {"bf16" if bridge else "fp32"}
  flash_attention: true
cluster:
  groups:
    - name: node
      gpu: {gpu}
      gpus_per_node: {size}
      nodes: {nodes}
      inter_node: InfiniBand 8x NDR
search: {{sequence_parallel: {str(row["tp"] > 1).lower()}{", overlap: megatron" if bridge else ""}}}
"""


def _planned(
    text: str, row: Row, *, dp: int, micro_batch: int, chunks: int, zero: int
) -> tuple[Instance, Plan]:
    """A row as an instance and the plan that splits it evenly."""
    instance = parse_instance(text, f"{row['model']}.yaml", Path())
    shape = Shape.model_validate(
        {
            "degrees": (Degrees(tp=row["tp"]),),
            "dp": dp,
            "pp": row["pp"],
            "micro_batch": micro_batch,
            "schedule": "interleaved" if chunks > 1 and row["pp"] > 1 else "1f1b",
            "recompute": ("none",),
            "zero": zero,
            "nodes_used": (instance.cluster.groups[0].nodes,),
            "vpp": chunks if row["pp"] > 1 else 1,
        }
    )
    return instance, even_plan(instance, shape)


def even_plan(instance: Instance, shape: Shape) -> Plan:
    """Megatron-LM's plan of a shape on equal nodes: as many blocks on every stage."""
    layers = len(instance.workload.layers)
    each = (layers - 2) // shape.num_stages
    boundaries = (0, *(1 + each * s for s in range(1, shape.num_stages)), layers)
    share = instance.workload.global_batch // (shape.dp * shape.micro_batch)
    decisions = Decisions((0,) * sum(shape.nodes_used), boundaries, (share,) * shape.dp)
    return decisions.plan(build_tables(instance, shape))
