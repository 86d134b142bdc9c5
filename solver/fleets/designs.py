"""The templates that fleets of an instance are formed from, before and after failures.

All have one micro-batch size; they are of several sizes, and of every mix of nodes of a size.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

from formulations.costs.template_costs import template_costs
from formulations.coverage import consecutive_for_merging
from formulations.fleet import Design
from formulations.instance import Instance
from formulations.schedules import in_flight
from formulations.space import longest_pipeline, micro_batches
from solver.fleets.distribution import shortest
from solver.fleets.step_times import kinds_of
from solver.interrupt import GRACE_S, TimeUp, time_up_after
from solver.study.store import Study
from solver.templates.generate import (
    NoTemplateError,
    TemplateGenerator,
    TemplateOptions,
    TemplateResult,
)

#: Share of the time limit that all candidates together may take.
CHOICE_SHARE = 0.3


def designs_of(results: Sequence[TemplateResult]) -> tuple[Design, ...]:
    """The templates that were found, each once with its strategy: the last one."""
    designs = (result.design for result in results)
    return tuple({one.template: one for one in designs if one is not None}.values())


def generator_for(
    instance: Instance,
    options: TemplateOptions,
    faults: int,
    report: Callable[[int, int], None] = lambda done, total: None,
    study: Study | None = None,
) -> TemplateGenerator:
    """A generator of templates with the micro-batch size asked for, or else a good one.

    Of the sizes that the instance allows, those with which fewest nodes n0 hold the model; of
    these, the one with the least `_step_ns`. Raises NoTemplateError where no template fits.
    """
    sizes = micro_batches(instance)
    if options.micro_batch is not None or len(sizes) == 1:
        size = sizes[0] if options.micro_batch is None else options.micro_batch
        return TemplateGenerator(instance, replace(options, micro_batch=size), report, study=study)
    first = replace(options, micro_batch=sizes[0])
    base = TemplateGenerator(instance, first, report, study=study)
    start_s, limit_s = perf_counter(), options.time_limit_s
    # Sizes with which fewest nodes hold the model.
    fewest, fitting = sum(base.mixes.available), list[int]()
    with base.in_time():
        for size in sizes:
            nodes = base.again(micro_batch=size).least_up_to(fewest)
            if nodes is not None:
                fitting = [*(fitting if nodes == fewest else []), size]
                fewest = nodes
        if not fitting:
            raise NoTemplateError(base.too_small)
    steps = _steps_ns(base, fitting, fewest, faults)
    best = min(fitting, key=lambda b: steps.get(b, float("inf")))
    rest_s = None if limit_s is None else max(0.0, limit_s - (perf_counter() - start_s))
    generator = base.again(report, micro_batch=best, time_limit_s=rest_s)
    generator.least_nodes = fewest
    return generator


def _steps_ns(
    base: TemplateGenerator, sizes: Sequence[int], nodes: int, faults: int
) -> dict[int, float]:
    """`_step_ns` by size, as far as CHOICE_SHARE of the time allows."""
    limit_s = base.options.time_limit_s
    all_s = None if limit_s is None else limit_s * CHOICE_SHARE
    share_s = None if all_s is None else all_s / len(sizes)
    steps = dict[int, float]()
    try:
        with time_up_after(None if all_s is None else all_s + GRACE_S):
            for size in sizes:
                generator = base.again(micro_batch=size, time_limit_s=share_s)
                steps[size] = _step_ns(generator, nodes, faults)
    except TimeUp:
        pass
    return steps


def _step_ns(generator: TemplateGenerator, nodes: int, faults: int) -> float:
    """Step of pipelines of so many nodes each, cut from the cluster group by group.

    The fastest `faults` + 1 or more, but no more than there are micro-batches; infinite where these
    have no room for the step.
    """
    designs = designs_of(generator.by_mix([nodes]))
    if not designs:
        return float("inf")
    times_of = {kind.nodes: kind.times_ns for kind in kinds_of(generator.instance, designs)}
    order = [j for j, count in enumerate(generator.mixes.available) for _ in range(count)]
    parts = [order[at : at + nodes] for at in range(0, len(order) - nodes + 1, nodes)]
    mixes = [tuple(part.count(j) for j in range(len(generator.mixes.available))) for part in parts]
    times = sorted((times_of[mix] for mix in mixes if times_of.get(mix)), key=lambda ns: ns[0])
    total = generator.instance.workload.global_batch // generator.micro_batch
    steps = list[int]()
    for count in range(faults + 1, min(len(times), total) + 1):
        # Of pipelines that are equally fast all are taken.
        ends = count in (len(times), total) or times[count][0] > times[count - 1][0]
        if ends and sum(map(len, times[:count])) >= total:
            shares = shortest(times[:count], total)
            steps.append(max(ns[m - 1] for ns, m in zip(times, shares, strict=False)))
    return min(steps, default=float("inf"))


def fleet_sizes(generator: TemplateGenerator, faults: int) -> range:
    """Sizes of the pipelines of fleets that survive so many failures, from n0 on.

    All that merging asks for, and all up to an equal share of the nodes for each of f + 1 pipelines
    whose nodes have a block each: where links are slow, few long pipelines exchange less.
    """
    least, total = generator.least_nodes or 1, sum(generator.mixes.available)
    share = min(total // (faults + 1), longest_pipeline(generator.instance))
    largest = max(share, *consecutive_for_merging(least, faults))
    return range(least, min(largest, total) + 1)


def fleet_templates(generator: TemplateGenerator, sizes: Sequence[int]) -> list[TemplateResult]:
    """The best template of every mix of node groups of these sizes, from n0 on, and some more.

    With them there is a fleet as long as the nodes that remain hold the model in any way: of
    mixes of fewer nodes than n0 that hold it, those of larger GPUs; and for mixes whose template
    has room for its share of a step only, one with room for all micro-batches. By size.
    """
    start_s, groups = perf_counter(), len(generator.mixes.available)
    instance, options = generator.instance, generator.options
    results = _of_mixes(generator, sizes)
    total = instance.workload.global_batch // generator.micro_batch
    roomy, cramped = set[tuple[int, ...]](), set[tuple[int, ...]]()
    for design in filter(None, (result.design for result in results)):
        costs = template_costs(instance, design.strategy, design.template)
        (roomy if costs.fits(total) else cramped).add(design.template.counts(groups))
    if cramped <= roomy:
        return results
    # The same for as many micro-batches as are ever in flight of a step, in the time that remains.
    layers = len(instance.workload.layers)
    in_step = max(in_flight(name, layers, 0, total) for name in instance.search.schedule)
    rest_s = None
    if options.time_limit_s is not None:
        rest_s = max(0.0, options.time_limit_s - (perf_counter() - start_s))
    whole_steps = generator.again(micro_batches=in_step, time_limit_s=rest_s)
    nodes = range(1, min(2 * (whole_steps.least_nodes or 1), sum(generator.mixes.available) + 1))
    for result in _of_mixes(whole_steps, sorted({*nodes, *sizes})):
        template = result.outcome.template
        if template is not None and template.counts(groups) not in roomy:
            results.append(result)
    return sorted(results, key=lambda result: result.nodes)


def _of_mixes(generator: TemplateGenerator, sizes: Sequence[int]) -> list[TemplateResult]:
    """Of every mix of these sizes, and of those of fewer nodes than n0 that hold the model."""
    least = generator.least_nodes or 1
    several = len(generator.mixes.available) > 1
    smaller = range(1, least) if several else range(0)
    results = generator.by_mix(sorted({*smaller, *sizes}))
    return [one for one in results if one.nodes >= least or one.outcome.template is not None]
