"""A fleet in words and tables, what a recovery did, and replays of failures side by side."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group

from formulations.transition import Links
from solver.files import fields_of
from solver.fleet_document import CopyDocument, FleetDocument, RecoveryDocument
from solver.fleets.choices import FleetChoices, Option
from solver.fleets.designs import TemplatesDocument
from solver.replay.player import CAUSES, Cause, Replay
from solver.replay.policy import Policy
from solver.report.assumptions import hidden
from solver.report.chart import COLOURS, picture
from solver.report.layout import Grid, Labelled, Lines, Parts, table_of
from solver.report.naming import layers_text
from solver.report.quantities import (
    Scale,
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


def fleet_text(document: FleetDocument, all_nodes_step_s: float | None = None) -> Parts:
    """Pipelines, what was copied, figures.

    all_nodes_step_s: shortest step without idle nodes, where there are some; None: there is none.
    """
    longest_s = max(pipeline.step_time_s for pipeline in document.pipelines)
    templates = [design.template for design in document.designs]
    yield table_of(
        zip(count(), document.pipelines, pipeline_changes(document), strict=False),
        {
            "pipeline": lambda row: f"{row[0]}",
            "nodes": lambda row: _names(row[1].nodes),
            "from" if document.recovery else "": lambda row: row[2],
        },
        {
            "stages": lambda row: f"{templates[row[1].design].num_stages}",
            "micro-batches": lambda row: f"{row[1].micro_batches}",
            "step": lambda row: time_text(row[1].step_time_s, longest_s),
        },
    )
    if document.recovery and document.recovery.copies:
        yield _copy_table(document, document.recovery)
    yield Labelled(_recovery_lines(document), _fleet_lines(document, all_nodes_step_s))


def choices_text(document: TemplatesDocument, choices: FleetChoices) -> Parts:
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
    return [sets, Group(f"fleets: {of}", options), Labelled(lines)]


def _names(nodes: Sequence[str]) -> str:
    """All of a few nodes, in their order; of many, numbers of one group joined."""
    if not nodes:
        return "nothing"
    return ", ".join(nodes) if len(nodes) <= FEW_NODES else node_ranges(nodes)


def pipeline_changes(document: FleetDocument) -> Iterator[str]:
    """How every pipeline came from those before: kept, re-instantiated, borrowed from, merged."""
    recovery = document.recovery
    if recovery is None:
        yield from [""] * len(document.pipelines)
        return
    # The pipeline before, of every node that was in one
    homes = {name: p for p, former in enumerate(recovery.before) for name in former.nodes}
    before = [(former.design, former.nodes) for former in recovery.before]
    for pipeline in document.pipelines:
        if (pipeline.design, pipeline.nodes) in before:
            yield f"{homes[pipeline.nodes[0]]}, kept"
            continue
        taken = Counter(homes[name] for name in pipeline.nodes if name in homes)
        joined = sum(name not in homes for name in pipeline.nodes)
        added = [f"{counted(joined, 'node')} that joined or was idle"] if joined else []
        if not taken:
            yield ", ".join(["started", *added])
            continue
        main = max(taken, key=lambda p: (taken[p], -p))
        for p in sorted(taken.keys() - {main}):
            remaining = set(recovery.before[p].nodes) - set(document.away)
            merged = taken[p] == len(remaining)
            borrowed = f"{counted(taken[p], 'node')} borrowed from {p}"
            added.append(f"merged with {p}" if merged else borrowed)
        yield ", ".join([f"{main}, re-instantiated", *added])


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
        return
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
    yield "lost", _names(recovery.lost)
    yield "joined", _names(recovery.joined)
    yield "transfer", copied
    yield "horizon", horizon
    unsaved = {copy.layer for copy in recovery.copies if copy.source is None}
    if unsaved:
        names = layers_text(document.instance.workload, unsaved)
        yield "checkpoint", f"no node is left that holds layers {names}"


def _fleet_lines(document: FleetDocument, all_nodes_step_s: float | None) -> Lines:
    step_s = document.step_time_s
    exchange = time_text(document.exchange_s, step_s)
    survives = f"any {counted(document.survives, 'failure')}" if document.survives else "no failure"
    if document.survives < document.faults:
        survives += f", not {document.faults} as asked for: too few nodes are left"
    else:
        survives += f": {counted(len(document.pipelines), 'pipeline')} with all layers each"
    time = f"{time_text(step_s)}, of which {exchange} exchange of gradients between pipelines"
    yield "step time", time
    yield "throughput", f"{significant(document.throughput_sequences_per_s)} sequences/s"
    yield "survives", survives
    if document.idle:
        one_each = len(document.pipelines) == document.micro_batches
        why = ": every pipeline has one micro-batch, and there are no more" if one_each else ""
        reason = f"no fleet uses all nodes{why}"
        if all_nodes_step_s is not None:
            longer = all_nodes_step_s / document.step_time_s - 1
            reason = f"with all nodes in use a step takes {time_text(all_nodes_step_s)}, "
            less = f"{percent(-longer)} less, but within the horizon it trains no more"
            reason += f"{percent(longer)} longer" if longer >= 0 else less
        yield "idle", f"{_names(document.idle)}: {reason}"
    if document.away:
        yield "away", _names(document.away)
    # What the templates in use take to be hidden
    overlap = document.instance.search.overlap
    used = {document.designs[pipeline.design].template for pipeline in document.pipelines}
    tensor = any(stage.degrees.tp > 1 for template in used for stage in template.stages)
    single = any(template.num_stages == 1 for template in used)
    yield from hidden(
        overlap, tensor=overlap.tensor_parallel * tensor, sync=overlap.gradient_sync * single
    )


# Replays of failures side by side: tables, data, and throughput over time as a picture


if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RUN_TIMES = ((86400e9, "d"), (3600e9, "h"), (60e9, "min"), (1e9, "s"), (1e6, "ms"))
long_time_text = Scale(_RUN_TIMES, digits=3).text  #: of ns


def replay_text(runs: Mapping[str, tuple[Policy, Replay]], plans: str | None) -> Parts:
    """Samples, throughput and time by cause of every policy; `plans`: a word on the step times."""
    replays = [replay for _, replay in runs.values()]

    def played(replay: Replay) -> str:
        ended = "all" if replay.complete else "time limit"
        return f"{long_time_text(replay.length_ns)}, {ended}"

    def spent(replay: Replay, cause: Cause) -> str:
        time_ns = replay.time_by_cause_ns[cause]
        return f"{long_time_text(time_ns)}, {percent(time_ns / replay.length_ns)}"

    figures: dict[str, Callable[[Replay], str]] = {
        "samples trained": lambda replay: f"{replay.samples:,}",
        "samples/s, whole run": lambda replay: significant(replay.samples_per_s),
        "samples/s between steps": lambda replay: significant(replay.samples_per_s_between_steps),
    }
    if not all(replay.complete for replay in replays):
        figures["played"] = played
    rows = [(name, *map(text, replays)) for name, text in figures.items()]
    for cause in CAUSES:
        if any(replay.time_by_cause_ns[cause] for replay in replays):
            texts = (spent(run, cause) if run.time_by_cause_ns[cause] else "0" for run in replays)
            rows.append((f"time {cause}", *texts))
    # Every source once, with the policies that rest on it
    users: dict[str, list[str]] = {}
    for name, (policy, _) in runs.items():
        for source in policy.sources:
            users.setdefault(source, []).append(name)
    lines = [
        ("run", long_time_text(max(replay.length_ns for replay in replays))),
        *((", ".join(names), source) for source, names in users.items()),
        *([("plans", plans)] if plans else []),
    ]
    return [Labelled(lines), Grid(("",), tuple(runs), rows)]


def replay_json(runs: Mapping[str, tuple[Policy, Replay]]) -> dict[str, object]:
    """The same as data; `spans` are [start, end, cause, ready nodes, steps kept], in s."""
    return {
        name: {
            **fields_of(replay, "complete", "samples", "steps", "samples_per_s"),
            "samples_per_s_between_steps": replay.samples_per_s_between_steps,
            "time_by_cause_s": {
                cause: time_ns / 1e9 for cause, time_ns in replay.time_by_cause_ns.items()
            },
            "sources": list(policy.sources),
            "spans": [
                [span.start_ns / 1e9, span.end_ns / 1e9, span.cause, span.nodes, span.steps]
                for span in replay.spans
            ],
        }
        for name, (policy, replay) in runs.items()
    }


_PARTS = 240  # of the run, over each of which the throughput is averaged
_CURVE, _WIDER = 1.5, 1.5  # width of the last curve; what an earlier one has more, to be seen too


def replay_picture(title: str, replays: Mapping[str, Replay]) -> str:
    """Throughput over the time of one to four replays of one trace, by name, as SVG."""
    return picture(title, lambda axes: draw_replays(axes, replays))


def draw_replays(axes: "Axes", replays: Mapping[str, Replay]) -> None:
    """The same on axes of matplotlib, of a figure with constrained layout."""
    from matplotlib.ticker import MaxNLocator

    end_ns = max(replay.length_ns for replay in replays.values())
    times_ns = np.linspace(0, end_ns, _PARTS + 1)
    for n, (name, replay) in enumerate(replays.items()):
        # Samples/s kept in each part of the run; steps count where they ran
        steps = np.cumsum([0, *(span.steps for span in replay.spans)])  # up to ends of spans
        kept = np.interp(times_ns, [0, *(span.end_ns for span in replay.spans)], steps)
        values = np.diff(kept) * replay.samples_per_step / times_ns[1] * 1e9
        width = _CURVE + _WIDER * (len(replays) - 1 - n)  # those over it stay narrower
        (curve,) = axes.step(
            times_ns, [*values, values[-1]], where="post", label=name, linewidth=width
        )
        axes.axhline(replay.samples_per_s, ls=":", lw=_CURVE, color=curve.get_color())  # on average
    tenths = [end_ns * tenth // 10 for tenth in range(11)]
    axes.set_xticks(tenths, [long_time_text(ns) if ns else "0" for ns in tenths])
    axes.set_ylabel(f"samples/s, mean of every {long_time_text(end_ns // _PARTS)}")
    axes.set(xlim=(0, end_ns), ylim=(0, None), xlabel="time")
    # Over them, on a scale of its own, how many nodes are ready
    spans = next(iter(replays.values())).spans
    ready, grey = axes.twinx(), COLOURS[-1]
    times, nodes = zip(*((span.start_ns, span.nodes) for span in spans), strict=True)
    until = (*times, spans[-1].end_ns), (*nodes, nodes[-1])
    ready.step(*until, "--", where="post", color=grey, linewidth=1, label="nodes ready")
    ready.set(ylim=(0, max(1, *nodes)), ylabel="nodes ready")
    ready.yaxis.set_major_locator(MaxNLocator(integer=True))
    ready.grid(visible=False)
    axes.figure.legend(loc="outside upper right", ncols=len(replays) + 1)
