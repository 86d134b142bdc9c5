"""Templates of least simulated step time, proved optimal: a template is a path of a split problem.

The engine of plans solves it, for pipelines of all numbers of stages together, see
`solver.graph.pipelines`. Where time runs out, the bounds of what is left bound the optimum.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from formulations.fleet import Template, stage_on
from solver.enumeration.engine import solve_split
from solver.graph.edges import has_split
from solver.graph.pipelines import Counts, FreeDegrees
from solver.graph.places import PlaceCosts, Places
from solver.graph.problem import INFINITY
from solver.interrupt import Stop


@dataclass(frozen=True)
class TemplateOutcome:
    """What is known of the templates of some nodes.

    template, value: the best template below the cutoff, and its step in ns; None if none was found.
    bound: no template of the nodes is below it, unless it is the value. complete: the search ran to
    its end, so without a template none is below the cutoff.
    """

    template: Template | None
    value: int | None
    bound: int
    complete: bool


def best_template(
    costs: PlaceCosts,
    finals: Sequence[Counts],
    micro_batches: int,
    stop: Stop,
    *,
    cutoff: int | None = None,
    gap: float = 0.0,
) -> TemplateOutcome:
    """The best template on any of these node counts, all of equally many nodes.

    cutoff: only templates below it are of interest.
    """
    limit = int(INFINITY) if cutoff is None else cutoff
    best, value = None, None
    for step, template in alone(costs.alone, finals, micro_batches):
        if step < limit:
            best, value, limit = template, step, step
    graph = FreeDegrees(costs.several, finals, micro_batches)
    problem = graph.problem
    if not has_split(problem):
        return TemplateOutcome(best, value, limit, True)
    outcome = solve_split(problem, limit, gap, stop)
    bound_ns = max(outcome.bound_ns, graph.least_ns())
    if outcome.arcs is not None and outcome.split is not None and outcome.step_time_ns is not None:
        best = graph.template(outcome.arcs.tolist(), outcome.split.tolist())
        value = limit = outcome.step_time_ns
    return TemplateOutcome(best, value, min(bound_ns, limit), outcome.complete)


def alone(
    places: Places, finals: Sequence[Counts], micro_batches: int
) -> list[tuple[int, Template]]:
    """Templates of one stage on one whole node that have room for it all, each with its step."""
    in_flight, layers = places.held(1, 0, micro_batches), (0, places.num_layers)
    templates = list[tuple[int, Template]]()
    for j, gpus in enumerate(places.node_gpus):
        place = places.of_group(j).get(gpus)
        one_node = any(v[j] == 1 == sum(v) for v in finals)
        if place is not None and one_node and places.fits(place, in_flight)[layers]:
            stage = stage_on(layers, 0, 0, gpus, places.memory.recomputed(place, in_flight, layers))
            passes = places.forward[place] + places.backward[place]
            passes = passes + places.memory.extra(place, in_flight)
            step = micro_batches * passes[layers] + places.finish[place][layers]
            step += places.tied * places.embedding[0, place]
            templates.append((int(step), Template(node_groups=(j,), stages=(stage,))))
    return templates
