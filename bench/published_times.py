"""Published layer and step times, as observations that the compute model can be held against.

Every observation predicts its own time from a function that gives the seconds of a layer's passes;
`bench.calibrate` chooses that function's parameters, `tests/bench` judges the catalogue's.
Precisions: Megatron-LM and FASOP train in 16 bit. Sailor's profiles hold 4 bytes per element
(its llm_info.json); they are taken as fp32 on the V100, where the largest blocks run at 85 % of
the fp32 peak and so cannot be 16 bit, and as tf32 on A100 (above the fp32 peak) and RTX 3090.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from formulations.costs.collectives import ALL_REDUCE, ring_s, ring_share
from formulations.instance import GpuType, Layer, Link, NodeGroup, Workload
from formulations.instance.sizes import TransformerSizes
from formulations.instance.transformer import build_workload
from formulations.instance.workload import Precision

#: Seconds of the passes of (layer, tp, micro-batch) without tensor-parallel traffic.
PassTimes = Callable[[Layer, int, int], tuple[float, float]]

GRADIENT_BYTES = 2  # Megatron-LM in fp16 without fp32 accumulation, as in vTrain's runs
OPTIMIZER_BYTES = GRADIENT_BYTES + 2 * 12 + 2  # read gradient and state, write state and parameter


class Prediction(Protocol):
    """Something whose time follows from times of layers."""

    def predicted_s(self, passes_s: PassTimes) -> float:
        """Seconds under a compute model."""
        ...


@dataclass(frozen=True)
class Observation:
    """One published time and what predicts it."""

    source: str
    label: str
    gpu: str  #: name in the GPU catalogue
    precision: Precision
    published_s: float
    prediction: Prediction
    on_device: bool = False  #: without what the host takes to launch kernels


@dataclass(frozen=True)
class LayerTime:
    """Forward or backward pass of one layer on one GPU of a group."""

    layer: Layer
    tp: int
    micro_batch: int
    backward: bool
    message_bytes: int  #: of one tensor-parallel all-reduce
    link: Link

    def predicted_s(self, passes_s: PassTimes) -> float:
        """Compute plus all-reduces."""
        layer = self.layer
        reduces = layer.backward_all_reduces if self.backward else layer.forward_all_reduces
        traffic_s = reduces * ring_s(ALL_REDUCE, self.tp, self.message_bytes, self.link)
        return passes_s(layer, self.tp, self.micro_batch)[self.backward] + traffic_s


def _bare_layer(sharded_parameters: int = 0, **flops: int) -> Layer:
    """A layer of which nothing counts but these figures."""
    return Layer(
        kind="kernel",
        is_block=True,
        sharded_parameters=sharded_parameters,
        replicated_parameters=0,
        replicated_activation_bytes=0,
        sharded_activation_bytes=0,
        input_bytes=0,
        **flops,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class KernelTime:
    """One product, or fused causal attention, of which half the scores are worked out."""

    flops: int  #: forward, masked scores included
    attention: bool
    backward: bool  #: twice the FLOPs

    def predicted_s(self, passes_s: PassTimes) -> float:
        """Time of a layer that has nothing else."""
        layer = _bare_layer(
            forward_flops=self.flops,
            unweighted_flops=self.flops * self.attention,
            attention_flops=self.flops // 2 * self.attention,
            kernels=0 if self.attention else 1,
        )
        return passes_s(layer, 1, 1)[self.backward]


@dataclass(frozen=True)
class GroupedTime:
    """One product of all experts of a GPU with their tokens, or both that its gradients take."""

    parameters: int  #: of all experts
    flops: int  #: forward
    backward: bool  #: twice the FLOPs

    def predicted_s(self, passes_s: PassTimes) -> float:
        """Time of a layer that has nothing else."""
        layer = _bare_layer(
            sharded_parameters=self.parameters,
            forward_flops=self.flops,
            expert_flops=self.flops,
            expert_parameters=self.parameters,
            kernels=0,
        )
        return passes_s(layer, 1, 1)[self.backward]


@dataclass(frozen=True)
class StepTime:
    """One 1F1B step, blocks split evenly, in closed form.

    T = m max_k t_k + (sum_k t_k - max_k t_k) / v + fill transfers + gradient sync + optimizer,
    v chunks per stage (Narayanan et al. 2021, section 2.2). Left out: the all-reduce of tied
    embeddings, and any overlap of the gradient sync with computation.
    """

    workload: Workload
    tp: int
    dp: int
    pp: int
    micro_batch: int
    num_micro_batches: int  #: per replica
    chunks: int
    gpus_per_node: int
    intra_node: Link
    inter_node: Link  #: of one node
    memory_bandwidth_bytes_per_s: float
    recomputed: bool = True  #: whether blocks repeat their forward pass

    def predicted_s(self, passes_s: PassTimes) -> float:
        """Seconds of one optimizer step."""
        stages = self._stage_s(passes_s)
        slowest_s = max(stages)
        steady_s = self.num_micro_batches * slowest_s + (sum(stages) - slowest_s) / self.chunks
        update_s = self._stage_parameters() * OPTIMIZER_BYTES / self.memory_bandwidth_bytes_per_s
        return steady_s + self._fill_s() + self._sync_s() + update_s

    def _stage_s(self, passes_s: PassTimes) -> list[float]:
        size_bytes = self.micro_batch * self.workload.boundary_bytes
        reduce_s = ring_s(ALL_REDUCE, self.tp, size_bytes, self.intra_node)
        embedding, block, head = (run.layer for run in self.workload.layer_runs)

        def both_ways_s(layer: Layer) -> float:
            forward_s, backward_s = passes_s(layer, self.tp, self.micro_batch)
            again = layer.is_block and self.recomputed
            reduces = (1 + again) * layer.forward_all_reduces + layer.backward_all_reduces
            compute_s = (1 + again) * forward_s + backward_s
            return compute_s + reduces * reduce_s

        stages = [both_ways_s(block) * self._blocks_per_stage] * self.pp
        stages[0] += both_ways_s(embedding)
        stages[-1] += both_ways_s(head)
        return stages

    @property
    def _blocks_per_stage(self) -> int:
        return self.workload.layer_runs[1].count // self.pp

    def _stage_parameters(self) -> int:
        embedding, block, _ = (run.layer for run in self.workload.layer_runs)
        blocks = block.parameters_per_gpu(self.tp, self.pp) * self._blocks_per_stage
        return blocks + embedding.parameters_per_gpu(self.tp, self.pp)

    def _fill_s(self) -> float:
        """Transfers of the first micro-batch down and back; all GPUs of a node send at once."""
        link, shares = self.inter_node, self.gpus_per_node
        if self.tp * self.dp * self.pp <= self.gpus_per_node:
            link, shares = self.intra_node, 1
        size_bytes = self.micro_batch * self.workload.boundary_bytes / self.tp
        return 2 * (self.pp - 1) * size_bytes * shares / link.bandwidth_bytes_per_s

    def _sync_s(self) -> float:
        """All-reduce of the first stage's gradients; rings that leave a node share its link."""
        inside = self.tp * self.dp <= self.gpus_per_node
        link, rings = (self.intra_node, 1) if inside else (self.inter_node, self.tp)
        size_bytes = GRADIENT_BYTES * self._stage_parameters()
        moved_bytes = ring_share(ALL_REDUCE, self.dp) * size_bytes
        return moved_bytes * rings / link.bandwidth_bytes_per_s


def one_node(gpu: GpuType, gpus: int) -> NodeGroup:
    """So many of these GPUs, linked as they are inside nodes."""
    return NodeGroup(
        name="node",
        gpu=gpu,
        gpus_per_node=gpus,
        nodes=1,
        price_usd_per_hour=0,
        intra_node=gpu.link,
        inter_node=gpu.link,
    )


@cache
def gpt(
    hidden: int,
    heads: int,
    blocks: int,
    sequence: int,
    vocabulary: int,
    precision: Precision = "fp16",
) -> Workload:
    """A GPT of the given sizes; the global batch is not used here."""
    sizes = TransformerSizes(
        hidden_size=hidden,
        layers=blocks,
        heads=heads,
        vocabulary_size=vocabulary,
        learned_positions=sequence,
    )
    return build_workload(
        sizes,
        name="gpt",
        source="bench",
        sequence_length=sequence,
        global_batch=1,
        precision=precision,
    )
