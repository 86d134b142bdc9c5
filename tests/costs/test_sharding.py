"""What ZeRO 2 and 3 exchange with every micro-batch, and what ZeRO keeps, by hand."""

import numpy as np
import pytest

from formulations.costs.compute import layer_times
from formulations.costs.memory import layer_memory
from formulations.costs.sharding import (
    lanes_like,
    layers_alike,
    message_lanes,
    shape_times,
    tied_lanes,
    widest_group,
)
from formulations.costs.tables import CostTables, build_tables
from formulations.instance import Instance, SearchSpace
from formulations.instance.search import Overlap, ZeroStage
from formulations.instance.workload import OPTIMIZER_BYTES
from formulations.plan import Degrees, Shape
from tests.equal_nodes import equal_nodes
from tests.oracles.agreement import check_costs
from tests.small_instances import layer, plain_shape, workload


def of_parameters(zero: ZeroStage, hidden: float = 0, gflops: int = 1) -> CostTables:
    """Two nodes of two GPUs, tp 2, dp 2: blocks of 1,999,986 split and 7 whole parameters."""
    one = equal_nodes(2, 2, 2, 2, 1).instance
    kinds = ("embedding", "block", "block", "head")
    chain = [layer(kind, gflops, 1_999_986, 0) for kind in kinds]
    search = one.search.but(overlap=Overlap(sharding=hidden))
    changed = {"workload": workload(chain, 4, 10**6, False), "search": search}
    whole = one.model_copy(update=changed)
    return build_tables(whole, plain_shape((2,), tp=2, dp=2, zero=zero))


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
    shape = plain_shape((1, 1), dp=4, zero=2)
    (times,), (plain,) = (shape_times(mixed, shape.but(zero=zero)) for zero in (2, 0))
    # 1,999,993 parameters of 4 bytes. Half of them inside nodes at 10 GB/s: 399,999 ns, and one
    # step of 5 us; half between two nodes at 0.5 GB/s: 7,999,972 ns, and one step of 30 us.
    (seen,) = set((times.backward_ns - plain.backward_ns).ravel().tolist())
    assert seen == (399_999 + 5_000) + (7_999_972 + 30_000)


def test_exchanges_hide_no_longer_than_a_pass_lasts() -> None:
    """Where passes take less than a quarter of the exchanges, these are all that is seen."""
    plain, three = of_parameters(0), of_parameters(3, 0.75)
    assert plain.backward_ns.max() < 200_000
    assert set(three.forward_ns.ravel()) == {4_010_000}
    assert set(three.backward_ns.ravel()) == {4_010_000 + 8_010_000}


def test_nothing_is_left_to_synchronise() -> None:
    """What was reduced with every micro-batch is not once more; ZeRO 2 alone gathers at the end."""
    assert [of_parameters(zero).gather_bytes.any() for zero in (0, 1, 2, 3)] == [0, 1, 1, 0]


def test_replicas_go_in_lockstep() -> None:
    """The slower GPU sets the pace of each layer."""
    shape = plain_shape((1, 1), dp=2, zero=2)
    instance = of_parameters(0).instance
    (group,) = instance.cluster.groups
    fast = group.gpu.but(peak_flops={"bf16": 3e14})
    groups = tuple(
        group.but(name=name, nodes=1, gpus_per_node=1, gpu=gpu)
        for name, gpu in (("slow", group.gpu), ("fast", fast))
    )
    mixed = instance.but(cluster={"groups": groups})
    alone, (together,) = layer_times(mixed, shape.degrees, 1, "none"), shape_times(mixed, shape)
    assert (alone.forward_ns[:, 0] > alone.forward_ns[:, 1]).all()
    assert together.forward_ns.T.tolist() == [alone.forward_ns[:, 0].tolist()] * 2


def shape_of(zero: ZeroStage) -> Shape:
    """Four replicas of one GPU."""
    return plain_shape((2,), dp=4, zero=zero)


