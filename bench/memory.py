"""Memory of our model beside published figures: measured, of another model, or of an estimator.

Measured on B200 (SimuMax v1.2): allocated bytes of the fullest rank, without what the framework
holds beside PyTorch's allocator; SimuMax's own prediction stands beside ours.
Korthikanti et al. 2023, figure 1: 18 bytes for each of the 12 h^2 parameters of a block, on the
mean GPU; activations of the first stage that are kept for the backward pass, without what exists
while one block is recomputed. Megatron-LM's estimator: see
`bench.megatron_memory`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.megatron_memory import estimates
from bench.published_times import gpt, one_node
from bench.records import json_of, reference
from formulations.costs.memory import MemoryParts, layer_memory
from formulations.instance import Cluster, Instance, Limits, SearchSpace, Workload
from formulations.instance.catalogue import gpu_catalogue
from formulations.instance.documents import resource
from formulations.instance.sizes import TransformerSizes
from formulations.instance.transformer import build_workload
from formulations.instance.workload import Recompute
from formulations.plan import Configuration, Degrees, Recomputed
from formulations.schedules import held
from formulations.units import GIB

#: Names of the file's models in the catalogue.
B200_MODELS = {"llama3_70b": "llama3-70b", "deepseekv2": "deepseek-v2"}


@dataclass(frozen=True)
class MemoryRow:
    """One published figure and ours, bytes; `other_bytes`: what another model says of it."""

    source: str
    case: str
    part: str
    published_bytes: float
    ours_bytes: float
    other_bytes: float | None = None

    @property
    def error(self) -> float:
        """Ours over the published figure, less 1."""
        return self.ours_bytes / self.published_bytes - 1

    @property
    def other_error(self) -> float | None:
        """The same of the other model."""
        return None if self.other_bytes is None else self.other_bytes / self.published_bytes - 1


def _instance(workload: Workload, *, split: bool) -> Instance:
    """The workload on one node; its GPU does not matter for what is used."""
    group = one_node(gpu_catalogue()["B200"], 8)
    return Instance(
        name="memory",
        source="bench",
        workload=workload,
        cluster=Cluster(groups=(group,)),
        search=SearchSpace(sequence_parallel=split),
        limits=Limits(framework_reserve_bytes=0),
    )


def _devices(
    workload: Workload,
    *,
    split: bool,
    micro_batches: int,
    recompute: Recompute = "none",
    chunks: int = 1,
    tp: int,
    cp: int = 1,
    **degrees: int,
) -> list[MemoryParts]:
    """Memory of each device of a replica, without workspace; equally many blocks on every chunk."""
    config = Configuration(
        schedule="interleaved" if chunks > 1 else "1f1b",
        recompute=(recompute,),
        vpp=chunks,
        nodes_used=(1,),
        degrees=(Degrees(tp=tp, cp=cp),),
        **degrees,  # type: ignore[arg-type]
    )
    (memory,) = layer_memory(_instance(workload, split=split), config)
    kept = [one._replace(workspace_bytes=0 * one.workspace_bytes) for one in memory.kept]
    without = replace(memory, kept=tuple(kept))
    is_block = np.array([layer.is_block for layer in workload.layers])
    every = Recomputed(way=recompute, blocks=len(workload.layers))
    blocks = len(workload.layers) - 2
    cuts = [1 + blocks * k // config.num_stages for k in range(config.num_stages + 1)]
    cuts[0], cuts[-1] = 0, len(workload.layers)
    found = []
    for device in range(config.pp):
        layers = [(cuts[s], cuts[s + 1]) for s in config.stages_of(device)]
        most = held(config.schedule, config.pp, device, micro_batches, chunks)
        found.append(without.parts(layers, most, is_block, [every] * chunks))
    return found


def measured_on_b200(folder: Path) -> Iterator[MemoryRow]:
    """Llama-3-70B and DeepSeek-V2, cut to some layers."""
    found = json_of(folder / "simumax" / "b200_steps.json")
    known: Any = resource("workloads.yaml").value
    for row in found["rows"]:
        sizes = TransformerSizes.model_validate(known[B200_MODELS[row["model"]]]["sizes"])
        workload = build_workload(
            sizes.but(layers=row["num_layers"]),
            name=row["model"],
            source="bench",
            sequence_length=row["sequence_length"],
            global_batch=row["micro_batches"] * row["dp"],
            flash_attention=True,
        )
        names = ("tp", "dp", "pp", "cp", "ep")
        degrees = {name: row[name] for name in names} | {"micro_batch": 1, "zero": 1}
        devices = _devices(
            workload, split=row["tp"] > 1, micro_batches=row["micro_batches"], **degrees
        )
        yield MemoryRow(
            "B200, measured",
            row["case"],
            "all",
            row["measured_allocated_gib"] * GIB,
            max(map(sum, devices)),
            row["simumax_allocated_gib"] * GIB,
        )


def recompute_2022(folder: Path) -> Iterator[MemoryRow]:
    """Parameters with optimizer of the mean stage, activations of the first."""
    found = json_of(folder / "megatron" / "recompute_2022.json")
    modes: dict[str, tuple[bool, Recompute]] = {
        "none": (False, "none"),
        "seqsel": (True, "selective"),
    }
    for name, case in found["cases"].items():
        run: dict[str, Any] = case["config"]
        sizes = (run["hidden"], run["heads"], run["layers"])
        workload = gpt(*sizes, found["sequence_length"], found["vocabulary"], "bf16")
        degrees = {"tp": run["tp"], "dp": 1, "pp": run["pp"], "zero": 0}
        for mode, published in case["memory_gib"].items():
            split, recompute = modes[mode]
            devices = _devices(
                workload,
                split=split,
                recompute=recompute,
                micro_batch=run["micro_batch"],
                micro_batches=run["global_batch"] // run["micro_batch"],
                chunks=run["interleave"],
                **degrees,
            )
            static = sum(
                one.weights_bytes + one.gradients_bytes + one.optimizer_bytes for one in devices
            ) / len(devices)
            for part, figure, ours in zip(
                ("parameters and optimizer", "activations"),
                published,
                (static, devices[0].activations_bytes),
                strict=True,
            ):
                source = "Korthikanti et al. 2023"
                yield MemoryRow(source, f"{name} {mode}", part, figure * GIB, ours)


def megatron_estimates(folder: Path) -> Iterator[MemoryRow]:
    """Megatron-LM's estimator, reproduced."""
    for case, part, published, ours in estimates(folder / "megatron" / "memory.json"):
        yield MemoryRow("Megatron-LM's estimator", case, part, published, ours)


def rows(folder: Path) -> list[MemoryRow]:
    """All figures."""
    return [
        *measured_on_b200(folder),
        *recompute_2022(folder),
        *megatron_estimates(folder),
    ]


def main() -> None:
    """Prints every figure, ours, and the errors."""
    folder = reference("simumax/b200_steps.json", "megatron/*.json")
    for row in rows(folder):
        other = "" if row.other_error is None else f"   SimuMax {row.other_error:+.2%}"
        figures = f"{row.published_bytes / GIB:9.3f} {row.ours_bytes / GIB:9.3f} GiB"
        print(f"{row.source:24} {row.case:50} {row.part:25} {figures} {row.error:+.2%}{other}")
