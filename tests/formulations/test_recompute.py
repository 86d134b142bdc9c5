"""What each way to recompute keeps and costs, by hand."""

import pytest

from formulations.costs.compute import layer_times
from formulations.costs.stage_costs import least_recomputed, recomputed_ns
from formulations.costs.tables import build_tables
from formulations.instance import Instance, Profile, ProfileEntry
from formulations.instance.workload import Recompute
from formulations.plan import Degrees, Recomputed
from tests.equal_nodes import equal_nodes
from tests.small_instances import layer, plain_shape, workload

MODES: tuple[Recompute, ...] = ("none", "selective", "full")
ALONE = (Degrees(tp=1),)
#: Of a block: 10 GFLOP, a fifth of them in the core of attention, which keeps 600 of 1000 B.
BLOCK = layer("block", 10, 0, 1000).but(
    unweighted_flops=2 * 10**9,
    core_kernels=1,
    core_bytes=600,
    replicated_activation_bytes=400,
    unsplit_bytes=100,
    input_bytes=200,
)


def instance() -> Instance:
    """Two nodes of two GPUs of 50 TFLOP/s."""
    one = equal_nodes(2, 2, 1, 2, 2).instance
    chain = [layer("embedding", 1, 0, 0), BLOCK, BLOCK, layer("head", 1, 0, 0)]
    return one.but(workload=workload(chain, 4, 10**6, False))


@pytest.mark.usefixtures("round_times")
def test_recomputation_prolongs_the_backward_pass_of_blocks() -> None:
    """Selective repeats the core's fifth of a forward pass of 0.2 ms, full all of it."""
    found = {
        mode: layer_times(instance(), ALONE, 1, mode).backward_ns[:, 0].tolist() for mode in MODES
    }
    ends = 40_000
    assert found == {
        "none": [ends, 400_000, 400_000, ends],
        "selective": [ends, 440_000, 440_000, ends],
        "full": [ends, 600_000, 600_000, ends],
    }


@pytest.mark.usefixtures("round_times")
def test_first_blocks_of_a_stage_are_recomputed() -> None:
    """Without need for memory none of them, or all where nothing else is allowed."""
    free = build_tables(instance(), plain_shape((1,), recompute=("none", "full")))
    bound = build_tables(instance(), plain_shape((1,), recompute=("full",)))
    assert least_recomputed(free, (0, 3)) == Recomputed(way="none", blocks=0)
    assert least_recomputed(bound, (0, 3)) == Recomputed(way="full", blocks=2)
    # forward passes of 0.2 ms once more, of one block and of both; the last is not of the stage
    for layers, blocks, again_ns in (
        ((0, 4), 1, 200_000),
        ((0, 4), 2, 400_000),
        ((0, 2), 2, 200_000),
    ):
        recomputed = Recomputed(way="full", blocks=blocks)
        assert recomputed_ns(free, 0, layers, recomputed) == again_ns


@pytest.mark.usefixtures("round_times")
def test_measured_times_are_shared_out_as_the_analytic_model_does() -> None:
    """A fifth of the measured millisecond, as the profile has no time of the core alone."""
    entries = tuple(
        ProfileEntry(kind=kind, gpu="one", tp=1, micro_batch=1, forward_s=1e-3, backward_s=2e-3)
        for kind in ("embedding", "block", "head")
    )
    profile = Profile(source="test", includes_tensor_parallel_traffic=True, entries=entries)
    measured = instance().but(profile=profile)
    found = [int(layer_times(measured, ALONE, 1, mode).backward_ns[1, 0]) for mode in MODES]
    assert found == [2_000_000, 2_200_000, 3_000_000]


def test_bytes_that_a_block_keeps() -> None:
    """On two ranks: kept for the backward pass, and besides while it is recomputed."""
    # Not split: 400 + 1000 / 2. Split: 100 + (300 + 1000) / 2; inputs 200, or 100 of them.
    whole, split = 900, 750
    assert [BLOCK.recomputed_bytes(mode, 2, False) for mode in MODES] == [
        (whole, 0),
        (whole - 300, 300),
        (200, whole),
    ]
    assert [BLOCK.recomputed_bytes(mode, 2, True) for mode in MODES] == [
        (split, 0),
        (split - 300, 300),
        (100, split),
    ]


def test_ends_of_the_chain_are_not_recomputed() -> None:
    """Embedding and head keep the same whatever the choice."""
    head = layer("head", 1, 0, 1000)
    assert {head.recomputed_bytes(mode, 1, False) for mode in MODES} == {(1250, 0)}


def test_a_split_sequence_is_sent_in_parts_that_nobody_gathers() -> None:
    """Each of two lanes sends half a message, and buffers hold halves; scatter and gather too."""
    one = instance()
    for scatter_gather in (False, True):
        choices = {"sequence_parallel": True, "scatter_gather": scatter_gather}
        search = one.search.model_copy(update=choices)
        tables = build_tables(one.but(search=search), plain_shape((2,), tp=2, pp=2))
        assert search.splits_messages
        assert not search.gathers_messages
        assert (tables.send_bytes, tables.memory[0].buffers_bytes) == ((500_000,), 2 * 500_000)
