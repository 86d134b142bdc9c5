"""The templates that fleets of an instance are formed from, before and after failures."""

from collections.abc import Iterable, Sequence
from time import perf_counter

from formulations.costs.template_costs import template_costs
from formulations.coverage import consecutive_for_merging
from formulations.fleet import Design
from formulations.schedules import in_flight
from formulations.space import longest_pipeline
from solver.templates.generate import TemplateGenerator
from solver.templates.template_result import TemplateResult


def distinct(designs: Iterable[Design]) -> tuple[Design, ...]:
    """The designs, one for every template: the last one."""
    return tuple({one.template: one for one in designs}.values())


def designs_of(results: Iterable[TemplateResult]) -> tuple[Design, ...]:
    """The templates that were found, each with its strategy."""
    return distinct(
        Design(template=one.outcome.template, strategy=one.strategy)
        for one in results
        if one.outcome.template is not None and one.strategy is not None
    )


def fleet_sizes(generator: TemplateGenerator, faults: int) -> range:
    """Sizes of the pipelines of fleets that survive so many failures, from n0 on.

    All that merging asks for, and all up to an equal share of the nodes for each of f + 1 pipelines
    whose nodes have a block each: where links are slow, few long pipelines exchange less.
    """
    least, total = generator.least_nodes or 1, sum(generator.mixes.available)
    share = min(total // (faults + 1), longest_pipeline(generator.instance))
    most = max(share, *consecutive_for_merging(least, faults))
    return range(least, min(most, total) + 1)


def fleet_templates(generator: TemplateGenerator, sizes: Sequence[int]) -> list[TemplateResult]:
    """The best template of every mix of node groups of these sizes, from n0 on, and some more.

    With them there is a fleet as long as the nodes that are left hold the model in any way: of
    mixes of fewer nodes than n0 that hold it, those of larger GPUs; and for mixes whose template
    has room for its share of a step only, one with room for all micro-batches. By size.
    """
    start_s = perf_counter()
    found = _of_mixes(generator, sizes)
    total = generator.instance.workload.global_batch // generator.micro_batch
    roomy = {_mix(generator, one) for one in found if _has_room(generator, one, total)}
    if all(_mix(generator, one) in roomy for one in found if one.outcome.template is not None):
        return found
    whole = _of_whole_steps(generator, total, perf_counter() - start_s)
    nodes = range(1, min(2 * (whole.least_nodes or 1) - 1, sum(generator.mixes.available)) + 1)
    more = _of_mixes(whole, sorted({*nodes, *sizes}))
    others = [one for one in more if one.outcome.template and _mix(whole, one) not in roomy]
    return sorted([*found, *others], key=lambda one: one.nodes)


def _of_mixes(generator: TemplateGenerator, sizes: Sequence[int]) -> list[TemplateResult]:
    """Of every mix of these sizes, and of those of fewer nodes than n0 that hold the model."""
    least = generator.least_nodes or 1
    several = len(generator.mixes.available) > 1
    smaller = range(1, least) if several else range(0)
    found = generator.by_mix(sorted({*smaller, *sizes}))
    return [one for one in found if one.nodes >= least or one.outcome.template is not None]


def _mix(generator: TemplateGenerator, found: TemplateResult) -> tuple[int, ...]:
    template = found.outcome.template
    return () if template is None else template.counts(len(generator.mixes.available))


def _has_room(generator: TemplateGenerator, found: TemplateResult, micro_batches: int) -> bool:
    template, strategy = found.outcome.template, found.strategy
    if template is None or strategy is None:
        return False
    return template_costs(generator.instance, strategy, template).fits(micro_batches)


def _of_whole_steps(
    generator: TemplateGenerator, micro_batches: int, spent_s: float
) -> TemplateGenerator:
    """The same, for as many micro-batches as are ever in flight of so many; of the time left."""
    layers = len(generator.instance.workload.layers)
    most = max(
        in_flight(schedule, layers, 0, micro_batches)
        for schedule in generator.instance.search.schedule
    )
    limit_s = generator.options.time_limit_s
    left_s = None if limit_s is None else max(0.0, limit_s - spent_s)
    return generator.again(micro_batches=most, time_limit_s=left_s)
