"""Megatron-LM's theoretical memory (megatron/training/theoretical_memory_usage.py), reproduced.

A comparison mode: its rules with the parameters and activations of our layers. They are not ours:
first stage alone and equal stages, parameters divided without rounding, biases and positions left
out, a block of any kind keeps s b h (18 + 4 f / h) with sequence parallelism and
selective recomputation, and s b h (10 + 24 / t), 5 % more for the rest, without either.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.records import json_of
from formulations.instance.sizes import MoeSizes, TransformerSizes
from formulations.instance.transformer import build_workload
from formulations.instance.workload import Layer

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


def estimates(path: Path) -> Iterator[tuple[str, str, float, float]]:
    """Case, figure, Megatron's bytes and ours."""
    for number, case in enumerate(json_of(path)["cases"]):
        estimator, printed = Estimator(case["inputs"]), case["outputs"]
        name = f"{number} {case['model']}"
        static = printed["weight_and_optimizer_bytes"]
        yield name, "weights and optimizer", static, estimator.static_bytes()
        split = printed["activation_bytes_sp_selective"]
        yield name, "activations, sequence split", split, estimator.split_bytes()
        whole = printed["activation_bytes_without_sp"]
        yield name, "activations, not split", whole, estimator.whole_bytes()
