"""What context parallelism costs: the cp GPUs of a group share every sequence.

Each has s / cp of its tokens, of which causal attention gives all the same work: every GPU takes a
piece from both ends (Megatron-LM, `--context-parallel-size`). So FLOPs and activations of a
micro-batch are those of b / cp sequences; fused attention leaves out the masked half of the scores,
whatever cp. A group lies inside a node, and holds the parameters cp times.

Two ways to attend to all tokens, of which a layer uses the one that sends less:
ring        keys and values go round the group, once in the forward pass; in the backward pass
            again, and with them their gradients (Liu et al. 2023, arXiv 2310.01889)
all-to-all  queries, keys and values go from pieces of sequences to whole sequences of some of the
            heads, and the weighted sums back; backward their gradients (Jacobs et al. 2023, arXiv
            2309.14509). tp cp divides the key and value heads.
None of it is hidden.
"""

from typing import Literal

from formulations.costs.collectives import ring_latency_s, ring_share
from formulations.instance import Layer
from formulations.instance.cluster import Link

Method = Literal["ring", "all-to-all"]


def method_of(layer: Layer, tp: int, cp: int, kv_heads: int) -> Method:
    """The way that sends fewer bytes in both passes together."""
    ring = 3 * layer.key_value_bytes
    exchanged = 2 * (layer.key_value_bytes + layer.query_bytes)
    whole_heads = kv_heads % (tp * cp) == 0
    return "all-to-all" if whole_heads and exchanged < cp * ring else "ring"


def traffic_s(
    layer: Layer, tp: int, cp: int, b: int, kv_heads: int, link: Link
) -> tuple[float, float]:
    """Seconds in the forward and in the backward pass of b sequences, over the group's links."""
    if cp == 1 or not layer.key_value_bytes:
        return 0.0, 0.0
    if method_of(layer, tp, cp, kv_heads) == "ring":
        one_s = _s(b * layer.key_value_bytes / tp, cp, link)
        return one_s, 2 * one_s
    one_s = _s(b * (layer.key_value_bytes + layer.query_bytes) / (tp * cp), cp, link)
    return one_s, one_s


def _s(size_bytes: float, cp: int, link: Link) -> float:
    seconds = ring_share(1, cp) * size_bytes / link.bandwidth_bytes_per_s
    return seconds + ring_latency_s(1, cp, link.latency_s)
