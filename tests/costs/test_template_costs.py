"""What stages of a template cost, and the exchange of gradients between pipelines, by hand."""

import pytest

from formulations.costs.template_costs import exchange_times_ns, template_costs
from formulations.fleet import Design, Strategy, Template, stage_on
from formulations.instance import Link
from formulations.instance.search import Overlap
from tests.equal_nodes import equal_nodes
from tests.random_fleets import STRATEGY as FLEET_STRATEGY
from tests.random_fleets import even_designs, fleet_instance, template_of
from tests.small_instances import layer, workload

STRATEGY = Strategy(micro_batch=1, recompute=("none",), schedule="1f1b")
#: Two GPUs of a node, and one of each of two.
INSIDE = template_of((0,), [(0, 0), (0, 1)], (0, 2, 4))
BETWEEN = template_of((0, 0), [(0, 0), (1, 0)], (0, 2, 4))


@pytest.mark.parametrize(
    ("template", "send_ns", "embedding_ns"),
    [
        # 1 MB at 10 GB/s, and 1 us; 512 of 500 rows of 2000 gradients of 4 bytes, and twice 1 us
        (INSIDE, 100_000 + 1_000, 409_600 + 2_000),
        # the same at 1 GB/s, with 10 us each
        (BETWEEN, 1_000_000 + 10_000, 4_096_000 + 20_000),
    ],
)
def test_links_of_a_template(template: Template, send_ns: int, embedding_ns: int) -> None:
    """Messages, and the gradient of a tied matrix, inside a node and between two."""
    base = equal_nodes(2, 2, 1, 1, 2).instance
    chain = [layer(kind, 1, 0, 0) for kind in ("embedding", "block", "block", "head")]
    tied = base.model_copy(update={"workload": workload(chain, 4, 10**6, True)})
    costs = template_costs(tied, STRATEGY, template)
    assert costs.send_ns.tolist() == costs.send_back_ns.tolist() == [send_ns]
    assert costs.embedding_ns == embedding_ns
    # all-reduced with an end on a link of a quarter of the bandwidth
    (group,) = tied.cluster.groups
    slow = group.but(name="slow", nodes=1, inter_node={"bandwidth_bytes_per_s": 0.25e9})
    unlike = tied.but(cluster={"groups": (group.but(nodes=1), slow)})
    apart = template_costs(unlike, STRATEGY, BETWEEN.but(node_groups=(0, 1)))
    assert apart.embedding_ns == 4 * 4_096_000 + 20_000


PAIR = even_designs(range(2, 3))[0]
#: Bytes of gradients, 4 each, on the node that holds two blocks and the head.
SIZE = 4 * (2 * 10**8 + 10**7 + 21)


@pytest.mark.parametrize(
    ("table", "share"),
    [
        (((1, 1.0),), 4 / 3),
        (((1, 1.0), (3, 0.5)), 8 / 3),  # from 3 on the network gives half of its bandwidth
    ],
)
def test_efficiency_of_the_network(table: tuple[tuple[int, float], ...], share: float) -> None:
    """One sends nothing, two all of it once, three 4/3 of it, over 1 GB/s; rounded up."""
    instance = fleet_instance(7).but(cluster={"network_efficiency": table})
    alone, two, three = exchange_times_ns(instance, PAIR, 3)
    assert (alone, two) == (0, SIZE)
    assert three == pytest.approx(SIZE * share, abs=1)


def test_stages_of_a_node_share_its_link() -> None:
    """All layers on one node, in two stages or in one on two GPUs: 4e8 + 2e7 parameters."""
    two = template_of((0,), [(0, 0), (0, 1)], (0, 3, 6))
    one = Template(node_groups=(0,), stages=(stage_on(layers=(0, 6), node=0, first_gpu=0, gpus=2),))
    designs = (Design(template=template, strategy=FLEET_STRATEGY) for template in (two, one))
    times = [exchange_times_ns(fleet_instance(7), design, 2)[1] for design in designs]
    # 7 parameters of every layer are on both GPUs of a tensor-parallel group
    assert times == [4 * (42 * 10**7 + 42), 4 * (42 * 10**7 + 84)]


def test_latency_of_every_message_of_the_ring() -> None:
    """Among 3 pipelines a ring all-reduce has 4 messages one after the other: 4 us."""
    instance = fleet_instance(7)
    [group] = instance.cluster.groups
    slow = group.but(inter_node=Link(bandwidth_bytes_per_s=1e9, latency_s=1e-6))
    late = exchange_times_ns(instance.but(cluster={"groups": (slow,)}), PAIR, 3)
    assert late[2] - exchange_times_ns(instance, PAIR, 3)[2] == 4000


def test_slowest_start_of_unlike_nodes() -> None:
    """Links of 1 and of 3 us: a ring of three pipelines has 4 messages of 3 us."""
    instance = fleet_instance(4, 3)
    template = Template(node_groups=(0, 1), stages=PAIR.template.stages)
    mixed = Design(template=template, strategy=FLEET_STRATEGY)
    late = tuple(
        group.but(inter_node={"latency_s": latency_s})
        for group, latency_s in zip(instance.cluster.groups, (1e-6, 3e-6), strict=True)
    )
    slow = exchange_times_ns(instance.but(cluster={"groups": late}), mixed, 3)
    assert slow[2] - exchange_times_ns(instance, mixed, 3)[2] == 12_000


def test_sync_of_single_stages_hides() -> None:
    """Three quarters behind the backward passes of one stage, nothing of two."""
    plain = fleet_instance(7)
    hidden = plain.but(search={"overlap": Overlap(gradient_sync=0.75)})
    for cuts, seen in (((0, 6), 0.25), ((0, 3, 6), 1)):
        template = template_of((0,), [(0, k) for k in range(len(cuts) - 1)], cuts)
        design = Design(template=template, strategy=FLEET_STRATEGY)
        times = [exchange_times_ns(instance, design, 2)[1] for instance in (plain, hidden)]
        assert times[1] == pytest.approx(seen * times[0], abs=2)
