"""Templates cut at random, and fleets of them on nodes."""

import random
from itertools import pairwise

from formulations.fleet import Pipeline
from formulations.template import Template, TemplateStage


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
    stages = (
        TemplateStage(layers=layers, node=node, first_gpu=gpu, gpus=1)
        for layers, (node, gpu) in zip(pairwise(cuts), places, strict=True)
    )
    return Template(node_groups=node_groups, stages=tuple(stages))


def fleet_of(templates: list[Template], first_node: int = 0) -> list[Pipeline]:
    """Templates on consecutive nodes, with one micro-batch each."""
    fleet = []
    for template in templates:
        nodes = tuple(range(first_node, first_node + template.num_nodes))
        fleet.append(Pipeline(template, nodes, 1))
        first_node += template.num_nodes
    return fleet
