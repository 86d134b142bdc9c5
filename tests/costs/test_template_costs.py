"""What stages of a template cost, and the exchange of gradients between pipelines, by hand."""

import random
from math import ceil

import numpy as np

from formulations.costs.template_costs import exchange_times_ns, template_costs, template_degrees
from formulations.fleet import Design, Template, stage_on
from formulations.node_sharing import NodeSplit
from formulations.plan import Recomputed
from tests.random_configs import zoned
from tests.recorded import Cases, recorded, summary
from tests.small_instances import with_groups
from tests.template_cases import STRATEGY, enlarged, even_designs, fleet_instance, random_template


@recorded("template_costs")
def test_costs_are_the_recorded_ones() -> Cases:
    """Passes, messages, tied matrix, memory and exchanges of random templates, in zones too."""
    for seed in range(24):
        instance, rng = enlarged(seed), random.Random(seed)
        instance = instance if seed % 3 else zoned(instance, 2 * seed + 1)
        groups, num_layers = instance.cluster.groups, len(instance.workload.layers)
        nodes = tuple(rng.choices(range(len(groups)), k=rng.randint(1, 3)))
        template = random_template(rng, num_layers, nodes, [g.gpus_per_node for g in groups])
        if seed % 5 == 1:  # both GPUs of the nodes of two
            stage = stage_on(
                layers=(0, num_layers), node=0, first_gpu=0, gpus=groups[0].gpus_per_node
            )
            template = Template(node_groups=(0,), stages=(stage,))
        if seed % 4 in (0, 2):  # starts that take time
            late = [{"latency_s": 1e-6 * (1 + seed) * j} for j, _ in enumerate(groups, 1)]
            instance = with_groups(instance, inter_node=late)
        if seed % 4 == 3:  # the first block of the last stage is recomputed
            *first, last = template.stages
            last = last.but(recomputed=Recomputed(way="full", blocks=1))
            template = template.but(stages=(*first, last))
        degrees = [
            list(template_degrees(instance, groups[0].but(gpus_per_node=6), s)) for s in NodeSplit
        ]
        strategy = STRATEGY.but(micro_batch=rng.choice([1, 2]), recompute=("none", "full"))
        costs = template_costs(instance, strategy, template)
        arrays = [value for value in vars(costs).values() if isinstance(value, np.ndarray)]
        design = Design(template=template, strategy=strategy)
        exchanges = list(exchange_times_ns(instance, design, 4))
        used = costs.used_bytes(3), costs.fits(1), costs.fits(100), costs.embedding_ns
        yield f"{seed}", summary([arrays, used, exchanges, degrees])


PAIR = even_designs(range(2, 3))[0]
#: Bytes of gradients, 4 each, on the node that holds two blocks and the head.
SIZE = 4 * (2 * 10**8 + 10**7 + 21)


def test_exchange_among_pipelines_by_hand() -> None:
    """One sends nothing, two all of it once, three 4/3 of it, over 1 GB/s; rounded up."""
    assert exchange_times_ns(fleet_instance(7), PAIR, 3)[:2] == (0, SIZE)
    assert exchange_times_ns(fleet_instance(7), PAIR, 3)[2] == ceil(SIZE * 4 / 3)
