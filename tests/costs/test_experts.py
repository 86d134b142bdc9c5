"""What routed experts cost, worked out by hand; measured kernels: tests/bench/test_calibration."""

import numpy as np
import pytest

from formulations.costs.collectives import ALL_REDUCE
from formulations.costs.experts import ALL_TO_ALL_RATE, Members, all_to_all_s, grouped_s
from formulations.costs.sharding import expert_rings_ns
from formulations.instance import Cluster, Instance, Layer, Link, Workload
from formulations.instance.catalogue import gpu_catalogue
from formulations.instance.sizes import MoeSizes
from formulations.instance.transformer import build_workload
from tests.architectures import MIXTRAL
from tests.oracles.agreement import check_costs
from tests.small_instances import nodes_of, plain_config

EXPERT = 3 * 4096 * 14336  # parameters


def mixtral(sequence_length: int = 4096) -> Workload:
    """Mixtral 8x7B with steps of 64 sequences."""
    return build_workload(
        MIXTRAL, name="m", source="test", sequence_length=sequence_length, global_batch=64
    )


def block(sequence_length: int = 4096) -> Layer:
    """One of its blocks."""
    return mixtral(sequence_length).layers[1]


def test_experts_of_a_block() -> None:
    """Eight experts of 176.2 million parameters; two work on each token, which moves both ways."""
    one = block(4096)
    assert one.expert_parameters == 8 * EXPERT
    assert one.expert_flops == 2 * 4096 * 2 * EXPERT
    assert one.routed_bytes == 2 * 2 * 4096 * 4096
    # keys and values of 8 heads of 128, in 16 bit; queries and sums of 32
    assert one.key_value_bytes == 2 * 4096 * 2 * 1024
    assert one.query_bytes == 2 * 4096 * 2 * 4096


def test_experts_are_divided_by_ep_and_etp() -> None:
    """Each GPU has 1/(ep etp) of the experts' parameters; all others are as without experts."""
    one = block()
    assert one.experts_per_gpu(etp=2, ep=4) == EXPERT
    assert one.parameters_per_gpu(2, 1) == one.dense_per_gpu(2, 1) + 4 * EXPERT
    assert one.experts_per_gpu(etp=1, ep=8) == EXPERT


def test_whole_experts_of_a_block() -> None:
    """Each of two tp ranks keeps copies of its own tokens alone, and gathers none for experts."""
    one = block(4096)
    own = one.with_whole_experts()
    copies = 2 * 2 * 2 * 4096 * 4096  # of two experts per token, before and after, in 16 bit
    kept = one.activation_bytes(2, True) - own.activation_bytes(2, True)
    assert kept == copies // 2
    # one all-reduce each for attention stays
    assert (one.forward_all_reduces, own.forward_all_reduces) == (2, 1)
    assert (one.backward_all_reduces, own.backward_all_reduces) == (2, 1)


def with_shared(shared: int) -> Layer:
    """A block with 8 routed experts, so many shared ones, and as many FLOPs per token in each."""
    moe = MoeSizes(experts=8, experts_per_token=2, ffn_size=64, shared_experts=shared)
    sizes = MIXTRAL.but(moe=moe)
    built = build_workload(sizes, name="m", source="test", sequence_length=8, global_batch=1)
    return built.layers[1]


@pytest.mark.parametrize(("shared", "etp_tp", "etp_1"), [(0, 2, 1), (1, 3, 2), (2, 3, 2)])
def test_bug_shared_experts_exchange_tokens_of_their_own(
    shared: int, etp_tp: int, etp_1: int
) -> None:
    """Attention, routed experts unless they are whole, and all shared ones together: one each."""
    block = with_shared(shared)
    assert (block.forward_all_reduces, block.backward_all_reduces) == (etp_tp, etp_tp)
    unsplit = block.with_whole_experts()
    assert (unsplit.forward_all_reduces, unsplit.backward_all_reduces) == (etp_1, etp_1)


def test_products_of_experts() -> None:
    """FLOPs at the grouped rate, and all weights and gradients through memory, by hand."""
    one = block(4096)
    gpu = gpu_catalogue()["H100"].but(
        peak_flops={"bf16": 1e15},
        grouped_maximum=0.5,
        grouped_bandwidth=0.5,
        permute_bandwidth=0.25,
        memory_bandwidth_bytes_per_s=2e12,
    )
    forward, backward = grouped_s(one, gpu, "bf16", tp=1, b=1, ep=8)
    products = 2 * 4096 * 2 * EXPERT / 0.5e15
    weights = EXPERT / 1e12
    # 6 copies of two tokens' widths, and twice the block's input, at 0.5 TB/s
    order = (6 * 2 + 2) * 2 * 4096 * 4096 / 0.5e12
    assert forward == pytest.approx(products + 2 * weights + order)
    assert backward == pytest.approx(2 * products + (2 + 2 * 4) * weights + order)


