"""What the routed experts of a mixture-of-experts block cost: products, traffic, gradients.

Every expert is split over etp GPUs in a row: the tp ranks of a tensor group, or 1, where each of
these has experts for its own part of the sequence (Megatron-LM, `expert_tensor_parallel_size`; core
0.16, parallel_state.py: etp ep divides tp cp dp). The tp dp cp / etp GPUs with the same share of
the experts' tensors are a stage's ranks. `ep` of them in a row are an expert-parallel group: each
holds 1/ep of the experts, and 1/etp of each of these.

Products. Grouped by expert, they reach `grouped_maximum` of the peak. Beside them all resident
weights are read in the forward pass and again for the gradients of the tokens, and gradients of
all of them are read and written once more, at `grouped_bandwidth` of the memory bandwidth, whoever
was routed to. So with F FLOPs and P parameters on a GPU, w bytes per weight, g per gradient:
    forward = F / (peak maximum) + w P / bandwidth
    backward = 2 F / (peak maximum) + (w + 2 g) P / bandwidth
which is an efficiency that rises with the tokens per expert, F / P. F is the same for any etp.

Permutations. Tokens are copied into the order of the experts and summed up again; with ep > 1 they
are sorted once more after each all-to-all. That reads and writes 2 top_k + 2 or 6 top_k + 2 times
s h elements in each pass, at `permute_bandwidth` of the memory bandwidth; etp / tp of them on each
GPU.

Traffic. Tokens visit the experts and come back: two all-to-alls forward, two backward, each of
b s h top_k elements per tensor-parallel rank (a share of them with sequence parallelism), of
which (ep - 1) / ep leave the GPU. What stays in a node and what leaves it move at the same time,
so the slower one counts. A node's link is shared by all its GPUs, which send at the same time.
With ep > 1 and etp > 1 the tp ranks gather the copies of the tokens, and reduce what comes out of
the experts: top_k times the traffic of other blocks (Megatron-LM, core/transformer/moe/
token_dispatcher.py, MoEAlltoAllTokenDispatcher). With etp 1 they gather nothing, but for shared
experts.

Places. Ranks of a group may lie on several nodes. With q_j ranks on a node of node group j, nodes
and groups begin at multiples of `together` = gcd(ep, all q_j used): so many ranks of a group share
a node at least, and min(ep, q_j) at most: the most that may leave a node counts, and the most that
may stay in one. Groups that always lie in one node (together = ep) cost what that node costs.
Others wait for one another: all GPUs go at the pace of the slowest node group that the plan uses.

Gradients of experts are summed over the tp dp cp / (etp ep) ranks with the same experts. Their
rings cross the nodes that a stage lies on; they cost the same wherever a stage lies: what the
slowest node group of the plan takes, with as many nodes and rings as there may be.

Assumed: load is balanced, so every expert gets as many tokens; nothing of this traffic is hidden.
"""

from dataclasses import dataclass
from math import gcd

from formulations.costs.collectives import ring_latency_s
from formulations.instance import GpuType, Instance, Layer
from formulations.instance.machines import Link
from formulations.instance.workload import FORMATS, Precision
from formulations.plan import Configuration

ALL_TO_ALLS = 2  #: in each pass: to the experts and back
#: Bandwidth of an all-to-all over that of an all-gather: 0.597 and 0.673 of the nominal one on HGX
#: B200 (SimuMax v1.2, system configurations).
ALL_TO_ALL_RATE = 0.597 / 0.673


@dataclass(frozen=True)
class Members:
    """An expert-parallel group of `ep` ranks, of which `together` surely share a node.

    node_groups: those used, where groups may lie on several nodes. etp: as in `Configuration`.
    """

    ep: int = 1
    together: int = 1
    node_groups: tuple[int, ...] = ()
    etp: int | None = None

    @property
    def num_nodes(self) -> int:
        """Nodes of a group at most."""
        return self.ep // self.together


#: Without expert parallelism.
ALONE = Members()


def members_of(instance: Instance, config: Configuration) -> Members:
    """The expert-parallel groups of a configuration."""
    if not config.has_expert_grid:
        return ALONE
    used = config.groups_used
    together = gcd(config.ep, *(ranks_per_node(instance, config, j) for j in used))
    return Members(config.ep, together, tuple(used) if together < config.ep else (), config.etp)


def ranks_per_node(instance: Instance, config: Configuration, j: int) -> int:
    """GPUs of a node of group j with the same share of the tensors of experts."""
    width = config.degrees[j].width
    slots = instance.cluster.groups[j].gpus_per_node // width
    return slots * width // config.expert_lanes(j)


def grouped_s(
    layer: Layer,
    gpu: GpuType,
    precision: Precision,
    tp: int,
    b: float,
    members: Members = ALONE,
    gradient_bytes: int = 4,
) -> tuple[float, float]:
    """Both passes of b sequences through the routed experts on one GPU."""
    if not layer.expert_flops:
        return 0.0, 0.0
    peak = gpu.peak_flops[precision] if layer.is_block else gpu.peak_outside_blocks(precision)
    maximum = gpu.grouped_maximum or gpu.efficiency_maximum
    products_s = layer.expert_flops * b / (tp * peak * maximum)
    bandwidth = gpu.memory_bandwidth_bytes_per_s * gpu.grouped_bandwidth
    lanes = members.etp or tp
    weights_s = layer.experts_per_gpu(lanes, members.ep) / bandwidth
    width = FORMATS[precision].weight_bytes
    tokens = b * lanes / tp
    permuted_bytes = (6 if members.ep > 1 else 2) * layer.routed_bytes
    permuted_bytes += 2 * (layer.input_bytes if layer.routed_bytes else 0)
    order_s = permuted_bytes * tokens / gpu.memory_bandwidth_bytes_per_s / gpu.permute_bandwidth
    forward_s = products_s + width * weights_s + order_s
    return forward_s, 2 * products_s + (width + 2 * gradient_bytes) * weights_s + order_s


def all_to_all_s(
    members: Members, size_bytes: float, inside: Link, outside: Link, senders: float, ranks: int
) -> float:
    """One all-to-all of groups, of so many bytes per rank.

    senders: GPUs of a node over the share of its link's bandwidth that they get together. ranks: of
    a node, of which a group has as many as it may.
    """
    ep, together, in_node = members.ep, members.together, min(members.ep, ranks)
    size_bytes /= ALL_TO_ALL_RATE
    near_s = (in_node - 1) / ep * size_bytes / inside.bandwidth_bytes_per_s
    far_s = (ep - together) / ep * size_bytes * senders / outside.bandwidth_bytes_per_s
    start_s = ring_latency_s(1, in_node, inside.latency_s)
    return max(near_s, far_s) + start_s + ring_latency_s(1, ep // together, outside.latency_s)
