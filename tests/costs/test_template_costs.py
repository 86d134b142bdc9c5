"""What stages of a template cost, and the exchange of gradients between pipelines, by hand."""

import random

import numpy as np
import pytest

from formulations.costs.template_costs import exchange_times_ns, template_costs
from formulations.fleet import Design, Template, stage_on
from tests.equal_nodes import equal_nodes
from tests.random_configs import zoned
from tests.random_fleets import (
    STRATEGY,
    enlarged,
    even_designs,
    fleet_instance,
    random_template,
    template_of,
)
from tests.recorded import as_recorded, summary
from tests.small_instances import layer, workload

#: Two GPUs of a node, and one of each of two.
INSIDE = template_of((0,), [(0, 0), (0, 1)], (0, 2, 4))
BETWEEN = template_of((0, 0), [(0, 0), (1, 0)], (0, 2, 4))


def test_costs_are_the_recorded_ones() -> None:
    """Passes, messages, tied matrix, memory and exchanges of random templates, in zones too."""
    figures: dict[str, object] = {}
    for seed in range(24):
        instance, rng = enlarged(seed), random.Random(seed)
        instance = instance if seed % 3 else zoned(instance, seed)
        groups, num_layers = instance.cluster.groups, len(instance.workload.layers)
        nodes = tuple(rng.choices(range(len(groups)), k=rng.randint(1, 3)))
        template = random_template(rng, num_layers, nodes, [g.gpus_per_node for g in groups])
        if seed % 5 == 1:  # both GPUs of the nodes of two
            stage = stage_on(
                layers=(0, num_layers), node=0, first_gpu=0, gpus=groups[0].gpus_per_node
            )
            template = Template(node_groups=(0,), stages=(stage,))
        strategy = STRATEGY.but(micro_batch=rng.choice([1, 2]), recompute=("none", "full"))
        costs = template_costs(instance, strategy, template)
        arrays = [value for value in vars(costs).values() if isinstance(value, np.ndarray)]
        design = Design(template=template, strategy=strategy)
        exchanges = list(exchange_times_ns(instance, design, 4))
        used = costs.used_bytes(3), costs.fits(1), costs.fits(100), costs.embedding_ns
        figures[f"{seed}"] = summary([arrays, used, exchanges])
    as_recorded("template_costs", figures)


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


def test_slowest_start_of_unlike_nodes() -> None:
    """Links of 1 and of 3 us: a ring of three pipelines has 4 messages of 3 us."""
    instance = fleet_instance(4, 3)
    template = Template(node_groups=(0, 1), stages=PAIR.template.stages)
    mixed = Design(template=template, strategy=STRATEGY)
    late = tuple(
        group.but(inter_node={"latency_s": latency_s})
        for group, latency_s in zip(instance.cluster.groups, (1e-6, 3e-6), strict=True)
    )
    slow = exchange_times_ns(instance.but(cluster={"groups": late}), mixed, 3)
    assert slow[2] - exchange_times_ns(instance, mixed, 3)[2] == 12_000
