"""What `templates --json` prints: the sizes, why they are enough, and the template of each."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

from formulations.coverage import consecutive_for_merging, proof, ways
from formulations.fleet import Design, Strategy
from formulations.instance.record import Record
from formulations.node_sharing import NodeSplit
from formulations.pipelines import InstantiationProblem, PipelineKind
from formulations.template import Template
from formulations.units import seconds
from solver.fleet_document import TemplateBound, TemplateClaims
from solver.fleets.fleet_templates import distinct, fleet_sizes, fleet_templates
from solver.fleets.instantiate import instantiate
from solver.layered.problem import INFINITY
from solver.result import Status
from solver.templates.generate import TemplateGenerator
from solver.templates.template_options import TemplateObjective
from solver.templates.template_result import NoTemplateError, TemplateResult
from solver.templates.template_set import (
    fewest_sizes,
    merging_range,
    worst_rebuilt_in,
)


class TemplateEntry(Record):
    """The best template of one size, or of one mix of nodes.

    value_s, bound_s: of the objective; no template is below the bound. step_time_s: simulated
    step of one pipeline with these micro-batches. None where there is no template.
    """

    nodes: int
    micro_batches: int
    status: Status
    value_s: float | None
    bound_s: float | None
    gap: float | None
    step_time_s: float | None
    strategy: Strategy | None
    template: Template | None


class TemplatesDocument(Record):
    """Templates of one instance.

    least_nodes: n0, the fewest nodes of which every choice holds the model. sizes: from n0 on,
    enough to survive and to merge; `fleet_sizes` and `fleet_templates` say of which mixes there are
    templates. coverage: why numbers of nodes from (f + 1) n0 on are sums of f + 1 sizes or more;
    pipelines: of how many, for each number that the cluster has. fewest_sizes: a set with fewest
    sizes that covers them all; fewest_proved: by CP-SAT. rebuilt, rebuilt_by_fewest: most pipelines
    that one failure takes apart, on `rebuilt_nodes` (least and most) nodes, with either set; None
    where the cluster has no node to spare. Without (f + 1) n0 nodes, f + 1 pipelines are of choices
    of fewer nodes than n0, and nothing is said of other numbers of nodes.
    """

    schema_version: Literal[2] = 2
    instance: str
    faults: int
    objective: TemplateObjective
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

    @property
    def designs(self) -> tuple[Design, ...]:
        """The templates found, each with its strategy."""
        return distinct(
            Design(template=one.template, strategy=one.strategy)
            for one in self.templates
            if one.template is not None and one.strategy is not None
        )

    @property
    def claims(self) -> TemplateClaims | None:
        """What the entries claim of `designs`, in seconds; None by another objective."""
        if self.objective is not TemplateObjective.STEP_TIME:
            return None
        entry_of = {entry.template: entry for entry in self.templates}
        entries = [entry_of[design.template] for design in self.designs]
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


def templates_document(generator: TemplateGenerator, faults: int) -> TemplatesDocument:
    """The templates that survive so many node failures, of every mix of node groups.

    Raises NoTemplateError where the cluster cannot run f + 1 pipelines.
    """
    instance, options = generator.instance, generator.options
    least, total = _least_nodes(generator), sum(generator.mixes.available)
    needed = (
        f"{faults + 1} pipelines of {least} nodes or more need {(faults + 1) * least} nodes, the "
        f"cluster has {total}"
    )
    covered = (faults + 1) * least <= total
    if not covered and len(generator.mixes.available) == 1:
        raise NoTemplateError(
            f"--faults {faults}: {needed}; allowed: up to {total // least - 1} faults"
        )
    sizes = tuple(n for n in consecutive_for_merging(least, faults) if n <= total)
    found = fleet_templates(generator, fleet_sizes(generator, faults))
    if not covered and (most := _most_pipelines(generator, found)) <= faults:
        raise NoTemplateError(
            f"--faults {faults}: the nodes are enough for {most} pipelines at once, not for "
            f"{faults + 1}; allowed: up to {most - 1} faults"
        )
    document = TemplatesDocument(
        instance=instance.name,
        faults=faults,
        objective=options.objective,
        split=options.split,
        micro_batch=generator.micro_batch,
        available=total,
        node_groups=tuple(group.name for group in instance.cluster.groups),
        least_nodes=least,
        sizes=sizes,
        coverage=(f"Of any nodes, {needed}: there are as many only of smaller choices.",),
        templates=tuple(map(_entry, found)),
    )
    return _with_coverage(document) if covered else document


def _most_pipelines(generator: TemplateGenerator, found: Sequence[TemplateResult]) -> int:
    """Most pipelines of the templates that the nodes are enough for, all at once."""
    groups = len(generator.mixes.available)
    mixes = {one.outcome.template.counts(groups) for one in found if one.outcome.template}
    kinds = tuple(PipelineKind(mix, [0]) for mix in sorted(mixes))

    def too_many(pipelines: int) -> bool:
        problem = InstantiationProblem(
            kinds, generator.mixes.available, pipelines - 1, pipelines, all_nodes=False
        )
        return instantiate(problem) is None

    return bisect_left(range(1, sum(generator.mixes.available) + 1), True, key=too_many)


def _with_coverage(document: TemplatesDocument) -> TemplatesDocument:
    """With the argument that there are enough sizes, and what fewer would do."""
    least, faults, total = document.least_nodes, document.faults, document.available
    range_ = range((faults + 1) * least, total + 1)
    fewest = fewest_sizes(range_, least, faults)
    tried = merging_range(least, faults, total)
    return document.but(
        coverage=proof(document.sizes, faults),
        pipelines=ways(document.sizes, faults, range_),
        fewest_sizes=fewest.sizes,
        fewest_proved=fewest.fewest,
        rebuilt_nodes=(tried[0], tried[-1]) if tried else None,
        rebuilt=worst_rebuilt_in(document.sizes, faults, tried),
        rebuilt_by_fewest=worst_rebuilt_in(fewest.sizes, faults, tried),
    )


def _least_nodes(generator: TemplateGenerator) -> int:
    if generator.least_nodes is None:
        raise NoTemplateError(generator.too_small)
    return generator.least_nodes


def _entry(found: TemplateResult) -> TemplateEntry:
    outcome = found.outcome
    return TemplateEntry(
        nodes=found.nodes,
        micro_batches=found.micro_batches,
        status=found.status,
        value_s=None if outcome.value is None else seconds(outcome.value),
        bound_s=seconds(outcome.bound) if outcome.bound < INFINITY else None,
        gap=found.gap,
        step_time_s=None if found.step_ns is None else seconds(found.step_ns),
        strategy=found.strategy,
        template=outcome.template,
    )
