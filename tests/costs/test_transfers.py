"""What crosses a boundary between stages, and the links between zones: 0.5 GB/s and 1 ms, by hand.

Each letter is a node, in node order; `equal_nodes` has the other figures.
"""

import pytest

from formulations.costs import transfers
from formulations.costs.placement import Placer
from formulations.costs.plan_costs import plan_costs
from formulations.costs.tables import build_tables
from formulations.decisions import Decisions
from formulations.instance.sizes import TransformerSizes
from formulations.instance.transformer import build_workload
from tests.chain_instances import equal_nodes
from tests.oracles.agreement import pages_suffice
from tests.random_configs import wide_zones
from tests.recorded import Cases, recorded
from tests.stage_degrees import unlike_tables

test_pages_suffice = pages_suffice(8, 34, 41, 59)

#: Layers 0 embedding, 1-2 encoder, 3-4 decoder, 5 head.
SMALL = TransformerSizes(
    hidden_size=512, layers=2, decoder_layers=2, heads=8, ffn_size=2048, vocabulary_size=1024
)


def test_bug_encoder_boundaries_are_charged_one_tensor() -> None:
    """Two were charged everywhere; Megatron-LM sends two behind decoder blocks alone.

    On three nodes of one GPU; sequences of 500 tokens, so a tensor is 2 x 500 x 512 bytes. Over 1
    GB/s they are 512 us, and 10 us of latency.
    """
    plain = equal_nodes(3, 1, 1, 3)
    workload = build_workload(SMALL, name="t5", source="test", sequence_length=500, global_batch=4)
    instance = plain.instance.but(workload=workload)
    for cuts, second_ns in (((0, 2, 3, 6), 522_000), ((0, 3, 4, 6), 1_034_000)):
        plan = Decisions((0, 0, 0), cuts, (4,)).plan(build_tables(instance, plain.config))
        assert plan_costs(instance, plan).send_ns.ravel().tolist() == [522_000, second_ns]


@pytest.mark.parametrize("zones", ["wxyzwwyy", "xwyzyywy"])
def test_bug_ring_over_four_zones_went_in_the_order_of_their_names(zones: str) -> None:
    """A ring over w, x, y, z shares the link between w and y, whatever is named first."""
    assert len(transfers.neighbours([3, 1, 0, 2, 1])) == 6
    # 2 rings x 2 x 3/4 x 10 MB / (0.5 GB/s x 0.5) = 120 ms.
    costs = Placer(equal_nodes(8, 1, 4, 2, zones=zones)).costs(range(8))
    assert costs.sync_ns[:, 0].tolist() == [120_000_000] * 2


@recorded("transfers")
def test_crossings_are_the_recorded_ones() -> Cases:
    """Messages of each stage, its ring and the tied matrix, in zones; of links inside and out."""
    tables_of = [*map(wide_zones, range(10)), *map(unlike_tables, range(5, 90, 6))]
    for n, tables in enumerate(filter(None, tables_of)):
        config, groups = tables.config, tables.instance.cluster.groups
        nodes = [j for j, count in enumerate(config.nodes_used) for _ in range(count)]
        slots = [j for j in nodes for _ in range(tables.slots_per_node[j])]
        crossings, (j, *_) = transfers.ZoneCrossings(transfers.ZoneTerms(tables), slots), nodes
        stages = range(config.pp)
        sends = [list(map(list, crossings.sends_ns(k))) for k in stages]
        rings = [ring and [*ring[0], ring[1]] for ring in map(crossings.ring, stages)]
        links = [
            transfers.outside_ns(tables, j, 3, groups[j].inter_node, 2),
            transfers.inside_ns(tables, j, 2),
        ]
        links.append(transfers.embedding_ns(tables, j, 3, groups[j].inter_node))
        yield f"{n}", [sends, rings, crossings.embedding_ns(), links]
