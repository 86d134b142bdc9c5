"""Published steps as instances and plans of ours, and why others are left out.

SimuMax v1.2 (b200_steps.json): Megatron-LM on one node of 8 B200, Llama 3 70B cut to 12 layers and
DeepSeek-V2 cut to 4; distributed optimizer, gradients in 32 bit and flash attention, as its
measured memory shows; keys and values of long sequences go round a ring.
Megatron-Bridge (throughput.json): FSDP rows as ZeRO 3, the others with the distributed optimizer;
gradients in 16 bit, overlap as the catalogue has it for megatron; interleaved where there are
several chunks. MXFP8 counts as fp8. Of more than 72 GB200 or GB300, 64 are one NVLink domain; of
fewer all are. Experts get as many tokens each, as the recipes force, and tensor groups split none
(`expert_tensor_parallel_size` 1 in the recipes). What the recipes recompute is
not published with the rows, so nothing is; DeepSeek-V3 trains its module of multi-token prediction
where the row does not say otherwise. Stages have as many blocks each, or where
that cannot be as much work.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bench.records import json_of
from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import CostTables, build_tables
from formulations.decisions import Decisions
from formulations.instance import Instance
from formulations.instance.documents import resource
from formulations.instance.load import parse_instance
from formulations.plan import Configuration, Degrees, Plan
from solver.simulate import step_time_ns

Row = Mapping[str, Any]
Sizes = dict[str, Any]

FP8 = ("FP8", "FP8-CS", "FP8-MX", "MXFP8", None)  # the release without a precision states FP8
#: What a model's name in the files begins with, its name in the catalogue, and other sizes.
MODELS: Mapping[str, tuple[str, Sizes]] = {
    "llama3_70b": ("llama3-70b", {}),
    "LLAMA3_70B": ("llama3-70b", {}),
    "deepseekv2": ("deepseek-v2", {}),
    "DeepSeekV3 (w/o MTP)": ("deepseek-v3", {}),
    "DeepSeekV3": ("deepseek-v3", {"mtp_layers": 1}),
    "Qwen3_30B_a3B": ("qwen3-30b-a3b", {}),
    "GPT OSS 120B": ("gpt-oss-120b", {}),
}
NODES = {
    "DGX-H100": ("H100", 8),
    "DGX-B200": ("B200", 8),
    "DGX-B300": ("B300", 8),
    "DGX-GB200": ("GB200", 72),
    "DGX-GB300": ("GB300", 72),
}
DOMAIN = 64  # GPUs of a domain of 72 that jobs over several of them use


@dataclass(frozen=True)
class Case:
    """One row: where it is from, what was measured, and the plan, or why there is none."""

    source: str
    model: str
    label: str
    system: str
    precision: str
    measured_s: float
    other_s: float | None  #: the prediction published beside it
    plan: tuple[Instance, Plan] | None
    why_not: str | None


def cases(reference: Path) -> Iterator[Case]:
    """Every row of both files."""
    for row in json_of(reference / "simumax" / "b200_steps.json")["rows"]:
        yield _simumax(row)
    for row in json_of(reference / "megatron_bridge" / "throughput.json")["rows"]:
        yield _bridge(row)


def step_of_row(row: Row) -> float:
    """Seconds of a step of one of Megatron-Bridge's rows, by our model."""
    case = _bridge(row)
    assert case.plan is not None  # the rows with a reason are none of these
    return step_time_ns(plan_costs(*case.plan)) / 1e9


def model_of(row: Row) -> str:
    """The name in `MODELS` that the row's begins with."""
    return next(name for name in MODELS if row["model"].startswith(name))


def _why_not(row: Row) -> str | None:
    """What of a row no plan of ours has."""
    if row.get("phase") == "lora":
        return "frozen weights (LoRA)"
    if row.get("precision") == "NVFP4":
        return "fp4"
    return None


def _label(row: Row) -> str:
    """Degrees in words."""
    more = [f" {name} {row[name]}" for name in ("ep", "cp") if (row[name] or 1) > 1]
    return f"{model_of(row)} tp {row['tp']} pp {row['pp']}{''.join(more)}"


def _simumax(row: Row) -> Case:
    text = _text(row, "B200", 8, 1, row["micro_batches"] * row["dp"], "bf16")
    return Case(
        source="SimuMax",
        model=MODELS[model_of(row)][0],
        label=f"{_label(row)} dp {row['dp']} m {row['micro_batches']} s {row['sequence_length']}",
        system="B200",
        precision="bf16",
        measured_s=row["measured_step_ms"] / 1e3,
        other_s=row["simumax_step_ms"] / 1e3,
        plan=_planned(text, row, dp=row["dp"], micro_batch=1, chunks=1, zero=1),
        why_not=None,
    )


