"""What ZeRO 2 and 3 exchange with every micro-batch, and what ZeRO keeps, by hand."""

import numpy as np
import pytest

from formulations.costs.sharding import (
    config_times,
    expert_rings_ns,
    lanes_like,
    layers_alike,
    message_lanes,
    tied_lanes,
    widest_group,
)
from formulations.costs.tables import CostTables, build_tables
from formulations.instance.search import Overlap, ZeroStage
from formulations.plan import Degrees
from tests.equal_nodes import equal_nodes
from tests.oracles.agreement import pages_suffice
from tests.small_instances import layer, plain_config, with_ends, workload

test_pages_suffice = pages_suffice(1, 3, 7, 44)


def of_parameters(zero: ZeroStage, hidden: float = 0, gflops: int = 1) -> CostTables:
    """Two nodes of two GPUs, tp 2, dp 2: blocks of 1,999,986 split and 7 whole parameters."""
    chain = [layer(kind, gflops, 1_999_986, 0) for kind in with_ends(2)]
    instance = equal_nodes(2, 2, 2, 2, 1).instance.but(
        workload=workload(chain, 4, 10**6, False), search={"overlap": Overlap(sharding=hidden)}
    )
    return build_tables(instance, plain_config((2,), tp=2, dp=2, zero=zero))


@pytest.mark.parametrize(("hidden", "gflops"), [(0, 1), (0.25, 2000)])
def test_volumes_of_every_micro_batch(hidden: float, gflops: int) -> None:
    """ZeRO 2 reduces gradients in the backward pass, 3 gathers parameters in both passes too.

    A quarter of each exchange hides where forward and both halves of backward take 20 ms each.
    """
    # 10^6 parameters a GPU: reduce-scatter of 4 MB over two nodes, half of it sent, two tensor
    # lanes on a link of 1 GB/s at efficiency 0.5: 4 MB x 1/2 x 2 / 0.5 GB/s = 8 ms, and 10 us to
    # start. Gathers of 2 MB: 4 ms and 10 us.
    plain, two, three = (of_parameters(zero, hidden, gflops) for zero in (0, 2, 3))
    reduce_ns, gather_ns = 8_010_000 * (1 - hidden), 4_010_000 * (1 - hidden)
    assert set((two.forward_ns - plain.forward_ns).ravel()) == {0}
    assert set((two.backward_ns - plain.backward_ns).ravel()) == {reduce_ns}
    assert set((three.forward_ns - plain.forward_ns).ravel()) == {gather_ns}
    assert set((three.backward_ns - plain.backward_ns).ravel()) == {reduce_ns + gather_ns}


def test_rings_over_unlike_links_start_with_the_slowest() -> None:
    """Two nodes of two GPUs, whose links start after 1 and 5 us inside, 10 and 30 us between."""
    instance = of_parameters(0).instance
    (group,) = instance.cluster.groups
    groups = tuple(
        group.but(name=name, nodes=1, intra_node={"latency_s": near}, inter_node={"latency_s": far})
        for name, near, far in (("near", 1e-6, 3e-5), ("far", 5e-6, 1e-5))
    )
    mixed = instance.but(cluster={"groups": groups})
    config = plain_config((1, 1), dp=4, zero=2)
    (times,), (plain,) = (config_times(mixed, config.but(zero=zero)) for zero in (2, 0))
    # 1,999,993 parameters of 4 bytes. Half of them inside nodes at 10 GB/s: 399,999 ns, and one
    # step of 5 us; half between two nodes at 0.5 GB/s: 7,999,972 ns, and one step of 30 us.
    (seen,) = set((times.backward_ns - plain.backward_ns).ravel().tolist())
    assert seen == (399_999 + 5_000) + (7_999_972 + 30_000)


def test_rings_of_experts_on_stages_that_straddle_nodes() -> None:
    """10 ranks on nodes of 6 reach 3 of 5: rings of 5, 3 of them on a node, and 4 on a link."""
    instance, config = equal_nodes(5, 6, 1, 1, 1).instance, plain_config((5,), dp=10, pp=3, ep=2)
    sizes = np.array([[1_000_000]], dtype=np.int64)
    (ring_ns,) = expert_rings_ns(instance, config, 2, sizes)
    # two thirds of 2 MB at 10 GB/s, and 4 starts of 1 us; of 8 MB at 0.5 GB/s, and 4 of 10 us
    assert ring_ns == (133_334 + 4_000) + (10_666_667 + 40_000)


#: Tensor groups of 2 in three parts, of 1, of 2, and of 4 on nodes that are not used.
DEGREES = (Degrees(tp=2, parts=3), Degrees(tp=1), Degrees(tp=2), Degrees(tp=4))
SHAPE = plain_config((1, 1, 1, 0)).but(degrees=DEGREES)


def test_lanes() -> None:
    """Lanes of the third group hold as much as those of the first, which is the widest used.

    Of messages: split, every GPU sends its part once; whole, as often as the widest has GPUs.
    """
    assert [lanes_like(SHAPE, j) for j in range(4)] == [0, 1, 0, 3]
    assert widest_group(SHAPE) == 0
    assert [tied_lanes(SHAPE, j) for j in range(4)] == [6, 1, 2, 4]
    instance = equal_nodes(1, 1, 1, 1, 1).instance
    for split, lanes in ((True, 3 * 2), (False, 3 * 4)):
        splitting = instance.but(search={"scatter_gather": split})
        assert message_lanes(splitting, DEGREES[0], 4) == lanes


def test_layers_that_agree_in_bytes() -> None:
    """All of one mask on tensor groups of one size, else one for each pair of sizes."""
    sizes = np.array([[4, 8, 4, 9], [2, 4, 2, 9], [4, 8, 4, 9]])
    masks = [mask.tolist() for mask in layers_alike(SHAPE, sizes)]
    assert masks == [[0, 1, 0], [1, 0, 1]]
    alike = SHAPE.but(nodes_used=(1, 0, 1, 0))
    assert [mask.tolist() for mask in layers_alike(alike, sizes)] == [[1, 1, 1]]
