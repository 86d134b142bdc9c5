"""What `templates --json` prints: the sizes, why they are enough, and the template of each."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from formulations.coverage import (
    Coverage,
    consecutive_for_merging,
    least_consecutive,
    proof,
    ways,
    worst_rebuilt,
)
from formulations.errors import PlannerError
from formulations.fleet import Design, Strategy
from formulations.instance.record import Record
from formulations.models.cpsat import CpSat
from formulations.models.template_set import TemplateSet
from formulations.node_sharing import NodeSplit
from formulations.pipelines import InstantiationProblem, PipelineKind
from formulations.template import Template
from formulations.units import seconds
from solver.backends import cpsat
from solver.fleet_document import TemplateBound, TemplateClaims
from solver.fleets.designs import fleet_sizes, fleet_templates
from solver.fleets.instantiate import instantiate
from solver.graph.problem import INFINITY
from solver.options import SolveOptions
from solver.result import Status
from solver.templates.generate import NoTemplateError, TemplateGenerator, TemplateResult


class TemplateEntry(Record):
    """The best template of one size, or of one mix of nodes.

    step_time_s: simulated step of one pipeline with these micro-batches; no template has one below
    bound_s. None where there is no template.
    """

    nodes: int
    micro_batches: int
    status: Status
    step_time_s: float | None
    bound_s: float | None
    gap: float | None
    strategy: Strategy | None
    template: Template | None

    @classmethod
    def of(cls, result: TemplateResult) -> "TemplateEntry":
        """What a search has found."""
        outcome = result.outcome
        return cls(
            nodes=result.nodes,
            micro_batches=result.micro_batches,
            status=result.status,
            step_time_s=None if outcome.value is None else seconds(outcome.value),
            bound_s=seconds(outcome.bound) if outcome.bound < INFINITY else None,
            gap=result.gap,
            strategy=result.strategy,
            template=outcome.template,
        )


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

    schema_version: Literal[3] = 3
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

    @property
    def designs(self) -> tuple[Design, ...]:
        """The templates found, each once with its strategy."""
        by_template = {
            entry.template: Design(template=entry.template, strategy=entry.strategy)
            for entry in self.templates
            if entry.template is not None and entry.strategy is not None
        }
        return tuple(by_template.values())

    @property
    def claims(self) -> TemplateClaims:
        """What the entries claim of `designs`, in seconds."""
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
    least, total = generator.least_nodes, sum(generator.mixes.available)
    if least is None:
        raise NoTemplateError(generator.too_small)
    needed = (
        f"{faults + 1} pipelines of {least} nodes or more need {(faults + 1) * least} nodes, the "
        f"cluster has {total}"
    )
    covered = (faults + 1) * least <= total
    if not covered and len(generator.mixes.available) == 1:
        raise NoTemplateError(
            f"--faults {faults}: {needed}; allowed: up to {total // least - 1} faults"
        )
    results = fleet_templates(generator, fleet_sizes(generator, faults))
    if not covered and (pipelines := _most_pipelines(generator, results)) <= faults:
        raise NoTemplateError(
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
        least_nodes=least,
        sizes=tuple(n for n in consecutive_for_merging(least, faults) if n <= total),
        coverage=(f"Of any nodes, {needed}: there are as many only of smaller choices.",),
        templates=tuple(map(TemplateEntry.of, results)),
    )
    return _with_coverage(document) if covered else document


def _most_pipelines(generator: TemplateGenerator, results: Sequence[TemplateResult]) -> int:
    """Most pipelines of the templates that the nodes are enough for, all at once."""
    groups = len(generator.mixes.available)
    designs = filter(None, (result.design for result in results))
    mixes = sorted({design.template.counts(groups) for design in designs})
    kinds = tuple(PipelineKind(mix, [0]) for mix in mixes)

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


class CoverageError(PlannerError):
    """Node counts that no set of sizes covers."""

    exit_code = 3


@dataclass(frozen=True)
class SizeSet:
    """Sizes that cover a range, ascending; `fewest`: no set with fewer does, by CP-SAT's proof."""

    sizes: tuple[int, ...]
    fewest: bool


def fewest_sizes(
    nodes: range, least_size: int, faults: int, options: SolveOptions | None = None
) -> SizeSet:
    """A set of fewest sizes >= n0 of which f + 1 or more add up to every count in `nodes`.

    Stopped early, the best set so far, at worst the consecutive sizes that cover. Raises
    CoverageError where a count is below (f + 1) n0.

    A range from (f + 1) n0 on is settled by its first n0 counts: only n0 makes the first, so n0 is
    in every set, and one more pipeline of n0 leads from each of these counts to all above.
    """
    first = (faults + 1) * least_size
    if not nodes or nodes[0] < first:
        raise CoverageError(
            f"{nodes[0] if nodes else 'no'} nodes cannot run {faults + 1} pipelines of "
            f"{least_size}; allowed: {first} nodes or more, or fewer faults"
        )
    consecutive = range(least_size, least_size + least_consecutive(least_size, faults))
    settling = nodes[:least_size] if nodes[0] == first else nodes
    built = TemplateSet(CpSat(), settling, least_size, faults)
    built.hint(consecutive)
    outcome = cpsat.run(built.model.native, options or SolveOptions())
    if outcome.values is None:
        return SizeSet(tuple(consecutive), False)
    sizes = built.extract(outcome.values)
    assert not Coverage(sizes, faults, nodes[-1]).gaps(nodes[0])
    return SizeSet(sizes, outcome.status is Status.OPTIMAL)


def merging_range(least_size: int, faults: int, most: int) -> range:
    """Numbers of nodes, up to `most`, for which every way to run and to lose a node can be tried.

    Those with few pipelines to spare, where merging is hardest, and one node above the least.
    """
    first = (faults + 1) * least_size
    return range(first + 1, min(most, first + 2 * least_size + 8) + 1)


def worst_rebuilt_in(sizes: Sequence[int], faults: int, nodes: range) -> int | None:
    """Most pipelines that one failure takes apart, from any of these numbers of nodes.

    None without any number, or if a failure can leave a number of nodes that is not covered. Tries
    every way to run.
    """
    rebuilt = [worst_rebuilt(sizes, faults, number) for number in nodes]
    covered = [count for count in rebuilt if count is not None]
    return max(covered) if covered and len(covered) == len(rebuilt) else None
