"""What crosses a boundary between stages, and the links between zones: 0.5 GB/s and 1 ms, by hand.

Each letter is a node, in node order; `equal_nodes` has the other figures.
"""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from formulations.costs.placement import PlacementCosts, Placer
from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import build_tables
from formulations.costs.transfers import neighbours
from formulations.decisions import Decisions
from formulations.instance import ZoneLink
from formulations.instance.sizes import TransformerSizes
from formulations.instance.transformer import build_workload
from tests.equal_nodes import equal_nodes
from tests.oracles.agreement import pages_suffice

test_pages_suffice = pages_suffice(8, 34, 41, 59)

#: Layers 0 embedding, 1-2 encoder, 3-4 decoder, 5 head.
SMALL = TransformerSizes(
    hidden_size=512, layers=2, decoder_layers=2, heads=8, ffn_size=2048, vocabulary_size=1024
)


@pytest.mark.parametrize(
    ("cuts", "expected"),
    [
        # 512,000 bytes over 1 GB/s are 512 us, and 10 us of latency; twice that is 1,024 us.
        ([0, 1, 2, 6], [522_000, 522_000]),  # behind the embedding, and the first encoder block
        ([0, 2, 3, 6], [522_000, 522_000]),  # the encoder's output alone goes to the decoder
        ([0, 3, 4, 6], [522_000, 1_034_000]),  # from then on it travels with the decoder's
        ([0, 4, 5, 6], [1_034_000, 1_034_000]),
    ],
)
def test_bug_encoder_boundaries_are_charged_one_tensor(
    cuts: list[int], expected: list[int]
) -> None:
    """Two were charged everywhere; Megatron-LM sends two behind decoder blocks alone.

    On three nodes of one GPU; sequences of 500 tokens, so a tensor is 2 x 500 x 512 bytes.
    """
    plain = equal_nodes(3, 1, 1, 1, 3)
    workload = build_workload(
        SMALL, name="t5", source="test", sequence_length=500, global_batch=4, precision="bf16"
    )
    instance = plain.instance.but(workload=workload)
    plan = Decisions((0, 0, 0), tuple(cuts), (4,)).plan(build_tables(instance, plain.config))
    assert plan_costs(instance, plan).send_ns.ravel().tolist() == expected


def placed(
    zones: str,
    dp: int,
    pp: int,
    tied: bool = False,
    own: Mapping[str, ZoneLink] = MappingProxyType({}),
) -> PlacementCosts:
    """Costs of the nodes in these zones, in this order; `own`: links of pairs."""
    tables = equal_nodes(len(zones), 1, 1, dp, pp, 0, tied, zones, own=own)
    return Placer(tables).costs(range(len(zones)))


@pytest.mark.parametrize("zones", ["wxyzwwyy", "xwyzyywy"])
def test_bug_ring_over_four_zones_went_in_the_order_of_their_names(zones: str) -> None:
    """A ring over w, x, y, z shares the link between w and y, whatever is named first."""
    assert len(neighbours([3, 1, 0, 2, 1])) == 6
    # 2 rings x 2 x 3/4 x 10 MB / (0.5 GB/s x 0.5) = 120 ms.
    assert placed(zones, 4, 2).sync_ns[:, 0].tolist() == [120_000_000] * 2


def link(gb_per_s: float, latency_ms: float) -> ZoneLink:
    return ZoneLink(bandwidth_bytes_per_s=gb_per_s * 1e9, latency_s=latency_ms / 1e3)


@pytest.mark.parametrize(
    ("own", "sync_ns", "latency_ns"),
    [
        # x-y: 2 rings x 2 x 2/3 x 10 MB / (0.5 GB/s x 0.5); 2 x 2 steps of 1 ms.
        ({}, 106_666_667, 4_000_000),
        # x-z at 0.2 GB/s: 2 rings too, the second stage's with it.
        ({"xz": link(0.2, 1)}, 266_666_667, 4_000_000),
        # y-z: 1 ring at 0.1 GB/s is slower than 2 at 0.5, and its 3 ms are the longest.
        ({"yz": link(0.1, 3)}, 266_666_667, 12_000_000),
        # x-y has 1 ring, and is faster: nothing changes.
        ({"xy": link(5, 0)}, 106_666_667, 4_000_000),
    ],
)
def test_ring_takes_as_long_as_its_slowest_link(
    own: Mapping[str, ZoneLink], sync_ns: int, latency_ns: int
) -> None:
    """Of x, y, z, with what shares each link: a second stage's ring passes between x and z."""
    costs = placed("xyzxxz", 3, 2, own=own)
    assert costs.sync_ns[0, 0] == sync_ns
    assert costs.sync_latency_ns[0] == latency_ns


def test_tied_matrix_crosses_between_the_zones_of_both_ends() -> None:
    """Lanes of x-y and y-x share 0.25 GB/s: 2 x 4,096,000 bytes, and 2 steps of 1 ms."""
    costs = placed("xyyx", 2, 2, tied=True, own={"xy": link(0.25, 1)})
    assert costs.embedding_ns == 34_768_000
