"""Templates that fleets of an instance are formed from, and what `templates --json` says of them.

All have one micro-batch size; they are of several sizes, and of every mix of nodes of a size.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Literal

from formulations.costs.template_costs import template_costs
from formulations.coverage import (
    Coverage,
    consecutive_for_merging,
    fewest_sizes,
    proof,
    ways,
    worst_rebuilt,
)
from formulations.errors import NoPlanError, PlannerError
from formulations.fleet import Design
from formulations.instance import Instance
from formulations.instance.record import Record
from formulations.node_sharing import NodeSplit
from formulations.pipelines import InstantiationProblem, PipelineKind
from formulations.schedules.registry import in_flight
from formulations.space.configurations import longest_pipeline, micro_batches
from solver.fleet_document import TemplateBound, TemplateClaims
from solver.fleets.choices import FleetChoices, fleet_choices
from solver.fleets.instantiate import instantiate
from solver.fleets.step_times import kinds_of
from solver.interrupt import Deadline, TimeUp, time_up_after
from solver.study.store import Study
from solver.templates.generate import TemplateEntry, TemplateGenerator, TemplateOptions

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
    sizes = micro_batches(instance) if options.micro_batch is None else [options.micro_batch]
    deadline, first = Deadline(options.time_limit_s), replace(options, micro_batch=sizes[0])
    base = TemplateGenerator(instance, first, report, study=study)
    if len(sizes) == 1:
        return base
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


#: Sizes of templates: the fewest that cover every number of nodes, all of `fleet_sizes`, or these.
Sizes = Literal["fewest", "all"] | tuple[int, ...]


def sizes_of(text: str) -> Sizes:
    """The sizes of a text: fewest, all, or numbers with commas between. Raises PlannerError."""
    if text in ("fewest", "all"):
        return "fewest" if text == "fewest" else "all"
    if re.fullmatch(r"[1-9]\d{0,5}(,[1-9]\d{0,5})*", text) is None:
        raise PlannerError(f"--sizes: {text!r}; allowed: fewest, all, or numbers such as 2,3,4")
    return tuple(sorted({int(size) for size in text.split(",")}))


def fleet_sizes(generator: TemplateGenerator, faults: int, asked: Sizes = "all") -> Sequence[int]:
    """Sizes of the pipelines of fleets that survive so many failures, from n0 on.

    All: those that merging asks for, and up to an equal share of the nodes for each of f + 1
    pipelines whose nodes have a block each: where links are slow, few long pipelines exchange less.
    Raises PlannerError for sizes of which not every number of nodes is a sum.
    """
    least_nodes, total = generator.least_nodes or 1, sum(generator.mixes.available)
    first = (faults + 1) * least_nodes
    if asked != "all" and first > total:
        raise PlannerError(f"--sizes: {total} nodes, fewer than {first}; allowed: all")
    if asked == "fewest":
        return fewest_sizes(least_nodes, faults, total)[0]
    if asked != "all":
        largest, coverage = total - faults * least_nodes, Coverage(asked, faults, total)
        gaps = [n for n in range(first, total + 1) if not coverage.pipelines(n)]
        if gaps or not least_nodes <= asked[0] <= asked[-1] <= largest:
            example = ",".join(map(str, fewest_sizes(least_nodes, faults, total)[0]))
            raise PlannerError(
                f"--sizes: {', '.join(map(str, asked))}"
                + (f", of which {faults + 1} or more do not add up to {gaps[0]}" if gaps else "")
                + f"; allowed: sizes of {least_nodes} to {largest} nodes of which {faults + 1} or "
                f"more add up to every number from {first} to {total}, such as {example}"
            )
        return asked
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


class TemplatesDocument(Record):
    """Templates of one instance.

    least_nodes: n0, the fewest nodes of which every choice holds the model. sizes: from n0 on,
    enough to survive and to merge; `fleet_sizes` and `fleet_templates` say of which mixes there are
    templates. coverage: why numbers of nodes from (f + 1) n0 on are sums of f + 1 sizes or more;
    pipelines: of how many, for each number that the cluster has. fewest_sizes: a set with fewest
    sizes that covers them all; fewest_proved: are there none with fewer? rebuilt,
    rebuilt_by_fewest: most pipelines that one failure takes apart, on `rebuilt_nodes` (least and
    most) nodes, with either set; None where the cluster has no node to spare. Without (f + 1) n0
    nodes, f + 1 pipelines are of choices of fewer nodes than n0, and nothing is said of other
    numbers of nodes. choices: fleets of these templates, and of some of their sizes; None where no
    template was found.
    """

    schema_version: Literal[6] = 6
    instance: str
    faults: int
    split: NodeSplit
    micro_batch: int
    available: int
    node_groups: tuple[str, ...]
    least_nodes: int
    sizes: tuple[int, ...]
    coverage: tuple[str, ...]
    pipelines: tuple[str, ...] = ()
    fewest_sizes: tuple[int, ...] = ()
    fewest_proved: bool = False
    rebuilt_nodes: tuple[int, int] | None = None
    rebuilt: int | None = None
    rebuilt_by_fewest: int | None = None
    templates: tuple[TemplateEntry, ...]
    choices: FleetChoices | None = None

    @property
    def designs(self) -> tuple[Design, ...]:
        """The templates found, each once with its strategy."""
        return designs_of(self.templates)

    @property
    def claims(self) -> TemplateClaims:
        """What the entries claim of `designs`, in seconds."""
        entry_of = {entry.template: entry for entry in self.templates}
        entries = (entry_of[design.template] for design in self.designs)
        bounds = tuple(
            TemplateBound(
                design=n,
                micro_batches=entry.micro_batches,
                step_time_s=entry.step_time_s,
                bound_s=entry.bound_s,
            )
            for n, entry in enumerate(entries)
            if entry.step_time_s is not None and entry.bound_s is not None
        )
        return TemplateClaims(split=self.split, bounds=bounds)


def templates_document(
    generator: TemplateGenerator, faults: int, asked: Sizes = "all"
) -> TemplatesDocument:
    """The templates that survive so many node failures, of every mix of node groups.

    Raises NoPlanError where the cluster cannot run f + 1 pipelines, and as `fleet_sizes`.
    """
    least_nodes, total = generator.least_nodes, sum(generator.mixes.available)
    if least_nodes is None:
        raise NoPlanError(generator.too_small)
    needed = (
        f"{faults + 1} pipelines of {least_nodes} nodes or more need "
        f"{(faults + 1) * least_nodes} nodes, the cluster has {total}"
    )
    covered = (faults + 1) * least_nodes <= total
    if not covered and len(generator.mixes.available) == 1:
        raise NoPlanError(
            f"--faults {faults}: {needed}; allowed: up to {total // least_nodes - 1} faults"
        )
    sizes = fleet_sizes(generator, faults, asked)
    results = fleet_templates(generator, sizes)
    if not covered and (pipelines := _most_pipelines(generator, results)) <= faults:
        raise NoPlanError(
            f"--faults {faults}: the nodes are enough for {pipelines} pipelines at once, not for "
            f"{faults + 1}; allowed: up to {pipelines - 1} faults"
        )
    document = TemplatesDocument(
        instance=generator.instance.name,
        faults=faults,
        split=generator.options.split,
        micro_batch=generator.micro_batch,
        available=total,
        node_groups=tuple(group.name for group in generator.instance.cluster.groups),
        least_nodes=least_nodes,
        sizes=tuple(sizes)
        if asked != "all"
        else tuple(n for n in consecutive_for_merging(least_nodes, faults) if n <= total),
        coverage=(f"Of any nodes, {needed}: there are as many only of smaller choices.",),
        templates=tuple(results),
    )
    document = _with_coverage(document) if covered else document
    sets = {"these": tuple(sizes)}
    if asked == "all":
        sets = {"fewest": document.fewest_sizes, "merging": document.sizes, "all": tuple(sizes)}
    names = dict[tuple[int, ...], str]()
    for name, members in sets.items() if document.designs else ():
        names[members] = f"{names[members]}, {name}" if members in names else name
    # Without them if pipelines are too few for a fleet, mixes of nodes too many, or the time is up
    left_out, end_s = (PlannerError, TimeUp, KeyboardInterrupt), generator.clock.last.end_s
    with suppress(*left_out), time_up_after(end_s):
        choices = fleet_choices(generator.instance, document.designs, faults, names)
        return document.but(choices=choices)
    return document


def _most_pipelines(generator: TemplateGenerator, results: Sequence[TemplateEntry]) -> int:
    """Most pipelines of the templates that the nodes are enough for, all at once."""
    groups = len(generator.mixes.available)
    mixes = sorted({design.template.counts(groups) for design in designs_of(results)})
    kinds = tuple(PipelineKind(mix, [0]) for mix in mixes)

    def too_many(pipelines: int) -> bool:
        problem = InstantiationProblem(
            kinds, generator.mixes.available, pipelines - 1, pipelines, all_nodes=False
        )
        return instantiate(problem) is None

    return bisect_left(range(1, sum(generator.mixes.available) + 1), True, key=too_many)


def _with_coverage(document: TemplatesDocument) -> TemplatesDocument:
    """With the argument that there are enough sizes, and what fewer would do."""
    least_nodes, faults, total = document.least_nodes, document.faults, document.available
    first = (faults + 1) * least_nodes
    fewest, proved = fewest_sizes(least_nodes, faults, total)
    # Numbers of nodes with few pipelines to spare, where merging is hardest, and one above the
    # least: few enough to try every way to run and to lose a node.
    tried = range(first + 1, min(total, first + 2 * least_nodes + 8) + 1)
    return document.but(
        coverage=proof(document.sizes, faults),
        pipelines=ways(document.sizes, faults, range(first, total + 1)),
        fewest_sizes=fewest,
        fewest_proved=proved,
        rebuilt_nodes=(tried[0], tried[-1]) if tried else None,
        rebuilt=worst_rebuilt(document.sizes, faults, tried),
        rebuilt_by_fewest=worst_rebuilt(fewest, faults, tried),
    )
