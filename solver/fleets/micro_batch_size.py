"""The micro-batch size of a fleet: one for all its pipelines."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

from formulations.instance import Instance
from formulations.space import micro_batches
from solver.fleets.distribution import shortest
from solver.fleets.fleet_templates import designs_of
from solver.fleets.step_times import kinds_of
from solver.interrupt import GRACE_S, TimeUp, time_up_after
from solver.study.store import Study
from solver.templates.generate import TemplateGenerator
from solver.templates.template_options import TemplateOptions
from solver.templates.template_result import NoTemplateError

#: Share of the time limit that all candidates together may take.
CHOICE_SHARE = 0.3


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
    whole = TemplateGenerator(instance, first, report, study=study)
    start_s, limit_s = perf_counter(), options.time_limit_s
    with whole.in_time():
        fitting, fewest = _with_fewest_nodes(whole, sizes)
    steps = _steps_ns(whole, fitting, fewest, faults)
    best = min(fitting, key=lambda b: steps.get(b, float("inf")))
    left_s = None if limit_s is None else max(0.0, limit_s - (perf_counter() - start_s))
    found = whole.again(report, micro_batch=best, time_limit_s=left_s)
    found.least_nodes = fewest
    return found


def _with_fewest_nodes(whole: TemplateGenerator, sizes: Sequence[int]) -> tuple[list[int], int]:
    """The micro-batch sizes with which fewest nodes hold the model, and how many that are."""
    fewest, fitting = sum(whole.mixes.available), list[int]()
    for size in sizes:
        least = whole.again(micro_batch=size).least_up_to(fewest)
        if least is not None:
            fitting = [*(fitting if least == fewest else []), size]
            fewest = least
    if not fitting:
        raise NoTemplateError(whole.too_small)
    return fitting, fewest


def _steps_ns(
    whole: TemplateGenerator, sizes: Sequence[int], nodes: int, faults: int
) -> dict[int, float]:
    """`_step_ns` by size, as far as CHOICE_SHARE of the time allows."""
    limit_s = whole.options.time_limit_s
    all_s = None if limit_s is None else limit_s * CHOICE_SHARE
    found = dict[int, float]()
    try:
        with time_up_after(None if all_s is None else all_s + GRACE_S):
            for size in sizes:
                share_s = None if all_s is None else all_s / len(sizes)
                one = whole.again(micro_batch=size, time_limit_s=share_s)
                found[size] = _step_ns(one, nodes, faults)
    except TimeUp:
        pass
    return found


def _step_ns(generator: TemplateGenerator, nodes: int, faults: int) -> float:
    """Step of pipelines of so many nodes each, cut from the cluster group by group.

    The fastest `faults` + 1 or more, but no more than there are micro-batches; infinite where these
    have no room for the step.
    """
    designs = designs_of(generator.by_mix([nodes]))
    if not designs:
        return float("inf")
    known = {kind.nodes: kind.times_ns for kind in kinds_of(generator.instance, designs)}
    order = [j for j, count in enumerate(generator.mixes.available) for _ in range(count)]
    parts = [order[at : at + nodes] for at in range(0, len(order) - nodes + 1, nodes)]
    mixes = [tuple(part.count(j) for j in range(len(generator.mixes.available))) for part in parts]
    times = sorted((known[mix] for mix in mixes if known.get(mix)), key=lambda own: own[0])
    total = generator.instance.workload.global_batch // generator.micro_batch
    chosen = [
        times[:count]
        for count in range(faults + 1, min(len(times), total) + 1)
        if count in (len(times), total) or times[count][0] > times[count - 1][0]
    ]
    steps = (_longest_ns(own, total) for own in chosen if sum(map(len, own)) >= total)
    return min(steps, default=float("inf"))


def _longest_ns(times: Sequence[Sequence[int]], total: int) -> int:
    shares = shortest(times, total)
    return max(own[m - 1] for own, m in zip(times, shares, strict=True))
