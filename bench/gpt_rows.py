"""Rows of GPTs on A100, V100 and T4 as runs: vTrain, Megatron-LM's papers, AMP.

vTrain (Bang et al., MICRO 2024): Megatron-DeepSpeed on nodes of 8 A100, fp16, 1F1B, 800 Gb/s per
node; vocabulary 50257 (its src/config.py), not padded. Recomputation is not stated of what was
measured: none on one node, full on several (docs/measured.md; `bench.layer_cells`).
Megatron-LM (Narayanan et al., SC 2021, table 1): micro-batch sizes and chunks per stage from its
examples/sc21/run_table_1.sh, step time from the FLOPs formula in the file; Korthikanti et al.,
MLSys 2023, table 5: full recomputation, or sequence parallel with selective recomputation.
AMP (Li et al., NeurIPS 2022): a GPT-2 by DeepSpeed's pipeline in fp16 on g4dn.12xlarge (4 T4) and
p3.8xlarge (4 V100): gradients summed in 32 bit, no ZeRO, nothing recomputed, ranks stage by stage
in the hosts' order, V100 nodes first. Its chain of 30 has no-ops, which the cut leaves out here.
"""

from typing import Any

from bench.runs import Case, NotExpressible, Row, Run

GPUS_PER_NODE = 8
VTRAIN_VOCABULARY = 50257  # vTrain, src/config.py
MEGATRON_VOCABULARY = 51200
#: Micro-batch and chunks per stage by billions of parameters.
MEGATRON_RUNS = {
    1.7: (16, 1),
    3.6: (16, 1),
    7.5: (16, 1),
    18.4: (8, 1),
    39.1: (4, 1),
    76.1: (2, 3),
    145.6: (2, 2),
    310.1: (1, 2),
    529.6: (1, 3),
    1008.0: (1, 1),
}


def _gpt(h: int, heads: int, blocks: int, s: int, vocabulary: int, batch: int) -> dict[str, Any]:
    """The section `workload`, of Megatron-LM in fp16."""
    sizes = {
        "hidden_size": h,
        "layers": blocks,
        "heads": heads,
        "vocabulary_size": vocabulary,
        "learned_positions": s,
    }
    return {
        "sizes": sizes,
        "sequence_length": s,
        "global_batch": batch,
        "precision": "fp16",
        "gradient_precision": "fp16",
        "flash_attention": False,
    }