def test_bytes_that_each_stage_splits() -> None:
    """ZeRO 1 a quarter of the states, 2 of the gradients, 3 of the parameters; a layer is whole."""
    instance = of_parameters(0).instance
    count = 1_999_986 + 7
    quarter = -(-count // 4)
    found = []
    for zero in (0, 1, 2, 3):
        (memory,) = layer_memory(instance, shape_of(zero))
        found.append(
            tuple(
                int(part[1])
                for part in (
                    memory.weights_bytes,
                    memory.gradients_bytes,
                    memory.optimizer_bytes,
                    memory.workspace_bytes,
                )
            )
        )
    assert found == [
        (2 * count, 4 * count, 12 * count, 0),
        (2 * count, 4 * count, 12 * quarter, 0),
        (2 * count, 4 * quarter, 12 * quarter, 4 * count),
        (2 * quarter, 4 * quarter, 12 * quarter, (4 + 2) * count),
    ]


def test_eight_bit_states_have_scales() -> None:
    """6 bytes per parameter, and two fp32 scales for every 2048 of them, or part of it."""
    each, block = OPTIMIZER_BYTES["8bit"]
    states = {"optimizer_bytes": each, "optimizer_block_bytes": block}
    changed = of_parameters(0).instance.workload.model_copy(update=states)
    assert changed.state_bytes(2048) == 6 * 2048 + 8
    assert changed.state_bytes(2049) == 6 * 2049 + 16
    assert OPTIMIZER_BYTES["bf16"] == (8, 0)


EXPERTS = 1_600_000  #: parameters of each layer, 800,000 of them on one GPU


def with_experts() -> Instance:
    """Two experts in every layer."""
    instance = of_parameters(0).instance
    runs = [run.but(layer={"expert_parameters": EXPERTS}) for run in instance.workload.layer_runs]
    fields = {"layer_runs": tuple(runs), "experts": 2}
    return instance.but(workload=fields)


def test_experts_are_split_among_those_with_the_same() -> None:
    """Four GPUs, two with each half of the experts: ZeRO 3 leaves half of that half on each."""
    shape = shape_of(3).but(ep=2)
    (memory,) = layer_memory(with_experts(), shape)
    alike, held = 1_999_986 + 7 - EXPERTS, EXPERTS // 2
    left = -(-alike // 4) + held // 2
    assert memory.weights_bytes[1] == 2 * left
    assert memory.gradients_bytes[1] == 4 * left
    assert memory.optimizer_bytes[1] == 12 * left
    assert memory.workspace_bytes[1] == (4 + 2) * (alike + held)


def test_exchanges_of_experts_follow_those_of_the_rest() -> None:
    """A ring of the two GPUs with the same experts, one on each node, after one of all four."""
    shape, instance = shape_of(2).but(ep=2), with_experts()
    (times,), (plain,) = (shape_times(instance, shape.but(zero=zero)) for zero in (2, 0))
    # 399,993 parameters of 4 bytes, on 4 GPUs: half of 1,599,972 bytes inside nodes over 10 GB/s,
    # 80.0 us, and 1 us to start; half between them over 0.5 GB/s, 1,600.0 us, and 10 us. 800,000 of
    # experts: two rings of 2 GPUs share the link, 3.2 MB / 2 x 2 / 0.5 GB/s = 6,400 us, and 10 us.
    (seen,) = set((times.backward_ns - plain.backward_ns).ravel().tolist())
    assert seen == (79_999 + 1_000 + 1_599_972 + 10_000) + (6_400_000 + 10_000)


#: Tensor groups of 2 in three parts, of 1, of 2, and of 4 on nodes that are not used.
DEGREES = (Degrees(tp=2, parts=3), Degrees(tp=1), Degrees(tp=2), Degrees(tp=4))
SHAPE = plain_shape((1, 1, 1, 0)).but(degrees=DEGREES)


def test_lanes_of_node_groups() -> None:
    """Lanes of the third group hold as much as those of the first, which is the widest used."""
    assert [lanes_like(SHAPE, j) for j in range(4)] == [0, 1, 0, 3]
    assert widest_group(SHAPE) == 0
    assert [tied_lanes(SHAPE, j) for j in range(4)] == [6, 1, 2, 4]


def test_lanes_of_messages() -> None:
    """Split, every GPU sends its part once; whole, as often as the widest tensor group has GPUs."""
    instance = equal_nodes(1, 1, 1, 1, 1).instance
    for split, lanes in ((True, 3 * 2), (False, 3 * 4)):
        search = SearchSpace(scatter_gather=split)
        assert message_lanes(instance.but(search=search), DEGREES[0], 4) == lanes


def test_layers_that_agree_in_bytes() -> None:
    """All of one mask on tensor groups of one size, else one for each pair of sizes."""
    sizes = np.array([[4, 8, 4, 9], [2, 4, 2, 9], [4, 8, 4, 9]])
    masks = [mask.tolist() for mask in layers_alike(SHAPE, sizes)]
    assert masks == [[0, 1, 0], [1, 0, 1]]
    alike = SHAPE.but(nodes_used=(1, 0, 1, 0))
    assert [mask.tolist() for mask in layers_alike(alike, sizes)] == [[1, 1, 1]]


@pytest.mark.parametrize("seed", [1, 3, 7, 44])
def test_pages_suffice(seed: int) -> None:
    """Random plans that use this module cost what docs/cost.md says."""
    check_costs(seed)
