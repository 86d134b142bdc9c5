"""The templates that fleets of an instance are formed from, before and after failures.

All have one micro-batch size; they are of several sizes, and of every mix of nodes of a size.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from formulations.costs.template_costs import template_costs
from formulations.coverage import consecutive_for_merging
from formulations.errors import NoPlanError
from formulations.fleet import Design
from formulations.instance import Instance
from formulations.pipelines import InstantiationProblem
from formulations.schedules.registry import in_flight
from formulations.space.configurations import longest_pipeline, micro_batches
from solver.fleets.instantiate import instantiate
from solver.fleets.step_times import kinds_of
from solver.interrupt import Deadline, TimeUp, time_up_after
from solver.study.store import Study
from solver.templates.generate import (
    TemplateEntry,
    TemplateGenerator,
    TemplateOptions,
)

#: Share of the time limit that all candidates together may take.
CHOICE_SHARE = 0.3


def designs_of(entries: Sequence[TemplateEntry]) -> tuple[Design, ...]:
    """The templates that were found, each once with its strategy: the last one."""
    designs = (entry.design for entry in entries)
    return tuple({design.template: design for design in designs if design is not None}.values())


def generator_for(
    instance: Instance,
    options: TemplateOptions,
    faults: int,
    report: Callable[[int, int], None] = lambda done, total: None,
    study: Study | None = None,
) -> TemplateGenerator:
    """A generator of templates with the micro-batch size asked for, or else a good one.

    Of the sizes that the instance allows, those with which fewest nodes n0 hold the model; of
    these, the one with the least `_step_ns`, as far as CHOICE_SHARE of the time allows. Raises
    NoPlanError where no template fits.
    """
    sizes = micro_batches(instance)
    if options.micro_batch is not None or len(sizes) == 1:
        size = sizes[0] if options.micro_batch is None else options.micro_batch
        return TemplateGenerator(instance, replace(options, micro_batch=size), report, study=study)
    deadline = Deadline(options.time_limit_s)
    first = replace(options, micro_batch=sizes[0])
    base = TemplateGenerator(instance, first, report, study=study)
    # Sizes with which fewest nodes hold the model.
    fewest, fitting = sum(base.mixes.available), list[int]()
    with base.in_time():
        for size in sizes:
            nodes = base.again(micro_batch=size).least_up_to(fewest)
            if nodes is not None:
                fitting = [*(fitting if nodes == fewest else []), size]
                fewest = nodes
        if not fitting:
            raise NoPlanError(base.too_small)
    # Their steps, each in an equal share of the time.
    limit_s, share_s, steps = options.time_limit_s, None, dict[int, float]()
    if limit_s is not None:
        limit_s *= CHOICE_SHARE
        share_s = limit_s / len(fitting)
    try:
        with time_up_after(Deadline(limit_s).end_s):
            for size in fitting:
                candidate = base.again(micro_batch=size, time_limit_s=share_s)
                steps[size] = _step_ns(candidate, fewest, faults)
    except TimeUp:
        pass
    best = min(fitting, key=lambda size: steps.get(size, inf))
    generator = base.again(report, micro_batch=best, time_limit_s=deadline.left_s)
    generator.least_nodes = fewest
    return generator


def _step_ns(generator: TemplateGenerator, nodes: int, faults: int) -> float:
    """Step of the best pipelines of so many nodes each, but for their exchange of gradients.

    `faults` + 1 or more of them; infinite where these have no room for the step.
    """
    designs = designs_of(generator.by_mix([nodes]))
    if not designs:
        return inf
    kinds = (replace(kind, exchanges_ns=()) for kind in kinds_of(generator.instance, designs))
    total = generator.instance.workload.global_batch // generator.micro_batch
    problem = InstantiationProblem(
        tuple(kinds), generator.mixes.available, faults, total, all_nodes=False
    )
    best = instantiate(problem)
    return inf if best is None else best.step_ns(problem)


def fleet_sizes(generator: TemplateGenerator, faults: int) -> range:
    """Sizes of the pipelines of fleets that survive so many failures, from n0 on.

    All that merging asks for, and all up to an equal share of the nodes for each of f + 1 pipelines
    whose nodes have a block each: where links are slow, few long pipelines exchange less.
    """
    least_nodes, total = generator.least_nodes or 1, sum(generator.mixes.available)
    share = min(total // (faults + 1), longest_pipeline(generator.instance))
    largest = max(share, *consecutive_for_merging(least_nodes, faults))
    return range(least_nodes, min(largest, total) + 1)


def fleet_templates(generator: TemplateGenerator, sizes: Sequence[int]) -> list[TemplateEntry]:
    """The best template of every mix of node groups of these sizes, from n0 on, and some more.

    With them there is a fleet as long as the nodes that remain hold the model in any way: of
    mixes of fewer nodes than n0 that hold it, those of larger GPUs; and for mixes whose template
    has room for its share of a step only, one with room for all micro-batches. By size.
    """
    groups, deadline = len(generator.mixes.available), Deadline(generator.options.time_limit_s)
    instance = generator.instance
    entries = _of_mixes(generator, sizes)
    total = instance.workload.global_batch // generator.micro_batch
    roomy, cramped = set[tuple[int, ...]](), set[tuple[int, ...]]()
    for design in designs_of(entries):
        costs = template_costs(instance, design.strategy, design.template)
        (roomy if costs.fits(total) else cramped).add(design.template.counts(groups))
    if cramped <= roomy:
        return entries
    # The same for as many micro-batches as are ever in flight of a step, in the time that remains.
    layers = len(instance.workload.layers)
    in_step = max(in_flight(name, layers, 0, total) for name in instance.search.schedule)
    all_of_step = generator.again(micro_batches=in_step, time_limit_s=deadline.left_s)
    nodes = range(1, min(2 * (all_of_step.least_nodes or 1), sum(generator.mixes.available) + 1))
    for entry in _of_mixes(all_of_step, sorted({*nodes, *sizes})):
        if entry.template is not None and entry.template.counts(groups) not in roomy:
            entries.append(entry)
    return sorted(entries, key=lambda entry: entry.nodes)


def _of_mixes(generator: TemplateGenerator, sizes: Sequence[int]) -> list[TemplateEntry]:
    """Of every mix of these sizes, and of those of fewer nodes than n0 that hold the model."""
    least_nodes = generator.least_nodes or 1
    several = len(generator.mixes.available) > 1
    smaller = range(1, least_nodes) if several else range(0)
    entries = generator.by_mix(sorted({*smaller, *sizes}))
    return [entry for entry in entries if entry.nodes >= least_nodes or entry.template is not None]
