"""What context parallelism costs: the cp GPUs of a group share every sequence.

Each has s / cp of its tokens, of which causal attention gives all the same work: every GPU takes a
piece from both ends (Megatron-LM, `--context-parallel-size`). So FLOPs and activations of a
micro-batch are those of b / cp sequences; fused attention leaves out the masked half of the scores,
whatever cp. A group lies inside a node, or fills joined ones, and holds the parameters cp times.

Two ways to attend to all tokens, of which a layer uses the one that sends less unless the instance
says which:
ring        keys and values go round the group, once in the forward pass; in the backward pass
            again, and with them their gradients (Liu et al. 2023, arXiv 2310.01889). Every turn is
            a kernel of its own, whose result, or gradient of the queries, is added to a sum in 32
            bit: 10 bytes per element through memory (Transformer Engine, context_parallel.py)
all-to-all  queries, keys and values go from pieces of sequences to whole sequences of some of the
            heads, and the weighted sums back, one exchange after the other; backward their
            gradients (Jacobs et al. 2023, arXiv 2309.14509, section 3). tp cp divides the key and
            value heads.
None of it is hidden.
"""

from formulations.costs.collectives import ring_latency_s, ring_share
from formulations.instance import Instance, Layer, NodeGroup
from formulations.instance.search import ContextMethod
from formulations.plan import Configuration, Degrees

SUM_BYTES = 2 + 2 * 4  # per element and turn: read the result, read and write the sum


def method_of(layer: Layer, tp: int, cp: int, kv_heads: int) -> ContextMethod:
    """The way that sends fewer bytes in both passes together."""
    ring = 3 * layer.key_value_bytes
    exchanged = 2 * (layer.key_value_bytes + layer.query_bytes)
    whole_heads = kv_heads % (tp * cp) == 0
    return "all_to_all" if whole_heads and exchanged < cp * ring else "ring"


def context_methods(instance: Instance, config: Configuration) -> list[ContextMethod]:
    """The ways that the layers of a config with attention use; none where no GPUs share sequences.

    They are those of its widest tensor groups.
    """
    tp, cp, workload = config.widest_tp, config.cp, instance.workload
    told, layers = instance.search.context_method, workload.layers if cp > 1 else ()
    attending = (layer for layer in layers if layer.key_value_bytes)
    return [told or method_of(layer, tp, cp, workload.kv_heads) for layer in attending]


def context_s(
    instance: Instance, layer: Layer, group: NodeGroup, degrees: Degrees, b: int
) -> tuple[float, float]:
    """Seconds of traffic and sums in the forward and in the backward pass of b sequences."""
    if degrees.cp == 1 or not layer.key_value_bytes:
        return 0.0, 0.0
    tp, cp, kv_heads = degrees.tp, degrees.cp, instance.workload.kv_heads
    link = group.copies_link(tp, group.gpus_per_node // cp)
    method = instance.search.context_method or method_of(layer, tp, cp, kv_heads)

    def turns_s(size_bytes: float, starts: int) -> float:
        seconds = ring_share(1, cp) * size_bytes / link.bandwidth_bytes_per_s
        return seconds + starts * ring_latency_s(1, cp, link.latency_s)

    if method == "all_to_all":
        one_s = turns_s(b * (layer.key_value_bytes + layer.query_bytes) / (tp * cp), 2)
        return one_s, one_s
    # What a ring's turns take beside one kernel: their sums, and to get up to speed again
    gpu, results_bytes = group.gpu, b * layer.query_bytes / 2 / (tp * cp)
    sums_s = cp * SUM_BYTES / 2 * results_bytes / gpu.memory_bandwidth_bytes_per_s
    maximum = gpu.attention_maximum or gpu.efficiency_maximum
    sums_s += (cp - 1) * (gpu.attention_half_flops / (gpu.half_peak * maximum))
    one_s = turns_s(b * layer.key_value_bytes / tp, 1)
    return one_s + sums_s, 2 * one_s + sums_s
