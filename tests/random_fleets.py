"""Templates cut at random, fleets of them on nodes, and instances for both."""

import random
from collections.abc import Iterable
from itertools import pairwise

from formulations.fleet import Design, Pipeline, Strategy, Template, stage_on
from formulations.instance import Cluster, Instance, Limits, Link
from tests.small_instances import gpu, instance_of, layer, nodes_of, random_instance, workload

LAYERS = 6
STRATEGY = Strategy(micro_batch=1, recompute=("none",), schedule="1f1b")


def cluster(nodes: int, others: int = 0) -> Cluster:
    """`nodes` nodes with links of 1 GB/s, and others with 0.5 GB/s; two GPUs each."""
    groups = [
        nodes_of(
            gpu(name, 100, 10),
            gpus_per_node=2,
            nodes=count,
            intra_node=Link(bandwidth_bytes_per_s=1e11, latency_s=0),
            inter_node=Link(bandwidth_bytes_per_s=speed, latency_s=0),
        )
        for name, count, speed in (("a", nodes, 1e9), ("b", others, 5e8))
        if count
    ]
    return Cluster(groups=tuple(groups))


def fleet_instance(nodes: int, others: int = 0) -> Instance:
    """Six layers, 12 sequences a step, room for all layers on one GPU."""
    chain = [layer("embedding", 5, 10**7, 10**6)]
    chain += [layer("block", 20_000, 10**8, 10**7) for _ in range(LAYERS - 2)]
    chain += [layer("head", 10, 10**7, 10**6)]
    work, limits = workload(chain, 12, 10**5, tied=False), Limits(framework_reserve_bytes=0)
    return instance_of("fleet", work, cluster(nodes, others).groups, limits=limits)


def enlarged(seed: int) -> Instance:
    """A random instance with four nodes, two of each group where there are two."""
    instance = random_instance(seed)
    counts = (4,) if len(instance.cluster.groups) == 1 else (2, 2)
    return instance.with_nodes(counts)


def template_of(
    node_groups: tuple[int, ...], places: Iterable[tuple[int, int]], cuts: Iterable[int]
) -> Template:
    """Stages of one GPU, at a node and GPU each; cuts: first layers of stages, and the end."""
    stages = (
        stage_on(layers=layers, node=node, first_gpu=gpu, gpus=1)
        for layers, (node, gpu) in zip(pairwise(cuts), places, strict=True)
    )
    return Template(node_groups=node_groups, stages=tuple(stages))


def even_designs(sizes: range) -> list[Design]:
    """One stage of one GPU per node, blocks spread as evenly as can be."""
    designs = []
    for size in sizes:
        cuts = [0, *((LAYERS - 2) * k // size + 1 for k in range(1, size)), LAYERS]
        template = template_of((0,) * size, [(node, 0) for node in range(size)], cuts)
        designs.append(Design(template=template, strategy=STRATEGY))
    return designs


def random_template(
    rng: random.Random, num_layers: int, node_groups: tuple[int, ...], gpus: list[int]
) -> Template:
    """One to `gpus[j]` stages of one GPU on every node; gpus: per node group."""
    places = [
        (node, gpu)
        for node, group in enumerate(node_groups)
        for gpu in range(rng.randint(1, min(gpus[group], num_layers - len(node_groups) + 1)))
    ]
    while len(places) > num_layers:
        counts = [node for node, _ in places]
        places.remove(next(place for place in places if counts.count(place[0]) > 1))
    cuts = [0, *sorted(rng.sample(range(1, num_layers), len(places) - 1)), num_layers]
    return template_of(node_groups, places, cuts)


def fleet_of(templates: list[Template], first_node: int = 0) -> list[Pipeline]:
    fleet = []
    for template in templates:
        nodes = tuple(range(first_node, first_node + template.num_nodes))
        fleet.append(Pipeline(template, nodes, 1))
        first_node += template.num_nodes
    return fleet
