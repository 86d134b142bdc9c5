"""What routed experts cost, worked out by hand; measured kernels: tests/bench/test_calibration."""

import numpy as np
import pytest

from formulations.costs.collectives import ALL_REDUCE
from formulations.costs.experts import ALL_TO_ALL_RATE, Members, all_to_all_s, grouped_s
from formulations.costs.sharding import expert_rings_ns
from formulations.instance import Link, Workload
from formulations.instance.catalogue import gpu_catalogue
from formulations.instance.sizes import MoeSizes
from formulations.instance.transformer import build_workload
from tests.architectures import MIXTRAL
from tests.oracles.agreement import pages_suffice
from tests.small_instances import instance_of, nodes_of, plain_config

test_pages_suffice = pages_suffice(7, 13, 24, 44)

EXPERT = 3 * 4096 * 14336  # parameters


def mixtral() -> Workload:
    return build_workload(MIXTRAL, name="m", source="test", sequence_length=4096, global_batch=64)


@pytest.mark.parametrize(("shared", "etp_tp", "etp_1"), [(0, 2, 1), (1, 3, 2), (2, 3, 2)])
def test_bug_shared_experts_exchange_tokens_of_their_own(
    shared: int, etp_tp: int, etp_1: int
) -> None:
    """Attention, routed experts unless they are whole, and all shared ones together: one each."""
    moe = MoeSizes(experts=8, experts_per_token=2, ffn_size=64, shared_experts=shared)
    sizes = MIXTRAL.but(moe=moe)
    built = build_workload(sizes, name="m", source="test", sequence_length=8, global_batch=1)
    block = built.layers[1]
    assert (block.forward_all_reduces, block.backward_all_reduces) == (etp_tp, etp_tp)
    unsplit = block.with_whole_experts()
    assert (unsplit.forward_all_reduces, unsplit.backward_all_reduces) == (etp_1, etp_1)


@pytest.mark.parametrize(("ep", "copies"), [(1, 2), (2, 6), (8, 6)])
def test_products_of_experts(ep: int, copies: int) -> None:
    """FLOPs at the grouped rate, all weights and gradients through memory, tokens put in order.

    Copies are written and summed up, with ep > 1 sorted twice besides.
    """
    gpu = gpu_catalogue()["H100"].but(
        peak_flops={"bf16": 1e15},
        grouped_maximum=0.5,
        grouped_bandwidth=0.5,
        permute_bandwidth=0.25,
        memory_bandwidth_bytes_per_s=2e12,
    )
    forward, backward = grouped_s(mixtral().layers[1], gpu, "bf16", 1, 3, Members(ep))
    products = 3 * 2 * 4096 * 2 * EXPERT / 0.5e15
    weights = 8 // ep * EXPERT / 1e12
    # copies of two tokens' widths, and twice the block's input, of three sequences, at 0.5 TB/s
    order = 3 * (2 * copies + 2) * 2 * 4096 * 4096 / 0.5e12
    assert forward == pytest.approx(products + 2 * weights + order)
    # Outside blocks products are not in fp8, in which they take half as long.
    faster, block = gpu.but(peak_flops={"bf16": 1e15, "fp8": 2e15}), mixtral().layers[1]
    inside, _ = grouped_s(block, faster, "fp8", 1, 3, Members(ep))
    outside, _ = grouped_s(block.but(is_block=False), faster, "fp8", 1, 3, Members(ep))
    assert outside - inside == pytest.approx(products / 2)
    assert backward == pytest.approx(2 * products + (2 + 2 * 4) * weights + order)


def test_bug_all_to_all_inside_a_node_that_holds_a_whole_group() -> None:
    """Groups of 4 on nodes of 4 and 2: some lie on one node, where three quarters go to others.

    So at 1 GB/s inside and between nodes without end three quarters of 8 MB count, and 3 starts.
    """
    inside = Link(bandwidth_bytes_per_s=1e9, latency_s=1e-6)
    outside = Link(bandwidth_bytes_per_s=1e15, latency_s=0)
    found = all_to_all_s(Members(4, 2, (0, 1)), 8e6, inside, outside, senders=4, ranks=4)
    assert found == pytest.approx(6e6 / (1e9 * ALL_TO_ALL_RATE) + 3e-6)


@pytest.mark.parametrize(
    ("nodes", "gpus", "ep", "ring_ns"),
    [
        # two of 8 GPUs have the same experts: 1 MB at 100 GB/s, and two starts of 1 us
        (1, 8, 4, 10_000 + 2_000),
        # one ring for each of 4 sets of experts shares the link: 4 MB at 5 GB/s, two starts
        (2, 4, 4, 800_000 + 20_000),
        # 16 ranks lie on two nodes of 8, of which each group has all
        (4, 8, 16, 1_600_000 + 20_000),
    ],
)
def test_gradients_of_experts(nodes: int, gpus: int, ep: int, ring_ns: int) -> None:
    """All-reduce of 1 MB of experts per GPU among all GPUs, 100 and 10 GB/s, 1 and 10 us."""
    group = nodes_of(
        gpu_catalogue()["H100"],
        gpus_per_node=gpus,
        nodes=nodes,
        intra_node=Link(bandwidth_bytes_per_s=100e9, latency_s=1e-6),
        inter_node=Link(bandwidth_bytes_per_s=10e9, latency_s=1e-5),
    )
    instance = instance_of("m", mixtral(), (group,), (2, 0.5))
    config = plain_config((nodes,), dp=nodes * gpus, ep=ep)
    sizes = np.array([[1_000_000], [0]], dtype=np.int64)
    rings = expert_rings_ns(instance, config, ALL_REDUCE, sizes)
    assert [int(ring) for ring in rings] == [ring_ns, 0]
