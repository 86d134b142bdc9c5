"""What crosses a boundary between stages, and the links between zones: 0.5 GB/s and 1 ms, by hand.

Each letter is a node, in node order; `equal_nodes` has the other figures.
"""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from formulations.costs.placement import PlacementCosts, Placer
from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import build_tables
from formulations.costs.transfers import (
    ZoneCrossings,
    ZoneTerms,
    embedding_ns,
    inside_ns,
    neighbours,
    outside_ns,
)
from formulations.decisions import Decisions
from formulations.instance import ZoneLink
from formulations.instance.sizes import TransformerSizes
from formulations.instance.transformer import build_workload
from tests.equal_nodes import equal_nodes
from tests.oracles.agreement import pages_suffice
from tests.random_configs import wide_zones
from tests.recorded import as_recorded
from tests.unlike_degrees import unlike_tables

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


def test_ring_takes_as_long_as_its_slowest_link() -> None:
    """Of x, y, z, with what shares each link: a second stage's ring passes between x and z."""
    # x-y: 2 rings x 2 x 2/3 x 10 MB / (0.5 GB/s x 0.5); 2 x 2 steps of 1 ms.
    costs = placed("xyzxxz", 3, 2)
    assert (costs.sync_ns[0, 0], costs.sync_latency_ns[0]) == (106_666_667, 4_000_000)
    # y-z: 1 ring at 0.1 GB/s is slower than 2 at 0.5, and its 3 ms are the longest.
    slow = ZoneLink(bandwidth_bytes_per_s=1e8, latency_s=3e-3)
    costs = placed("xyzxxz", 3, 2, own={"yz": slow})
    assert (costs.sync_ns[0, 0], costs.sync_latency_ns[0]) == (266_666_667, 12_000_000)


def test_crossings_are_the_recorded_ones() -> None:
    """Messages of each stage, its ring and the tied matrix, in zones; of links inside and out."""
    figures: dict[str, object] = {}
    tables_of = [*map(wide_zones, range(10)), *map(unlike_tables, range(5, 90, 6))]
    for n, tables in enumerate(filter(None, tables_of)):
        config, groups = tables.config, tables.instance.cluster.groups
        nodes = [j for j, count in enumerate(config.nodes_used) for _ in range(count)]
        slots = [j for j in nodes for _ in range(tables.slots_per_node[j])]
        crossings, (j, *_) = ZoneCrossings(ZoneTerms(tables), slots), nodes
        stages = range(config.pp)
        sends = [list(map(list, crossings.sends_ns(k))) for k in stages]
        rings = [ring and [*ring[0], ring[1]] for ring in map(crossings.ring, stages)]
        links = [outside_ns(tables, j, 3, groups[j].inter_node, 2), inside_ns(tables, j, 2)]
        links.append(embedding_ns(tables, j, 3, groups[j].inter_node))
        figures[f"{n}"] = [sends, rings, crossings.embedding_ns(), links]
    as_recorded("transfers", figures)