def _bridge(row: Row) -> Case:
    gpus, tokens = row["num_gpus"], row["global_batch"] * row["sequence_length"]
    why, plan = _why_not(row), None
    if why is None:
        gpu, most = NODES[row["system"]]
        size, dp = gpus, gpus // (row["tp"] * row["pp"] * row["cp"])
        if gpus > most:
            size = min(most, DOMAIN)
        precision = "fp8" if row.get("precision") in FP8 else "bf16"
        text = _text(row, gpu, size, gpus // size, row["global_batch"], precision)
        zero = 3 if row.get("fsdp") else 1
        chunks = row["virtual_pp"] or 1
        plan = _planned(text, row, dp=dp, micro_batch=row["micro_batch"], chunks=chunks, zero=zero)
    fsdp = " FSDP" if row.get("fsdp") else ""
    return Case(
        source="Megatron-Bridge",
        model=MODELS[model_of(row)][0],
        label=f"{row['release']} {row['phase']} {_label(row)}{fsdp}",
        system=row["system"].removeprefix("DGX-"),
        precision=row.get("precision") or "FP8",
        measured_s=tokens / (row["tokens_per_s_per_gpu"] * gpus),
        other_s=None,
        plan=plan,
        why_not=why,
    )


def _text(row: Row, gpu: str, size: int, nodes: int, batch: int, precision: str) -> str:
    """The instance of a row; memory is not what is compared, so there is enough."""
    bridge, (name, changed) = "system" in row, MODELS[model_of(row)]
    known: Any = resource("workloads.yaml").value
    sizes = {**known[name]["sizes"], **changed}
    sizes["layers"] = row.get("num_layers") or sizes["layers"]
    search = {
        "sequence_parallel": row["tp"] > 1,
        "expert_parallel": row["ep"] or 1,
        "context_parallel": row["cp"],
        "context_method": "ring",
    }
    group = {"name": "node", "gpu": gpu, "gpus_per_node": size, "nodes": nodes}
    workload = {
        "sizes": sizes,
        "sequence_length": row["sequence_length"],
        "global_batch": batch,
        "precision": precision,
        "gradient_precision": "bf16" if bridge else "fp32",
        "flash_attention": True,
    }
    written = {
        "name": "published",
        "workload": workload,
        "cluster": {"groups": [group | {"inter_node": "InfiniBand 8x NDR"}]},
        "search": search | ({"overlap": "megatron"} if bridge else {}),
    }
    return yaml.safe_dump(written, sort_keys=False)


def _planned(
    text: str, row: Row, *, dp: int, micro_batch: int, chunks: int, zero: int
) -> tuple[Instance, Plan]:
    """A row as an instance and the plan that splits it evenly."""
    instance = parse_instance(text, f"{row['model']}.yaml", Path())
    config = Configuration.model_validate(
        {
            "degrees": (Degrees(tp=row["tp"], cp=row["cp"]),),
            "dp": dp,
            "pp": row["pp"],
            "ep": row["ep"] or 1,
            "etp": 1 if row["tp"] > 1 and instance.workload.experts else None,
            "micro_batch": micro_batch,
            "schedule": "interleaved" if chunks > 1 and row["pp"] > 1 else "1f1b",
            "recompute": ("none",),
            "zero": zero,
            "nodes_used": (instance.cluster.groups[0].nodes,),
            "vpp": chunks if row["pp"] > 1 else 1,
        }
    )
    return instance, even_plan(instance, config)


def even_plan(instance: Instance, config: Configuration) -> Plan:
    """Megatron-LM's plan of a config on equal nodes: as many blocks, or as much work, on each."""
    blocks, tables = len(instance.workload.layers) - 2, build_tables(instance, config)
    cuts = [1 + blocks * s // config.num_stages for s in range(1, config.num_stages)]
    if blocks % config.num_stages:
        cuts = _balanced(tables, config.num_stages)
    boundaries = (0, *cuts, blocks + 2)
    share = instance.workload.global_batch // (config.dp * config.micro_batch)
    decisions = Decisions((0,) * sum(config.nodes_used), boundaries, (share,) * config.dp)
    return decisions.plan(tables)


def _balanced(tables: CostTables, stages: int) -> list[int]:
    """Cuts nearest to equal shares of the time, with a block between them."""
    work = np.cumsum((tables.forward_ns + tables.backward_ns)[:, 0])
    goals = work[-1] * np.arange(1, stages) / stages
    cuts = 1 + np.argmin(np.abs(work[:, None] - goals), axis=0)
    last, first = len(work) - 1, 2
    for s in range(stages - 1):
        cuts[s] = np.clip(cuts[s], first, last - (stages - 1 - s))
        first = cuts[s] + 1
    return [int(cut) for cut in cuts]
