"""Reads the reference folder into observations; README.md there says where each file is from.

vTrain (Bang et al., MICRO 2024, data/ground_truth_*.csv). GPU: A100-80, since its 175 B parameters
on 64 GPUs need 41 GiB each. The single-node times are no independent clock readings: where three
or more rows differ only in the number of micro-batches, all 78 rows beyond the second lie on one
line to the nanosecond. Vocabulary 50257 (its src/config.py), not padded.
Rows with tp across nodes are left out: no plan has them.
SimuMax v1.2, system configurations: share of the 16-bit peak per kernel, of B200 and of A100's PCIe
board. Attention there counts all scores, of which its causal kernels work out half: shares of 1.19
of 312 TFLOP/s, above all that the chip can do, say so. Experts' grouped products: those with
gradients in 32 bit.
Megatron-LM (Narayanan et al., SC 2021, table 1): micro-batch sizes and chunks per stage from
Megatron-LM's examples/sc21/run_table_1.sh, step time from the FLOPs formula in the file.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import log2
from pathlib import Path
from typing import Any, NamedTuple

from bench.gpt_rows import GPUS_PER_NODE, MEGATRON_RUNS, MEGATRON_VOCABULARY, VTRAIN_VOCABULARY
from bench.published_times import GroupedTime, KernelTime, LayerTime, Observation, StepTime, gpt
from bench.records import json_of
from formulations.instance import GpuType, Layer, Link
from formulations.instance.workload import Precision

INTER_NODE = Link(bandwidth_bytes_per_s=800e9 / 8, latency_s=0.0)  # vTrain: 800 Gb/s per node
SAILOR_SEQUENCE = 2048
SAILOR_MODELS = {"OPT-350": (1024, 16, 24, 50272), "GPT-Neo-2.7": (2560, 20, 32, 50257)}
SAILOR_PRECISIONS: dict[str, Precision] = {"A100-40": "tf32", "V100-16": "fp32", "RTX-3090": "tf32"}
SIMUMAX_GPUS = {"b200": "B200", "a100_pcie_80gb": "A100-80"}
FASOP_GPUS = {"A100": "A100-40", "A10": "A10"}

Gpus = Mapping[str, GpuType]


def read_all(reference: Path, gpus: Gpus) -> list[Observation]:
    """Every observation of the reference folder."""
    return [
        *_vtrain(reference, gpus, "single"),
        *_vtrain(reference, gpus, "multi"),
        *_megatron(reference, gpus),
        *_recompute(reference, gpus),
        *_fasop(reference, gpus),
        *_sailor(reference, gpus),
        *_simumax(reference, gpus),
    ]


def _on_a100(
    gpus: Gpus,
    source: str,
    label: str,
    published_s: float,
    sizes: tuple[int, int, int, int, int],
    global_batch: int,
    recomputed: bool = True,
    **degrees: int,
) -> Observation:
    """A step in 16 bit on nodes of A100-80."""
    gpu = gpus["A100-80"]
    step = StepTime(
        workload=gpt(*sizes),
        num_micro_batches=global_batch // (degrees["micro_batch"] * degrees["dp"]),
        gpus_per_node=GPUS_PER_NODE,
        intra_node=gpu.link,
        inter_node=INTER_NODE,
        memory_bandwidth_bytes_per_s=gpu.memory_bandwidth_bytes_per_s,
        recomputed=recomputed,
        **degrees,
    )
    return Observation(
        source=source,
        label=label,
        gpu=gpu.name,
        precision="fp16",
        published_s=published_s,
        prediction=step,
    )


class VtrainRow(NamedTuple):
    """One measured step: the model, the batch, the degrees."""

    h: int
    heads: int
    blocks: int
    s: int
    batch: int
    b: int
    tp: int
    dp: int
    pp: int
    measured_s: float


VTRAIN_TIME = "iteration time (ms)"
#: The columns of the whole numbers of a `VtrainRow`, in order.
_COLUMNS = (
    "hidden size",
    "attention heads",
    "# layers",
    "sequence length",
    "global batch",
    "micro batch",
    "tensor parallelism",
    "data parallelism",
    "pipeline parallelism",
)


def vtrain_rows(reference: Path, nodes: str) -> Iterator[VtrainRow]:
    """Rows of the `single` or `multi` node runs, of all CSV files that have such."""
    for path in sorted(reference.rglob("*.csv")):
        with path.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                if not {*_COLUMNS, VTRAIN_TIME} <= row.keys():
                    break
                h, heads, blocks, s, batch, b, tp, dp, pp = (int(row[name]) for name in _COLUMNS)
                time_s = float(row[VTRAIN_TIME]) / 1e3
                if (tp * dp * pp <= GPUS_PER_NODE) == (nodes == "single"):
                    yield VtrainRow(h, heads, blocks, s, batch, b, tp, dp, pp, time_s)


def _vtrain(reference: Path, gpus: Gpus, nodes: str) -> Iterator[Observation]:
    for row in vtrain_rows(reference, nodes):
        if row.tp > GPUS_PER_NODE:
            continue
        degrees = f"tp {row.tp} dp {row.dp} pp {row.pp}"
        yield _on_a100(
            gpus,
            source=f"vtrain {nodes}-node",
            label=f"h {row.h} layers {row.blocks} {degrees} b {row.b} B {row.batch}",
            published_s=row.measured_s,
            sizes=(row.h, row.heads, row.blocks, row.s, VTRAIN_VOCABULARY),
            global_batch=row.batch,
            tp=row.tp,
            dp=row.dp,
            pp=row.pp,
            micro_batch=row.b,
            chunks=1,
            recomputed=nodes == "multi",  # see `bench.gpt_rows`
        )


def _megatron(reference: Path, gpus: Gpus) -> Iterator[Observation]:
    s, v = 2048, MEGATRON_VOCABULARY
    for row in json_of(reference / "megatron" / "throughput_2021.json")["rows"]:
        billions, heads, h, blocks, tp, pp, num_gpus, batch, teraflops = row
        b, chunks = MEGATRON_RUNS[billions]
        dp = num_gpus // (tp * pp)
        flops = 96 * batch * s * blocks * h * h * (1 + s / (6 * h) + v / (16 * blocks * h))
        yield _on_a100(
            gpus,
            source="megatron 2021",
            label=f"{billions} B tp {tp} dp {dp} pp {pp} b {b}",
            published_s=flops / (teraflops * 1e12 * num_gpus),
            sizes=(h, heads, blocks, s, v),
            global_batch=batch,
            tp=tp,
            dp=dp,
            pp=pp,
            micro_batch=b,
            chunks=chunks,
        )


def _recompute(reference: Path, gpus: Gpus) -> Iterator[Observation]:
    found = json_of(reference / "megatron" / "recompute_2022.json")
    for name, case in found["cases"].items():
        run = case["config"]
        dp = run["gpus"] // (run["tp"] * run["pp"])
        h, heads, blocks = run["hidden"], run["heads"], run["layers"]
        yield _on_a100(
            gpus,
            source="megatron 2022",
            label=f"{name} full recomputation",
            published_s=case["iteration_s"]["full"],
            sizes=(h, heads, blocks, found["sequence_length"], found["vocabulary"]),
            global_batch=run["global_batch"],
            tp=run["tp"],
            dp=dp,
            pp=run["pp"],
            micro_batch=run["micro_batch"],
            chunks=run["interleave"],
        )


def _simumax(reference: Path, gpus: Gpus) -> Iterator[Observation]:
    """Products, fused attention forward and backward, and grouped products of experts."""
    for file, name in SIMUMAX_GPUS.items():
        kernels = json_of(reference / "simumax" / f"{file}_kernels.json")["kernels"]
        for row in kernels["matmul"]["rows"]:
            flops = 2 * row["b"] * row["m"] * row["k"] * row["n"]
            label = f"m {row['m']} k {row['k']} n {row['n']} {row['layout']}"
            yield _kernel(
                gpus[name], "products", label, row["efficiency"], KernelTime(flops, False, False)
            )
        for backward, way in enumerate(("sdp_fwd", "sdp_bwd")):
            for row in kernels[way]["rows"]:
                width = row["head_num"] * (row["qk_head_dim"] + row["v_head_dim"])
                flops = 2 * row["batch"] * row["seq_len"] ** 2 * width
                label = f"{way} s {row['seq_len']} heads {row['head_num']}"
                kernel = KernelTime(flops, True, bool(backward))
                yield _kernel(gpus[name], "attention", label, row["efficiency"], kernel)
        yield from _grouped(gpus[name], kernels["group_matmul"]["rows"])


def _kernel(gpu: GpuType, kind: str, label: str, share: float, kernel: KernelTime) -> Observation:
    flops = kernel.flops * (2 if kernel.backward else 1)
    return Observation(
        source=f"simumax {kind}",
        label=label,
        gpu=gpu.name,
        precision="bf16",
        published_s=flops / (share * gpu.peak_flops["bf16"]),
        prediction=kernel,
        on_device=True,
    )


def _grouped(gpu: GpuType, rows: Iterable[Mapping[str, Any]]) -> Iterator[Observation]:
    """Both passes of each configuration, with gradients in 32 bit; backward has two products."""
    times: dict[GroupedTime, float] = {}
    for row in rows:
        if row["main_grad_dtype"] != "fp32":
            continue
        experts, tokens, size = row["ng"], row["M"], row["N"] * row["K"]
        kernel = GroupedTime(experts * size, 2 * tokens * experts * size, row["stage"] != "fwd")
        one_s = kernel.flops / (row["efficiency"] * gpu.peak_flops["bf16"])
        times[kernel] = times.get(kernel, 0.0) + one_s
    for kernel, published_s in times.items():
        way = "backward" if kernel.backward else "forward"
        yield Observation(
            source="simumax experts",
            label=f"{kernel.flops // 2 // kernel.parameters} tokens per expert, {way}",
            gpu=gpu.name,
            precision="bf16",
            published_s=published_s,
            prediction=kernel,
            on_device=True,
        )


def _fasop(reference: Path, gpus: Gpus) -> Iterator[Observation]:
    """Block forward times, at the micro-batch sizes that FASOP's public code uses them for.

    The head's times are left out: the file does not say for which micro-batch size they hold.
    """
    profiles = json_of(reference / "fasop" / "profiles.json")
    links = json_of(reference / "fasop" / "clusters.json")["links_bits_per_s"]
    for profile in profiles["profiles"]:
        gpu = gpus[FASOP_GPUS[profile["gpu"]]]
        sizes = profiles["models"][profile["model"]]
        workload = gpt(
            sizes["hidden"], sizes["heads"], sizes["layers"], sizes["seq_len"], sizes["vocab"]
        )
        node = next(key for key in links["default (--pareto off)"] if profile["gpu"] + " " in key)
        bits_per_s = links["default (--pareto off)"][node]["intra"]
        b = 4 if profile["model"] == "bert" else 1
        yield Observation(
            source="fasop",
            label=f"{profile['model']} block tp {profile['tp']} b {b}",
            gpu=gpu.name,
            precision="fp16",
            published_s=dict(profile["layers"])["transformer_0"],
            prediction=LayerTime(
                layer=workload.layers[1],
                tp=profile["tp"],
                micro_batch=b,
                backward=False,
                message_bytes=b * workload.boundary_bytes,
                link=gpu.link.but(bandwidth_bytes_per_s=bits_per_s / 8),
            ),
        )


def _sailor(reference: Path, gpus: Gpus) -> Iterator[Observation]:
    """Block times, and the head's where the profile's last layer holds the projection (OPT)."""
    links = json_of(reference / "sailor" / "intra_node_bandwidths.json")
    for path in sorted((reference / "sailor" / "profiles").glob("*.json")):
        model, gpu_name = path.stem.split("_")
        gpu, blocks = gpus[gpu_name], SAILOR_MODELS[model][2]
        parts = {"block": 2, "head": blocks + 1} if model == "OPT-350" else {"block": 2}
        for b, by_tp in json_of(path).items():
            for tp, layers in by_tp.items():
                link = _sailor_link(links[gpu_name], gpu.link, model, int(tp), int(b))
                if link is None:
                    continue
                for part, index in parts.items():
                    one = _sailor_layer(model, part, int(tp), int(b), link)
                    for backward in (False, True):
                        way = "backward" if backward else "forward"
                        yield Observation(
                            source=f"sailor {part}" + (" tp>2" if int(tp) > 2 else ""),
                            label=f"{model} {part} {way} tp {tp} b {b}",
                            gpu=gpu_name,
                            precision=SAILOR_PRECISIONS[gpu_name],
                            published_s=layers[str(index)][int(backward)],
                            prediction=replace(one, backward=backward),
                        )


def _sailor_layer(model: str, part: str, tp: int, b: int, link: Link) -> LayerTime:
    hidden, heads, blocks, vocabulary = SAILOR_MODELS[model]
    workload = gpt(hidden, heads, blocks, SAILOR_SEQUENCE, vocabulary, "fp32")
    layer: Layer = workload.layers[1 if part == "block" else -1]
    return LayerTime(
        layer=layer,
        tp=tp,
        micro_batch=b,
        backward=False,
        message_bytes=b * workload.boundary_bytes,
        link=link,
    )


def _sailor_link(fits: Any, link: Link, model: str, tp: int, b: int) -> Link | None:
    """The link with the bandwidth fitted there for this message; None where there is no fit."""
    if tp == 1:
        return link
    if str(tp) not in fits:
        return None
    size_bytes = 4 * b * SAILOR_SEQUENCE * SAILOR_MODELS[model][0]
    x = log2(size_bytes / 1e6)
    c2, c1, c0 = fits[str(tp)][0]
    return link.but(bandwidth_bytes_per_s=(c2 * x * x + c1 * x + c0) * 1e9)
