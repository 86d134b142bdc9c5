"""Oobleck's template objective, reproduced so that templates can be compared with its planner's.

Jang et al., SOSP 2023, section 4.1.2, as in the public code (SymbioticLab/Oobleck,
csrc/planning/execution_result.h): T1 + T2 + T3 with S stages of forward plus backward times t_i,
k* the slowest of them, the last one of several,

    sum of all t_i + (2 S + k* + 1) t_k* + sum of t_i for i >= k*;     4 t_0 if S = 1.

In the words of `oobleck_search`: a stage before k* adds t_i + 3 t_k*, k* itself 2 t_k* + 3 t_k*,
one after it 2 t_i + 2 t_k*. Check with stages 1, 3, 2:

    6 + (6 + 1 + 1) 3 + 5 = 35 = 1 + 9 + 15 + 4 + 6.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from bench.oobleck_search import BottleneckSearch
from bench.oobleck_tables import Weights
from formulations.costs.template_costs import TemplateCosts
from formulations.fleet import Template
from solver.graph.pipelines import Counts
from solver.graph.places import PlaceCosts, Places
from solver.graph.problem import Array
from solver.simulate import pipeline_step_ns
from solver.templates.step_time import alone

WEIGHTS = Weights(before=(1, 3), slowest=(2, 3), after=(2, 2))


def oobleck_value(times: Sequence[int]) -> int:
    """T1 + T2 + T3 of stage times in pipeline order."""
    return 4 * times[0] if len(times) == 1 else WEIGHTS.value(times)


def stage_times(places: Places, template: Template) -> list[int]:
    """Forward plus backward of every stage."""
    busy: Array = places.forward + places.backward
    own = zip(stage_places(places, template), template.stages, strict=True)
    return [int(busy[place, *stage.layers]) for place, stage in own]


def oobleck_templates(
    costs: PlaceCosts, finals: Mapping[int, Sequence[Counts]]
) -> dict[int, Template]:
    """A template of least T1 + T2 + T3 for every key of `finals` that has one.

    Every stage has room for one micro-batch; more in flight are not looked at.
    """
    found = BottleneckSearch(costs.several, WEIGHTS, finals, 1).run()
    for key, own in finals.items():
        for _, one in alone(costs.alone, own, 1):
            found[key] = _better(costs, found.get(key), one)
    return found


def _better(costs: PlaceCosts, one: Template | None, other: Template) -> Template:
    if one is None or value_of(costs, other) < value_of(costs, one):
        return other
    return one


def value_of(costs: PlaceCosts, template: Template) -> int:
    """T1 + T2 + T3 of a template."""
    return oobleck_value(stage_times(places_for(costs, template), template))


def places_for(costs: PlaceCosts, template: Template) -> Places:
    """The tables that hold for a template."""
    return costs.alone if template.num_stages == 1 else costs.several


def stage_places(places: Places, template: Template) -> list[int]:
    """Place of every stage. Raises KeyError for a stage that fits no place."""
    known = {(j, g): c for c, (j, g) in enumerate(zip(places.group, places.gpus, strict=True))}
    return [known[template.group_of(stage), stage.degrees.tp] for stage in template.stages]


def step_time(costs: PlaceCosts, template: Template, micro_batches: int) -> int:
    """Simulated step, optimizer included, gradient sync not; stages recompute the least that fits.

    ns for tables of an instance; the unit of the tables in general.
    """
    places, stages = places_for(costs, template), template.stages
    own, p = stage_places(places, template), template.num_stages
    layers = np.array(own), *np.array([stage.layers for stage in stages]).T
    crosses = [int(a.group.node != b.group.node) for a, b in pairwise(stages)]
    sides = crosses, own[:-1], own[1:]
    held = [places.held(p, k, micro_batches) for k in range(p)]
    again = [
        int(places.memory.extra(place, one)[stage.layers])
        for place, one, stage in zip(own, held, stages, strict=True)
    ]
    between = int(template.num_nodes > 1)
    none = np.zeros(p, dtype=np.int64)  # memory is looked at by `places`
    times = TemplateCosts(
        schedule=places.schedule,
        blocking_sends=places.blocking,
        forward_ns=places.forward[layers],
        backward_ns=places.backward[layers] + np.array(again),
        send_ns=_of_sides(places.send, sides),
        send_back_ns=_of_sides(places.send_back, sides),
        optimizer_ns=places.finish[layers],
        embedding_ns=int(places.embedding[between, [own[0], own[-1]]].max()),
        memory_bytes=none,
        activation_bytes=none,
        limit_bytes=none,
    )
    return pipeline_step_ns(times, micro_batches)


def _of_sides(table: Array, sides: tuple[list[int], list[int], list[int]]) -> Array:
    return table[tuple(np.array(one, dtype=np.int64) for one in sides)]
