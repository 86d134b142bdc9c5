"""Step time and memory of templates: the simulator's word, without any search."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from formulations.costs.template_costs import PipelineTimes, template_costs
from formulations.instance import Instance
from formulations.template import Template, stage_on
from solver.enumeration.enumerate import below
from solver.layered.gpu_graph import Counts
from solver.layered.places import PlaceCosts, Places
from solver.layered.problem import Array
from solver.result import Status
from solver.simulate import pipeline_step_ns
from solver.templates.kept_templates import Found
from solver.templates.template_options import TemplateObjective, TemplateOptions
from solver.templates.template_result import TemplateResult


def places_for(costs: PlaceCosts, template: Template) -> Places:
    """The tables that hold for a template."""
    return costs.alone if template.num_stages == 1 else costs.several


def stage_places(places: Places, template: Template) -> list[int]:
    """Place of every stage. Raises KeyError for a stage that fits no place."""
    known = {(j, g): c for c, (j, g) in enumerate(zip(places.group, places.gpus, strict=True))}
    return [known[template.group_of(stage), stage.degrees.tp] for stage in template.stages]


def fits(costs: PlaceCosts, template: Template, micro_batches: int) -> bool:
    """Whether every stage has room for its layers and the micro-batches in flight."""
    places, p = places_for(costs, template), template.num_stages
    each = zip(stage_places(places, template), template.stages, strict=True)
    return all(
        places.fits(place, places.held(p, k, micro_batches))[stage.layers]
        for k, (place, stage) in enumerate(each)
    )


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
    times = PipelineTimes(
        schedule=places.schedule,
        blocking_sends=places.blocking,
        tied=places.tied,
        forward_ns=places.forward[layers],
        backward_ns=places.backward[layers] + np.array(again),
        send_ns=_of_sides(places.send, sides),
        send_back_ns=_of_sides(places.send_back, sides),
        optimizer_ns=places.finish[layers],
        embedding_ns=int(places.embedding[between, [own[0], own[-1]]].max()),
    )
    return pipeline_step_ns(times, micro_batches)


def _of_sides(table: Array, sides: tuple[list[int], list[int], list[int]]) -> Array:
    return table[tuple(np.array(one, dtype=np.int64) for one in sides)]


def alone(places: Places, finals: Sequence[Counts], micro_batches: int) -> list[Template]:
    """Templates of one stage on one whole node that have room for so many micro-batches."""
    held, whole, found = places.held(1, 0, micro_batches), (0, places.num_layers), list[Template]()
    for j, gpus in enumerate(places.node_gpus):
        place = places.of_group(j).get(gpus)
        one_node = any(v[j] == 1 == sum(v) for v in finals)
        if place is not None and one_node and places.fits(place, held)[whole]:
            stage = stage_on(whole, 0, 0, gpus, places.memory.recomputed(place, held, whole))
            found.append(Template(node_groups=(j,), stages=(stage,)))
    return found


def judged(
    instance: Instance, options: TemplateOptions, mix: Counts, micro_batches: int, found: Found
) -> TemplateResult:
    """What a search has found for a mix of nodes, with the simulated step and what is proved."""
    outcome, strategy = found
    template, value = outcome.template, outcome.value
    if template is None or value is None or strategy is None:
        status = Status.INFEASIBLE if outcome.complete else Status.UNKNOWN
        return TemplateResult(sum(mix), micro_batches, outcome, None, None, status)
    costs = template_costs(instance, strategy, template)
    step_ns = pipeline_step_ns(costs, micro_batches)
    if options.objective is TemplateObjective.STEP_TIME:
        assert step_ns == value, (step_ns, value)
    proved = outcome.bound >= below(value, options.gap)
    status = Status.OPTIMAL if proved else Status.FEASIBLE
    return TemplateResult(sum(mix), micro_batches, outcome, strategy, step_ns, status)
