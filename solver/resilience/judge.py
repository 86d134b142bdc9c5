"""Step time and memory of one template: the simulator's word, without any search."""

from itertools import pairwise

import numpy as np

from formulations.schedules import in_flight, schedule_graph
from formulations.template import Template
from solver.enumeration.problem import Array
from solver.resilience.places import PlaceCosts, Places
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


def step_time(costs: PlaceCosts, template: Template, micro_batches: int) -> int:
    """Simulated step of one pipeline of the template, optimizer included, gradient sync not.

    ns for tables of an instance; the unit of the tables in general.
    """
    places = places_for(costs, template)
    own, stages = stage_places(places, template), template.stages
    starts, ends = np.array([stage.layers for stage in stages]).T
    crosses = [int(a.node != b.node) for a, b in pairwise(stages)]

    def column(values: Array) -> Array:
        return values[own, starts, ends][:, None]

    times = Times(
        column(places.forward),
        column(places.backward),
        places.send[crosses, own[:-1], own[1:]][:, None],
        places.blocking,
        places.send_back[crosses, own[:-1], own[1:]][:, None],
    )
    graph = schedule_graph(places.schedule, template.num_stages, micro_batches)
    ready = simulate(graph, times)[graph.last_backward, 0]
    if places.tied:
        joint = max(ready[0], ready[-1])
        lanes = places.embedding[int(template.num_nodes > 1), [own[0], own[-1]]]
        ready[[0, -1]] = joint + lanes.max()
    return int((ready + column(places.finish)[:, 0]).max())
