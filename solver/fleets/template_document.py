"""What `templates --json` prints: the sizes, why they are enough, and the template of each."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

from formulations.coverage import (
    consecutive_for_merging,
    fewest_sizes,
    proof,
    ways,
    worst_rebuilt,
)
from formulations.errors import NoPlanError
from formulations.fleet import Design
from formulations.instance.record import Record
from formulations.node_sharing import NodeSplit
from formulations.pipelines import InstantiationProblem, PipelineKind
from solver.fleet_document import TemplateBound, TemplateClaims
from solver.fleets.designs import designs_of, fleet_sizes, fleet_templates
from solver.fleets.instantiate import instantiate
from solver.templates.generate import TemplateEntry, TemplateGenerator


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
    numbers of nodes.
    """

    schema_version: Literal[5] = 5
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


def templates_document(generator: TemplateGenerator, faults: int) -> TemplatesDocument:
    """The templates that survive so many node failures, of every mix of node groups.

    Raises NoPlanError where the cluster cannot run f + 1 pipelines.
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
    results = fleet_templates(generator, fleet_sizes(generator, faults))
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
        sizes=tuple(n for n in consecutive_for_merging(least_nodes, faults) if n <= total),
        coverage=(f"Of any nodes, {needed}: there are as many only of smaller choices.",),
        templates=tuple(results),
    )
    return _with_coverage(document) if covered else document


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
