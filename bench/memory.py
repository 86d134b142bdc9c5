"""Memory of our model beside published figures: measured, of another model, or of an estimator.

Measured peaks of the runs of `evidence`, of the fullest rank: allocated bytes (SimuMax, whose own
prediction stands beside ours), bytes that PyTorch's allocator reserved (torchtitan), or all that
the driver shows (FlagPerf), with context and communicators: there ours has the framework's reserve.
Korthikanti et al. 2023, figure 1: 18 bytes for each of the 12 h^2 parameters of a block, on the
mean GPU; activations of the first stage that are kept for the backward pass, without what exists
while one block is recomputed.
Megatron-LM's estimator (megatron/training/theoretical_memory_usage.py), reproduced: its rules with
the parameters and activations of our layers. They are not ours: first stage alone and equal stages,
parameters divided without rounding, biases and positions left out, a block of any kind keeps s b h
(18 + 4 f / h) with sequence parallelism and selective recomputation, and s b h (10 + 24 / t), 5 %
more for the rest, without either.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from bench.command import command
from bench.evidence import documents, read
from bench.published_times import gpt, one_node
from bench.records import reference
from bench.runs import Row
from formulations.costs.memory import MemoryParts, layer_memory
from formulations.costs.plan_costs import plan_costs
from formulations.instance import Cluster, Instance, Limits, SearchSpace, Workload
from formulations.instance.machines import gpu_catalogue
from formulations.instance.sizes import MoeSizes, TransformerSizes
from formulations.instance.transformer import build_workload
from formulations.instance.workload import Layer, Recompute
from formulations.plan import Configuration, Degrees, Recomputed
from formulations.schedules.registry import held
from formulations.units import GIB

BYTES_PER_PARAMETER = 18  # 2 + 4 of gradients + 12 of optimizer
SPLIT_BYTES = 12  # of these, what the distributed optimizer splits
REST = 1.05  # "buffer for optimizer and miscellaneous temporaries"


@dataclass(frozen=True)
class Estimator:
    """One case: Megatron's arguments by their names there."""

    inputs: Mapping[str, Any]

    @property
    def sizes(self) -> TransformerSizes:
        """Ours of the model, without what the estimator leaves out."""
        given = self.inputs
        experts = given["num_experts"]
        moe = experts and MoeSizes(
            experts=experts,
            experts_per_token=given["moe_router_topk"],
            ffn_size=given["moe_ffn_hidden_size"],
        )
        return TransformerSizes(
            hidden_size=given["hidden_size"],
            layers=given["num_layers"],
            heads=given["num_attention_heads"],
            kv_heads=given["num_query_groups"],
            ffn_size=given["ffn_hidden_size"],
            gated_ffn=given["swiglu"],
            moe=moe or None,
            vocabulary_size=given["padded_vocab_size"],
            tied_embeddings=not given["untie_embeddings_and_output_weights"],
            rotary_positions=given["swiglu"],
            norm="rmsnorm" if given["normalization"] == "RMSNorm" else "layernorm",
            qkv_biases=False,
            output_bias=False,
            ffn_biases=False,
            dropout=True,
        )

    @property
    def layers(self) -> tuple[Layer, Layer, Layer]:
        """Embedding, block, head."""
        workload = build_workload(
            self.sizes,
            name="estimate",
            source="bench",
            sequence_length=self.inputs["seq_length"],
            global_batch=1,
        )
        embedding, block, head = (run.layer for run in workload.layer_runs)
        return embedding, block, head

    @property
    def degrees(self) -> tuple[int, int, int, int]:
        """tp, dp, pp, micro-batch size."""
        names = ("tensor_model", "data", "pipeline_model")
        tp, dp, pp = (self.inputs[f"{name}_parallel_size"] for name in names)
        return tp, dp, pp, self.inputs["micro_batch_size"]

    def _number(self, name: str) -> int:
        return int(self.inputs[name] or 0)

    @property
    def expert_parameters(self) -> int:
        """Of a block, those of routed experts."""
        inner = 3 if self.inputs["swiglu"] else 2
        width = self._number("moe_ffn_hidden_size") * self._number("num_experts")
        return inner * self._number("hidden_size") * width

    def static_bytes(self) -> float:
        """Parameters, gradients and optimizer of the fullest GPU."""
        embedding, block, head = self.layers
        tp, dp, pp, _ = self.degrees
        blocks = self._number("num_layers")
        names = ("expert_tensor_parallel_size", "expert_model_parallel_size")
        ranks = self._number(names[0]) * self._number(names[1])
        experts = blocks * self.expert_parameters / ranks / pp
        split = blocks * (block.sharded_parameters - self.expert_parameters) / tp
        whole = blocks * block.replicated_parameters + head.replicated_parameters
        matrices = 1 if self.sizes.tied_embeddings or pp > 1 else 2
        others = (split + whole) / pp + matrices * embedding.parameters / tp
        expert_dp = self._number("world_size") / (ranks * pp)
        return others * self._each(dp) + experts * self._each(expert_dp)

    def _each(self, replicas: float) -> float:
        """Bytes per parameter."""
        shards = replicas if self.inputs["use_distributed_optimizer"] else 1
        return BYTES_PER_PARAMETER - SPLIT_BYTES + SPLIT_BYTES / shards

    def _first_stage(self, block_bytes: float) -> float:
        """Blocks of so many bytes and embedding, for the micro-batches in flight."""
        embedding, _, _ = self.layers
        _, _, pp, b = self.degrees
        chunks = self._number("virtual_pipeline_model_parallel_size")
        in_flight = min(1.0, self._number("num_microbatches") / pp)
        if chunks:
            in_flight = 1 + (pp - 1) / (pp * chunks)
        ends_bytes = b * pp * (embedding.input_bytes + embedding.activation_bytes(1))
        return (block_bytes * self._number("num_layers") + ends_bytes) * in_flight

    def split_bytes(self) -> float:
        """Activations with sequence parallelism and selective recomputation."""
        tp, _, pp, b = self.degrees
        _, _, head = self.layers
        width = 18 * self._number("hidden_size") + 4 * self._number("ffn_hidden_size")
        block_bytes = b * self._number("seq_length") * width
        return (self._first_stage(block_bytes) + b * head.activation_bytes(1) * (pp == 1)) / tp

    def whole_bytes(self) -> float:
        """Activations without sequence parallelism, scores left out."""
        tp, _, pp, b = self.degrees
        h, tokens = self._number("hidden_size"), b * self._number("seq_length")
        head_bytes = 2 * tokens * (self._number("padded_vocab_size") / tp + h) * (pp == 1)
        return (self._first_stage(tokens * h * (10 + 24 / tp)) + head_bytes) * REST


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
    """Memory of each device of a replica, without what exists for one layer at a time.

    Equally many blocks are on every chunk.
    """
    config = Configuration(
        schedule="interleaved" if chunks > 1 else "1f1b",
        recompute=(recompute,),
        vpp=chunks,
        nodes_used=(1,),
        degrees=(Degrees(tp=tp, cp=cp),),
        **degrees,  # type: ignore[arg-type]
    )
    (memory,) = layer_memory(_instance(workload, split=split), config)
    kept = [way._replace(workspace_bytes=0 * way.workspace_bytes) for way in memory.kept]
    memory = replace(memory, kept=tuple(kept))
    is_block = np.array([layer.is_block for layer in workload.layers])
    every = Recomputed(way=recompute, blocks=len(workload.layers))
    blocks = len(workload.layers) - 2
    cuts = [1 + blocks * k // config.num_stages for k in range(config.num_stages + 1)]
    cuts[0], cuts[-1] = 0, len(workload.layers)
    found = []
    for device in range(config.pp):
        layers = [(cuts[s], cuts[s + 1]) for s in config.stages_of(device)]
        most = held(config.schedule, config.pp, device, micro_batches, chunks)
        found.append(memory.parts(layers, most, is_block, [every] * chunks))
    return found


def measured(folder: Path) -> Iterator[MemoryRow]:
    """Measured peaks of runs that have a plan of ours, on the fullest GPU."""
    for case in read(folder).cases:
        if case.plan is None or case.measured_bytes is None:
            continue
        instance, plan = case.plan
        ours_bytes = float(plan_costs(instance, plan).memory_bytes.max())
        if case.counted != "of the device":  # without context and communicators
            ours_bytes -= instance.limits.framework_reserve_bytes
        source = f"{case.source}, {case.counted}"
        figures = case.measured_bytes, ours_bytes, case.other_bytes
        yield MemoryRow(source, f"{case.model} {case.label}", "all", *figures)


def recompute_2022(found: Row) -> Iterator[MemoryRow]:
    """Parameters with optimizer of the mean stage, activations of the first."""
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


def megatron_estimates(found: Row) -> Iterator[MemoryRow]:
    """Megatron-LM's estimator, reproduced."""
    for number, case in enumerate(found["cases"]):
        estimator, printed = Estimator(case["inputs"]), case["outputs"]
        figures = {
            "weights and optimizer": ("weight_and_optimizer_bytes", estimator.static_bytes()),
            "activations, sequence split": (
                "activation_bytes_sp_selective",
                estimator.split_bytes(),
            ),
            "activations, not split": ("activation_bytes_without_sp", estimator.whole_bytes()),
        }
        for part, (name, ours) in figures.items():
            case_name = f"{number} {case['model']}"
            yield MemoryRow("Megatron-LM's estimator", case_name, part, printed[name], ours)


def estimated(folder: Path) -> Iterator[MemoryRow]:
    """Figures of papers and estimators, in whatever file they are."""
    for _, document in documents(folder):
        cases = document.get("cases") if isinstance(document, dict) else None
        if isinstance(cases, dict) and any("memory_gib" in case for case in cases.values()):
            yield from recompute_2022(document)
        elif isinstance(cases, list) and any("inputs" in case for case in cases):
            yield from megatron_estimates(document)


def main() -> None:
    """Prints every figure, ours, the errors, and these by source."""
    command("memory").parse_args()
    folder, by_source = reference(), dict[str, list[float]]()
    for row in (*measured(folder), *estimated(folder)):
        other = "" if row.other_error is None else f"   published {row.other_error:+.2%}"
        figures = f"{row.published_bytes / GIB:9.3f} {row.ours_bytes / GIB:9.3f} GiB"
        print(f"{row.source:27} {row.case:56} {row.part:27} {figures} {row.error:+.2%}{other}")
        by_source.setdefault(row.source, []).append(row.error)
    for source, errors in by_source.items():
        mean = fmean(map(abs, errors))
        ends = f"lowest {min(errors):+.1%}, highest {max(errors):+.1%}"
        print(f"{source:27} {len(errors):3} figures: mean |error| {mean:.1%}, {ends}")
    if not by_source:
        print(f"{folder}: no measured or published memory")
