"""What stages of a template cost, and the exchange of gradients between pipelines, by hand."""

import pytest

from formulations.costs.template_costs import exchange_times_ns, template_costs
from formulations.fleet import Design, Strategy
from formulations.instance import Instance, Link
from formulations.instance.search import Overlap
from formulations.template import Template, stage_on
from tests.equal_nodes import equal_nodes
from tests.random_fleets import STRATEGY as FLEET_STRATEGY
from tests.random_fleets import even_designs, fleet_instance
from tests.small_instances import layer, workload

STRATEGY = Strategy(micro_batch=1, recompute=("none",), schedule="1f1b")
CUTS = ((0, 2), (2, 4))
#: Two GPUs of a node, and one of each of two.
INSIDE = Template(
    node_groups=(0,),
    stages=tuple(
        stage_on(layers=layers, node=0, first_gpu=k, gpus=1) for k, layers in enumerate(CUTS)
    ),
)
BETWEEN = Template(
    node_groups=(0, 0),
    stages=tuple(
        stage_on(layers=layers, node=k, first_gpu=0, gpus=1) for k, layers in enumerate(CUTS)
    ),
)


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


PAIR = even_designs(range(2, 3))[0]
#: Bytes of gradients, 4 each, on the node that holds two blocks and the head.
SIZE = 4 * (2 * 10**8 + 10**7 + 21)


def with_efficiency(instance: Instance, *table: tuple[int, float]) -> Instance:
    """The instance with another network efficiency."""
    return instance.but(cluster={"network_efficiency": table})


def test_one_pipeline_exchanges_nothing() -> None:
    """Two send all of it once, three 4/3 of it, over 1 GB/s; rounded up to a nanosecond."""
    found = exchange_times_ns(fleet_instance(7), PAIR, 3)
    assert found[:2] == (0, SIZE)
    assert found[2] == pytest.approx(SIZE * 4 / 3, abs=1)


def test_efficiency_of_the_network_by_pipelines() -> None:
    """From 3 on the network gives half of its bandwidth: 8/3 of the bytes' time."""
    instance = with_efficiency(fleet_instance(7), (1, 1.0), (3, 0.5))
    found = exchange_times_ns(instance, PAIR, 3)
    assert found[1] == SIZE
    assert found[2] == pytest.approx(SIZE * 8 / 3, abs=1)


def test_stages_of_a_node_share_its_link() -> None:
    """All layers on one node, in two stages or in one on two GPUs: 4e8 + 2e7 parameters."""
    instance = fleet_instance(7)
    two = Template(
        node_groups=(0,),
        stages=(
            stage_on(layers=(0, 3), node=0, first_gpu=0, gpus=1),
            stage_on(layers=(3, 6), node=0, first_gpu=1, gpus=1),
        ),
    )
    one = Template(node_groups=(0,), stages=(stage_on(layers=(0, 6), node=0, first_gpu=0, gpus=2),))
    times = [
        exchange_times_ns(instance, Design(template=template, strategy=FLEET_STRATEGY), 2)[1]
        for template in (two, one)
    ]
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
    for stages, seen in (((0, 6),), 0.25), (((0, 3), (3, 6)), 1):
        template = Template(
            node_groups=(0,),
            stages=tuple(
                stage_on(layers=layers, node=0, first_gpu=k, gpus=1)
                for k, layers in enumerate(stages)
            ),
        )
        design = Design(template=template, strategy=FLEET_STRATEGY)
        whole, left = (exchange_times_ns(one, design, 2)[1] for one in (plain, hidden))
        assert left == pytest.approx(seen * whole, abs=2)
