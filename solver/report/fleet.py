"""A fleet in words and tables, and what a recovery did. Returns what Rich can render."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from rich.console import RenderableType

from formulations.transition import Links
from solver.fleet_document import CopyDocument, FleetDocument, PipelineDocument, RecoveryDocument
from solver.report.assumptions import hidden
from solver.report.layout import Grid, Lines, labelled, table
from solver.report.naming import layers_text
from solver.report.quantities import (
    counted,
    node_ranges,
    percent,
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
    parts: list[RenderableType] = [_pipeline_table(document)]
    if document.recovery and document.recovery.copies:
        parts += ["", _copy_table(document, document.recovery)]
    lines = [*_recovery_lines(document), *_fleet_lines(document, all_nodes_step_s)]
    return [*parts, "", labelled(lines)]


def _pipeline_table(document: FleetDocument) -> Grid:
    rows = []
    changes = pipeline_changes(document)
    longest_s = max(pipeline.step_time_s for pipeline in document.pipelines)
    for n, pipeline in enumerate(document.pipelines):
        template = document.designs[pipeline.design].template
        rows.append(
            [
                f"{n}",
                _names(pipeline.nodes),
                changes[n],
                f"{template.num_stages}",
                f"{pipeline.micro_batches}",
                time_text(pipeline.step_time_s, longest_s),
            ]
        )
    texts = ["pipeline", "nodes", "from" if document.recovery else ""]
    return table(texts, ["stages", "micro-batches", "step"], rows)


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
    return [_change(recovery, set(document.away), pipeline) for pipeline in document.pipelines]


def _change(recovery: RecoveryDocument, away: set[str], pipeline: PipelineDocument) -> str:
    if pipeline.nodes in [
        former.nodes for former in recovery.before if former.design == pipeline.design
    ]:
        return f"{_of(recovery, pipeline.nodes[0])}, kept"
    homes = Counter(_home(recovery, name) for name in pipeline.nodes)
    joined = homes.pop(None, 0)
    added = [f"{counted(joined, 'node')} that joined or was idle"] if joined else []
    if not homes:
        return ", ".join(["started", *added])
    main = max(homes, key=lambda p: (homes[p], -(p or 0)))
    assert main is not None
    for p in sorted(home for home in homes if home is not None and home != main):
        remaining = [name for name in recovery.before[p].nodes if name not in away]
        if homes[p] == len(remaining):
            added.append(f"merged with {p}")
        else:
            added.append(f"{counted(homes[p], 'node')} borrowed from {p}")
    return ", ".join([f"{main}, re-instantiated", *added])


def _home(recovery: RecoveryDocument, name: str) -> int | None:
    """Pipeline before, of a node; None if it was in none."""
    return next((p for p, pipeline in enumerate(recovery.before) if name in pipeline.nodes), None)


def _of(recovery: RecoveryDocument, name: str) -> str:
    return str(_home(recovery, name))


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
    return table(["node", "receives layers", "from"], ["size", "if alone"], rows)


def _recovery_lines(document: FleetDocument) -> Lines:
    recovery = document.recovery
    if recovery is None:
        return []
    size = sum(copy.size_bytes for copy in recovery.copies)
    lines = [
        ("lost", _names(recovery.lost)),
        ("joined", _names(recovery.joined)),
        (
            "transfer",
            f"{counted(len(recovery.copies), 'layer')}, {size_text(size)} in "
            f"{time_text(recovery.transfer_s)}"
            if recovery.copies
            else "nothing has to be copied",
        ),
        ("horizon", _horizon_text(recovery, document.goes_on)),
    ]
    unsaved = sorted({copy.layer for copy in recovery.copies if copy.source is None})
    if unsaved:
        names = layers_text(document.instance.workload, unsaved)
        lines.append(("checkpoint", f"no node is left that holds layers {names}"))
    return lines


def _horizon_text(recovery: RecoveryDocument, goes_on: bool) -> str:
    included = "copies"
    if recovery.restart_s:
        included += f" and a restart of {time_text(recovery.restart_s)}"
    how = "going on without a pause" if goes_on else f"{included} included"
    text = (
        f"{significant(recovery.steps)} steps within {time_text(recovery.horizon_s)}, {how}; no "
        "fleet of these templates trains more"
    )
    if recovery.steps_bound <= recovery.steps * (1 + 1e-12):
        return text
    gap = (recovery.steps_bound - recovery.steps) / recovery.steps_bound
    return f"{text} than {significant(recovery.steps_bound)}, gap {percent(gap)}"


def _fleet_lines(document: FleetDocument, all_nodes_step_s: float | None) -> Lines:
    lines = [
        ("step time", _step_text(document)),
        ("throughput", f"{significant(document.throughput_sequences_per_s)} sequences/s"),
        ("survives", _survives_text(document)),
    ]
    if document.idle:
        reason = _idle_text(document, all_nodes_step_s)
        lines.append(("idle", f"{_names(document.idle)}: {reason}"))
    if document.away:
        lines.append(("away", _names(document.away)))
    return [*lines, *_hidden(document)]


def _hidden(document: FleetDocument) -> Lines:
    """What the templates in use take to be hidden."""
    overlap = document.instance.search.overlap
    used = {document.designs[one.design].template for one in document.pipelines}
    return hidden(
        overlap,
        tensor=overlap.tensor_parallel * any(s.degrees.tp > 1 for one in used for s in one.stages),
        sync=overlap.gradient_sync * any(one.num_stages == 1 for one in used),
    )


def _idle_text(document: FleetDocument, all_nodes_step_s: float | None) -> str:
    """Why nodes are idle."""
    if all_nodes_step_s is None:
        one_each = len(document.pipelines) == document.micro_batches
        why = ": every pipeline has one micro-batch, and there are no more" if one_each else ""
        return f"no fleet uses all nodes{why}"
    longer = all_nodes_step_s / document.step_time_s - 1
    text = f"with all nodes in use a step takes {time_text(all_nodes_step_s)}"
    if longer >= 0:
        return f"{text}, {percent(longer)} longer"
    return f"{text}, {percent(-longer)} less, but within the horizon it trains no more"


def _step_text(document: FleetDocument) -> str:
    exchange = time_text(document.exchange_s, document.step_time_s)
    text = time_text(document.step_time_s)
    return f"{text}, of which {exchange} exchange of gradients between pipelines"


def _survives_text(document: FleetDocument) -> str:
    text = f"any {counted(document.survives, 'failure')}" if document.survives else "no failure"
    if document.survives < document.faults:
        return f"{text}, not {document.faults} as asked for: too few nodes are left"
    return f"{text}: {counted(len(document.pipelines), 'pipeline')} with all layers each"
