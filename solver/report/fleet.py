"""A fleet in words and tables, and what a recovery did. Returns what Rich can render."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from rich.console import RenderableType

from formulations.transition import Links
from solver.fleet_document import CopyDocument, FleetDocument, RecoveryDocument
from solver.fleets.choices import FleetChoices, Option
from solver.fleets.designs import TemplatesDocument
from solver.report.assumptions import hidden
from solver.report.layout import Grid, Labelled, Lines, table_of
from solver.report.naming import layers_text
from solver.report.quantities import (
    counted,
    node_ranges,
    percent,
    ranges,
    significant,
    size_text,
    size_unit,
    time_text,
)

#: Nodes that are named one by one.
FEW_NODES = 6


def fleet_text(
    document: FleetDocument, all_nodes_step_s: float | None = None
) -> list[RenderableType]:
    """Pipelines, what was copied, figures.

    all_nodes_step_s: shortest step without idle nodes, where there are some; None: there is none.
    """
    longest_s = max(pipeline.step_time_s for pipeline in document.pipelines)
    templates = [design.template for design in document.designs]
    changes = pipeline_changes(document)
    pipelines = table_of(
        enumerate(document.pipelines),
        {
            "pipeline": lambda row: f"{row[0]}",
            "nodes": lambda row: _names(row[1].nodes),
            "from" if document.recovery else "": lambda row: changes[row[0]],
        },
        {
            "stages": lambda row: f"{templates[row[1].design].num_stages}",
            "micro-batches": lambda row: f"{row[1].micro_batches}",
            "step": lambda row: time_text(row[1].step_time_s, longest_s),
        },
    )
    parts: list[RenderableType] = [pipelines]
    if document.recovery and document.recovery.copies:
        parts += ["", _copy_table(document, document.recovery)]
    lines = [*_recovery_lines(document), *_fleet_lines(document, all_nodes_step_s)]
    return [*parts, "", Labelled(lines)]


def choices_text(document: TemplatesDocument, choices: FleetChoices) -> list[RenderableType]:
    """Fleets that the templates allow: by sets of sizes, the fastest ones, by distribution."""
    several = len(document.node_groups) > 1

    def rate(sequences_per_s: float | None) -> str:
        return "-" if sequences_per_s is None else f"{significant(sequences_per_s)} sequences/s"

    def pipelines(option: Option) -> str:
        return ", ".join(
            f"{count} of {' + '.join(map(str, nodes)) if several else sum(nodes)}"
            for nodes, count in option.pipelines
        )

    longest_s = max((option.step_time_s for option in choices.options), default=0.0)
    sets = table_of(
        choices.sets,
        {
            "sizes": lambda row: f"{ranges(row.sizes)} ({row.name})",
        },
        {
            f"on {document.available} nodes": lambda row: rate(row.sequences_per_s),
            f"at worst after {counted(document.faults, 'failure')}": lambda row: rate(
                row.after_faults_sequences_per_s
            ),
        },
    )
    options = table_of(
        choices.options,
        {f"pipelines, of nodes{' of every group' if several else ''}": pipelines},
        {
            "step": lambda row: time_text(row.step_time_s, longest_s),
            "throughput": lambda row: rate(row.sequences_per_s),
        },
    )
    lines = [
        (
            f"{row.distribution}",
            f"slowest pipeline {time_text(row.slowest_s)}, steps vary by "
            f"{time_text(row.deviation_s, row.slowest_s)} (standard deviation)",
        )
        for row in choices.shares
    ]
    more = "more" if choices.number is None else f"{choices.number}"
    of = f"the fastest {len(choices.options)} of {more} within 25 % of the first"
    return ["", sets, "", f"fleets: {of}", options, "", Labelled(lines)]


def _names(nodes: Sequence[str]) -> str:
    """All of a few nodes, in their order; of many, numbers of one group joined."""
    if not nodes:
        return "nothing"
    return ", ".join(nodes) if len(nodes) <= FEW_NODES else node_ranges(nodes)


def pipeline_changes(document: FleetDocument) -> list[str]:
    """How every pipeline came from those before: kept, re-instantiated, borrowed from, merged."""
    recovery = document.recovery
    if recovery is None:
        return [""] * len(document.pipelines)
    # The pipeline before, of every node that was in one
    homes = {name: p for p, former in enumerate(recovery.before) for name in former.nodes}
    before = [(former.design, former.nodes) for former in recovery.before]
    changes = []
    for pipeline in document.pipelines:
        if (pipeline.design, pipeline.nodes) in before:
            changes.append(f"{homes[pipeline.nodes[0]]}, kept")
            continue
        taken = Counter(homes[name] for name in pipeline.nodes if name in homes)
        joined = sum(name not in homes for name in pipeline.nodes)
        added = [f"{counted(joined, 'node')} that joined or was idle"] if joined else []
        if not taken:
            changes.append(", ".join(["started", *added]))
            continue
        main = max(taken, key=lambda p: (taken[p], -p))
        for p in sorted(taken.keys() - {main}):
            remaining = set(recovery.before[p].nodes) - set(document.away)
            merged = taken[p] == len(remaining)
            borrowed = f"{counted(taken[p], 'node')} borrowed from {p}"
            added.append(f"merged with {p}" if merged else borrowed)
        changes.append(", ".join([f"{main}, re-instantiated", *added]))
    return changes


def _copy_table(document: FleetDocument, recovery: RecoveryDocument) -> Grid:
    grouped: dict[tuple[str, str | None, int | None], list[CopyDocument]] = defaultdict(list)
    for copy in recovery.copies:
        grouped[copy.target, copy.source, copy.replica].append(copy)
    links = Links(document.instance.cluster)
    numbers = {name: n for n, name in enumerate(document.instance.cluster.node_names)}
    sizes = {key: sum(copy.size_bytes for copy in copies) for key, copies in grouped.items()}
    unit = size_unit(max(sizes.values()))
    rows = []
    for (target, source, replica), copies in grouped.items():
        size = sizes[target, source, replica]
        ends = [numbers[name] for name in (target, source) if name is not None]
        rows.append(
            [
                target,
                layers_text(document.instance.workload, (copy.layer for copy in copies)),
                "a checkpoint" if source is None else f"{source} (pipeline {replica} before)",
                unit.text(size),
                f"{max(links.node_ns(node, size) for node in ends) / 1e9:.3f} s",
            ]
        )
    return Grid(["node", "receives layers", "from"], ["size", "if alone"], rows)


def _recovery_lines(document: FleetDocument) -> Lines:
    recovery = document.recovery
    if recovery is None:
        return []
    copied = "nothing has to be copied"
    if recovery.copies:
        size = size_text(sum(copy.size_bytes for copy in recovery.copies))
        layers = counted(len(recovery.copies), "layer")
        copied = f"{layers}, {size} in {time_text(recovery.transfer_s)}"
    restart = f" and a restart of {time_text(recovery.restart_s)}" if recovery.restart_s else ""
    how = "going on without a pause" if document.goes_on else f"copies{restart} included"
    horizon = (
        f"{significant(recovery.steps)} steps within {time_text(recovery.horizon_s)}, {how}; no "
        "fleet of these templates trains more"
    )
    if recovery.steps_bound > recovery.steps * (1 + 1e-12):
        gap = (recovery.steps_bound - recovery.steps) / recovery.steps_bound
        horizon += f" than {significant(recovery.steps_bound)}, gap {percent(gap)}"
    lines = [
        ("lost", _names(recovery.lost)),
        ("joined", _names(recovery.joined)),
        ("transfer", copied),
        ("horizon", horizon),
    ]
    unsaved = {copy.layer for copy in recovery.copies if copy.source is None}
    if unsaved:
        names = layers_text(document.instance.workload, unsaved)
        lines.append(("checkpoint", f"no node is left that holds layers {names}"))
    return lines


def _fleet_lines(document: FleetDocument, all_nodes_step_s: float | None) -> Lines:
    step_s = document.step_time_s
    exchange = time_text(document.exchange_s, step_s)
    survives = f"any {counted(document.survives, 'failure')}" if document.survives else "no failure"
    if document.survives < document.faults:
        survives += f", not {document.faults} as asked for: too few nodes are left"
    else:
        survives += f": {counted(len(document.pipelines), 'pipeline')} with all layers each"
    time = f"{time_text(step_s)}, of which {exchange} exchange of gradients between pipelines"
    lines = [
        ("step time", time),
        ("throughput", f"{significant(document.throughput_sequences_per_s)} sequences/s"),
        ("survives", survives),
    ]
    if document.idle:
        one_each = len(document.pipelines) == document.micro_batches
        why = ": every pipeline has one micro-batch, and there are no more" if one_each else ""
        reason = f"no fleet uses all nodes{why}"
        if all_nodes_step_s is not None:
            longer = all_nodes_step_s / document.step_time_s - 1
            reason = f"with all nodes in use a step takes {time_text(all_nodes_step_s)}, "
            less = f"{percent(-longer)} less, but within the horizon it trains no more"
            reason += f"{percent(longer)} longer" if longer >= 0 else less
        lines.append(("idle", f"{_names(document.idle)}: {reason}"))
    if document.away:
        lines.append(("away", _names(document.away)))
    # What the templates in use take to be hidden
    overlap = document.instance.search.overlap
    used = {document.designs[pipeline.design].template for pipeline in document.pipelines}
    tensor = any(stage.degrees.tp > 1 for template in used for stage in template.stages)
    single = any(template.num_stages == 1 for template in used)
    return [
        *lines,
        *hidden(
            overlap, tensor=overlap.tensor_parallel * tensor, sync=overlap.gradient_sync * single
        ),
    ]
