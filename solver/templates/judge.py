"""Step time and memory of templates: the simulator's word, without any search."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from formulations.schedules import in_flight, schedule_graph
from formulations.template import Template, TemplateStage
from solver.layered.gpu_graph import Counts
from solver.layered.places import PlaceCosts, Places
from solver.layered.problem import Array
from solver.simulate import Times, simulate


def places_for(costs: PlaceCosts, template: Template) -> Places:
    """The tables that hold for a template."""
    return costs.alone if template.num_stages == 1 else costs.several


def stage_places(places: Places, template: Template) -> list[int]:
    """Place of every stage. Raises KeyError for a stage that fits no place."""
    known = {(j, g): c for c, (j, g) in enumerate(zip(places.group, places.gpus, strict=True))}
    return [known[template.node_groups[stage.node], stage.gpus] for stage in template.stages]


def fits(costs: PlaceCosts, template: Template, micro_batches: int) -> bool:
    """Whether every stage has room for its layers and the micro-batches in flight."""
    places = places_for(costs, template)
    p = template.num_stages
    return all(
        places.room[place, *stage.layers] >= in_flight(places.schedule, p, k, micro_batches)
        for k, (place, stage) in enumerate(
            zip(stage_places(places, template), template.stages, strict=True)
        )
    )


@dataclass(frozen=True)
class Stages:
    """N templates of p stages: [p, N] place, first layer and end; [p - 1, N] is a node crossed."""

    place: Array
    start: Array
    end: Array
    crosses: Array


def simulated(places: Places, stages: Stages, micro_batches: int) -> Array:
    """[N] simulated steps, optimizer included, gradient sync not.

    ns for tables of an instance; the unit of the tables in general.
    """
    own, layers = stages.place, (stages.place, stages.start, stages.end)
    sides = stages.crosses, own[:-1], own[1:]
    times = Times(
        places.forward[layers],
        places.backward[layers],
        places.send[sides],
        places.blocking,
        places.send_back[sides],
    )
    graph = schedule_graph(places.schedule, len(own), micro_batches)
    ready = simulate(graph, times)[graph.last]
    if places.tied:
        joint = np.maximum(ready[0], ready[-1])
        between = stages.crosses.any(axis=0).astype(np.int64)
        ready[[0, -1]] = joint + places.embedding[between, own[[0, -1]]].max(axis=0)
    found: Array = (ready + places.finish[layers]).max(axis=0)
    return found


def step_time(costs: PlaceCosts, template: Template, micro_batches: int) -> int:
    """The same of one template."""
    places, stages = places_for(costs, template), template.stages
    layers = np.array([stage.layers for stage in stages])[..., None]
    crosses = [[int(a.node != b.node)] for a, b in pairwise(stages)]
    own = Stages(
        np.array(stage_places(places, template))[:, None],
        layers[:, 0],
        layers[:, 1],
        np.array(crosses, dtype=np.int64).reshape(-1, 1),
    )
    return int(simulated(places, own, micro_batches)[0])


def alone(places: Places, finals: Sequence[Counts]) -> list[Template]:
    """Templates of one stage on one whole node that have room for one micro-batch."""
    return [
        Template(
            node_groups=(j,),
            stages=(TemplateStage(layers=(0, places.num_layers), node=0, first_gpu=0, gpus=gpus),),
        )
        for j, gpus in enumerate(places.node_gpus)
        if gpus in places.of_group(j)
        and any(v[j] == 1 == sum(v) for v in finals)
        and places.room[places.of_group(j)[gpus], 0, -1] > 0
    ]