@pytest.mark.parametrize(("ep", "copies"), [(1, 2), (2, 6), (8, 6)])
def test_tokens_are_put_in_order_once_more_after_all_to_alls(ep: int, copies: int) -> None:
    """Copies are written and summed up, with ep > 1 sorted twice besides; tokens in and out."""
    routed = block(4096)
    gpu = gpu_catalogue()["H100"].but(permute_bandwidth=0.5, memory_bandwidth_bytes_per_s=2e12)
    bare = routed.but(routed_bytes=0)
    # copies of two tokens' widths, and twice the block's input, of 2 x 4096 x 4096 bytes, at 1 TB/s
    order_s = (2 * copies + 2) * 2 * 4096 * 4096 / 1e12
    passes = grouped_s(routed, gpu, "bf16", tp=1, b=3, ep=ep)
    without = grouped_s(bare, gpu, "bf16", tp=1, b=3, ep=ep)
    for time_s, bare_s in zip(passes, without, strict=True):
        assert time_s - bare_s == pytest.approx(3 * order_s)


def test_all_to_all_inside_a_node() -> None:
    """Seven eighths of the bytes, and a start per peer."""
    inside = Link(bandwidth_bytes_per_s=1e9, latency_s=1e-6)
    outside = Link(bandwidth_bytes_per_s=1.0, latency_s=1.0)
    found = all_to_all_s(Members(8, 8), 8e6, inside, outside, senders=8, ranks=8)
    assert found == pytest.approx(7e6 / (1e9 * ALL_TO_ALL_RATE) + 7e-6)


def test_bug_all_to_all_inside_a_node_that_holds_a_whole_group() -> None:
    """Groups of 4 on nodes of 4 and 2: some lie on one node, where three quarters go to others.

    So at 1 GB/s inside and between nodes without end three quarters of 8 MB count, and 3 starts.
    """
    inside = Link(bandwidth_bytes_per_s=1e9, latency_s=1e-6)
    outside = Link(bandwidth_bytes_per_s=1e15, latency_s=0)
    found = all_to_all_s(Members(4, 2, (0, 1)), 8e6, inside, outside, senders=4, ranks=4)
    assert found == pytest.approx(6e6 / (1e9 * ALL_TO_ALL_RATE) + 3e-6)


def rings_ns(nodes: int, gpus: int, ep: int, tp: int = 1) -> list[int]:
    """All-reduce of 1 MB of experts per GPU among all GPUs, 100 and 10 GB/s, 1 and 10 us."""
    near = Link(bandwidth_bytes_per_s=100e9, latency_s=1e-6)
    far = Link(bandwidth_bytes_per_s=10e9, latency_s=1e-5)
    group = nodes_of(
        gpu_catalogue()["H100"],
        name="n",
        gpus_per_node=gpus,
        nodes=nodes,
        intra_node=near,
        inter_node=far,
    )
    cluster = Cluster(groups=(group,), network_efficiency=((1, 1.0), (2, 0.5)))
    instance = Instance(name="m", source="test", workload=mixtral(), cluster=cluster)
    etp = 1 if tp > 1 else None
    config = plain_config((nodes,), tp=tp, dp=nodes * gpus // tp, ep=ep, etp=etp)
    sizes = np.array([[1_000_000], [0]], dtype=np.int64)
    return [int(ring) for ring in expert_rings_ns(instance, config, ALL_REDUCE, sizes)]


def test_gradients_of_experts_inside_a_node() -> None:
    """Two of 8 GPUs have the same experts: 1 MB at 100 GB/s, and two starts of 1 us."""
    assert rings_ns(nodes=1, gpus=8, ep=4) == [10_000 + 2_000, 0]


def test_gradients_of_experts_between_nodes() -> None:
    """One ring for each of 4 sets of experts shares the link: 4 MB at 5 GB/s, two starts."""
    assert rings_ns(nodes=2, gpus=4, ep=4) == [800_000 + 20_000, 0]


def test_members_of_a_group_on_nodes() -> None:
    """16 ranks lie on two nodes of 8, of which each group has all; groups of 8 on one."""
    assert rings_ns(nodes=4, gpus=8, ep=16) == [1_600_000 + 20_000, 0]


@pytest.mark.parametrize("seed", [7, 13, 24, 44])
def test_pages_suffice(seed: int) -> None:
    """Random plans that use this module cost what docs/cost.md says."""
    check_costs(seed)