def _a100(gpus: int, network: str) -> dict[str, Any]:
    size = min(GPUS_PER_NODE, gpus)
    if gpus % size:
        raise NotExpressible(f"{gpus} GPUs in nodes of {size}")
    nodes = {"name": "node", "gpu": "A100-80", "gpus_per_node": size, "nodes": gpus // size}
    return nodes | {"inter_node": network}


def vtrain(row: Row) -> tuple[Case, Run]:
    """A row of vTrain's tables of measured steps."""
    h, heads, blocks = (int(row[k]) for k in ("hidden size", "attention heads", "# layers"))
    s, batch = int(row["sequence length"]), int(row["global batch"])
    names = {"tp": "tensor", "dp": "data", "pp": "pipeline"}
    tp, dp, pp = (int(row[f"{name} parallelism"]) for name in names.values())
    b, gpus = int(row["micro batch"]), tp * dp * pp
    alone = gpus <= GPUS_PER_NODE
    case = Case(
        source="vTrain",
        kind="one node" if alone else "several nodes",
        model=f"gpt {h} x {blocks}",
        label=f"h {h} layers {blocks} tp {tp} dp {dp} pp {pp} b {b} B {batch}",
        system="A100-80",
        precision="fp16",
        measured_s=float(row["iteration time (ms)"]) / 1e3,
        fitted=alone,
        choice=(h, heads, blocks, s, gpus, batch),
    )
    run = Run(
        _gpt(h, heads, blocks, s, VTRAIN_VOCABULARY, batch),
        [_a100(gpus, "800 Gbit/s")],
        {"sequence_parallel": False},
        dp=dp,
        micro_batch=b,
        tp=tp,
        pp=pp,
        zero=0,
        recompute="none" if alone else "full",
    )
    return case, run


def megatron_2021(row: Row) -> tuple[Case, Run]:
    """A row of table 1."""
    billions, h, blocks = row["parameters_billion"], row["hidden"], row["layers"]
    b, chunks = MEGATRON_RUNS[min(MEGATRON_RUNS, key=lambda size: abs(size - billions))]
    tp, pp, gpus, batch, s, v = row["tp"], row["pp"], row["gpus"], row["global_batch"], 2048, 51200
    flops = 96 * batch * s * blocks * h * h * (1 + s / (6 * h) + v / (16 * blocks * h))
    case = Case(
        source="Megatron-LM 2021",
        kind="several nodes",
        model=f"gpt {h} x {blocks}",
        label=f"{billions} B tp {tp} pp {pp} gpus {gpus} b {b}",
        system="A100-80",
        precision="fp16",
        measured_s=flops / (row["teraflops_per_gpu"] * 1e12 * gpus),
    )
    run = Run(
        _gpt(h, row["heads"], blocks, s, MEGATRON_VOCABULARY, batch),
        [_a100(gpus, "InfiniBand 8x HDR")],
        {"sequence_parallel": False, "scatter_gather": True},
        dp=gpus // (tp * pp),
        micro_batch=b,
        tp=tp,
        pp=pp,
        chunks=chunks,
        zero=0,
        recompute="full",
    )
    return case, run


def megatron_2022(row: Row) -> tuple[Case, Run]:
    """A case of table 5, in one of its modes."""
    given, mode = row["config"], row["mode"]
    tp, pp, gpus, batch = (given[k] for k in ("tp", "pp", "gpus", "global_batch"))
    h, heads, blocks = given["hidden"], given["heads"], given["layers"]
    case = Case(
        source="Megatron-LM 2022",
        kind="one node" if gpus <= GPUS_PER_NODE else "several nodes",
        model=f"gpt {h} x {blocks}",
        label=f"{row['case']} {mode} tp {tp} pp {pp} gpus {gpus}",
        system="A100-80",
        precision="fp16",
        measured_s=row["seconds"],
    )
    full = mode == "full"
    run = Run(
        _gpt(h, heads, blocks, row["sequence_length"], row["vocabulary"], batch),
        [_a100(gpus, "InfiniBand 8x HDR")],
        {"sequence_parallel": not full, "scatter_gather": True},
        dp=gpus // (tp * pp),
        micro_batch=given["micro_batch"],
        tp=tp,
        pp=pp,
        chunks=given["interleave"],
        zero=0,
        recompute="full" if full else "selective",
    )
    return case, run


#: Of a launch on AWS P3 and G4 hosts with DeepSpeed's pipeline of 2020 (`step_fits`).
AMP_LAUNCH_S = 180e-6
#: AMP gives T4s 50 Gbit/s inside a node; without peer access data goes through the host's memory,
#: up and down the same link.
AMP_LINKS = {"T4": {"intra_node": {"bandwidth": "25 Gbit/s", "shared": True}}}
#: Nodes of AMP's clusters, in the hosts' order, and the network between them.
AMP_CLUSTERS: dict[str, tuple[list[tuple[str, int]], str]] = {
    "homogeneous": ([("T4", 4)], "50 Gbit/s"),
    "het_cluster": ([("V100-16", 3), ("T4", 1)], "10 Gbit/s"),
}


def amp(row: Row) -> tuple[Case, Run]:
    """A row of AMP's results."""
    if row["cluster"] not in AMP_CLUSTERS:
        raise NotExpressible(f"{row['cluster']}: not a cluster known here")
    kinds, network = AMP_CLUSTERS[row["cluster"]]
    tp, dp, pp, b, batch = (row[k] for k in ("tp", "dp", "pp", "micro_batch", "global_batch"))
    model = row["model"]
    case = Case(
        source="AMP",
        kind=" + ".join(f"{4 * nodes} {gpu}" for gpu, nodes in kinds),
        model="gpt 1024 x 24",
        label=f"tp {tp} dp {dp} pp {pp} b {b}",
        system=" + ".join(gpu for gpu, _ in kinds),
        precision="fp16",
        measured_s=row["measured_s"],
        other_s=row["amp_predicted_s"],
        choice=(row["cluster"],),
    )
    sizes = (model["hidden_size"], model["heads"], model["layers"])
    workload = _gpt(*sizes, model["sequence_length"], model["vocabulary_size"], batch)
    groups = [
        {"name": gpu.lower(), "gpu": gpu, "gpus_per_node": 4, "nodes": n, "inter_node": network}
        | AMP_LINKS.get(gpu, {})
        for gpu, n in kinds
    ]
    run = Run(
        workload | {"gradient_precision": "fp32"},
        groups,
        {"sequence_parallel": False},
        dp=dp,
        micro_batch=b,
        tp=tp,
        pp=pp,
        zero=0,
        boundaries=row.get("boundaries"),
        launch_s=AMP_LAUNCH_S,
    )
    return case, run
