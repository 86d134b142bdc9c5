"""The feed-forward network of a transformer block, as parts: `parts` says what is counted."""

from formulations.instance.parts import Part, dropout_mask, memory_kernels
from formulations.instance.sizes import MoeSizes, TransformerSizes


def dense_ffn(sizes: TransformerSizes, s: int) -> Part:
    """The feed-forward network of a dense block."""
    h, width = sizes.hidden_size, sizes.dense_ffn_size
    first = 2 if sizes.gated_ffn else 1
    biases = Part(
        sharded_parameters=first * width * sizes.ffn_biases,
        replicated_parameters=h * sizes.ffn_biases,
    )
    traffic = Part(replicated_bytes=2 * s * h, forward_all_reduces=1, backward_all_reduces=1)
    products = _ffn_products(sizes, width, s) + memory_kernels(1)
    return products + biases + traffic + dropout_mask(sizes, s)


def moe_ffn(sizes: TransformerSizes, moe: MoeSizes, s: int) -> Part:
    """Router, routed experts (top-k per token) and shared experts; the shared have no biases.

    Tensor groups exchange tokens for routed experts, and once more for shared ones, whose products
    gather and reduce by themselves (Megatron-LM, moe/shared_experts.py). Kept besides the experts'
    inner tensors: the router's input and fp32 scores, and the copies of tokens in expert order,
    before and after the experts.
    Kernels: the router's product, softmax, top-k; probabilities and map of the chosen experts, each
    scattered over zeros, and the tokens per expert (Megatron-LM, moe_utils.py); permute and
    unpermute; grouped products, as many as one expert's; the residual add; and, with shared
    experts, theirs and one more add.
    """
    h, k = sizes.hidden_size, moe.experts_per_token
    inner = 3 if sizes.gated_ffn else 2
    expert = inner * h * moe.ffn_size
    split_biases = (inner - 1) * moe.ffn_size * moe.biases
    routing = Part(
        replicated_parameters=(h + moe.biases * (1 + h)) * moe.experts,
        sharded_parameters=(expert + split_biases) * moe.experts,
        flops=2 * s * (h * moe.experts + k * expert),
        expert_parameters=(expert + split_biases) * moe.experts,
        expert_flops=2 * s * k * expert,
        routed_bytes=2 * k * s * h,
        kernels=3 + 5 + 2 + 3 + 1,
        memory_kernels=2 + 5 + 2 + 1 + 1,
        forward_all_reduces=1,
        backward_all_reduces=1,
        expert_all_reduces=1,
        replicated_bytes=2 * s * h + 4 * s * moe.experts + k * (2 + 2) * s * h,
        sharded_bytes=k * inner * 2 * s * moe.ffn_size,
        unsplit_bytes=k * (2 + 2) * s * h,
    )
    if moe.shared_experts:
        routing += _ffn_products(sizes, moe.shared_experts * moe.ffn_size, s) + memory_kernels(1)
        routing += Part(forward_all_reduces=1, backward_all_reduces=1)
    return routing + dropout_mask(sizes, s)


def _ffn_products(sizes: TransformerSizes, width: int, s: int) -> Part:
    """The matrix products with the activation between; every inner tensor is kept."""
    tensors = 3 if sizes.gated_ffn else 2
    return Part(
        sharded_parameters=tensors * sizes.hidden_size * width,
        flops=2 * s * tensors * sizes.hidden_size * width,
        kernels=3,
        memory_kernels=1,
        sharded_bytes=2 * s * tensors * width,
    )
