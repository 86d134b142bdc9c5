"""`templates`, `recover` and `replay`: pipelines that survive failures, and the next ones."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import typer

from formulations.errors import PlanError, PlannerError
from formulations.node_sharing import NodeSplit
from formulations.units import seconds
from solver.cli.files import check_writable, checked, write_text
from solver.cli.search_options import time_ns
from solver.cli.terminal import print_either, print_report, progress_display, say, steps_display
from solver.fleets.distribution import Distribution
from solver.options import PolicyName, SolveOptions
from solver.report.quantities import counted, percent, time_text

if TYPE_CHECKING:
    from formulations.fleet import Template
    from solver.fleet_document import FleetDocument
    from solver.fleets.designs import TemplatesDocument
    from solver.report.layout import Grid, Lines, Parts
    from solver.templates.generate import TemplateEntry

#: Exit code where some size has no template within the limit.
NONE_IN_TIME = 4
#: Numbers of nodes, or runs of them, that are listed.
MOST_WAYS = 24
#: What a failure makes of the step in flight; see `solver.replay.policy`.
InFlightRule = Literal["lost", "background"]


def templates_command(
    instance: Path,
    faults: int = 1,
    out: Path | None = None,
    distribution: Distribution = "step-time",
    sizes: str = "all",
    as_json: bool = False,
    split: NodeSplit = NodeSplit.ALIGNED,
    micro_batch: int | None = None,
    micro_batches: int | None = None,
    time_limit: float | None = None,
    gap: float = 0.0,
    study: Path | None = None,
) -> None:
    """Find the least number of nodes that holds the model, and the best template of every size.

    The sizes are Oobleck's: enough to run on every number of nodes, and to merge pipelines after
    failures. With several node groups there is one for every mix of a size.

    Exit code 0: templates; 2: bad input; 3: the cluster cannot run as many pipelines; 4: some size
    has no template within the limit.
    """
    from formulations.instance.load import load_instance
    from formulations.space.fleets import check_fleets
    from solver.files import to_json
    from solver.fleets.designs import generator_for, sizes_of, templates_document
    from solver.fleets.fleet import start_fleet
    from solver.study.store import study_at
    from solver.templates.generate import TemplateOptions

    options = TemplateOptions(split, micro_batch, micro_batches, gap, time_limit)
    asked = sizes_of(sizes)
    check_writable(out, keep=(instance, study))
    problem = load_instance(instance, check_fleets)
    with steps_display("templates") as show, study_at(study, problem) as kept:
        generator = generator_for(problem, options, faults, show, kept)
        document = templates_document(generator, faults, asked)
    if generator.clock.interrupted:
        say("interrupted", err=True)
    print_either(
        as_json, lambda: document.model_dump(mode="json"), lambda: templates_text(document)
    )
    if out is not None and document.designs:
        fleet = start_fleet(
            problem, document.designs, faults, distribution=distribution, claims=document.claims
        )
        write_text(out, to_json(fleet))
        if not as_json:
            say("")
            print_report(fleet_report(fleet))
    if out is not None and not document.designs:
        say("no fleet is written: no template was found in time; raise --time-limit", err=True)
    if any(entry.status == "unknown" for entry in document.templates):
        raise typer.Exit(NONE_IN_TIME)


def recover_command(
    plan: Path,
    lost: str | None = None,
    joined: str | None = None,
    horizon: str = "1h",
    restart: str = "0s",
    instance: Path | None = None,
    out: Path | None = None,
    as_json: bool = False,
    time_limit: float | None = None,
) -> None:
    """Form the next fleet after nodes are lost or join: most steps trained within a horizon.

    Exit code 0: a fleet was found; 2: bad input; 3: no template fits the nodes that are left; 4:
    none found within the limit.
    """
    from formulations.instance.load import load_instance
    from solver.cli.kinds import deliver
    from solver.fleet_document import FleetDocument
    from solver.fleets.fleet import next_fleet
    from solver.fleets.recovery import Horizon
    from solver.verify import instance_differences

    failed, back = (
        list(dict.fromkeys(filter(None, map(str.strip, (names or "").split(",")))))
        for names in (lost, joined)
    )
    if not failed and not back:
        raise PlannerError("name nodes with --lost or --joined, or both")
    times = Horizon(time_ns("--horizon", horizon, least_ns=1), time_ns("--restart", restart))
    if times.restart_ns >= times.time_ns:
        raise PlannerError(
            f"--restart {restart} leaves nothing of --horizon {horizon}; allowed: a shorter restart"
        )
    check_writable(out)
    document = checked(plan, FleetDocument)
    if instance is not None:
        different = instance_differences(document.instance, load_instance(instance))
        if different:
            raise PlanError(str(plan), different[0], f"a fleet of the instance {instance}")
    with steps_display("looking for the next fleet"):
        fleet = next_fleet(document, failed, back, times, time_limit)
    deliver(fleet, out, as_json=as_json)


def replay_command(
    instance: Path,
    options: SolveOptions,
    trace: Path | None = None,
    every: str | None = None,
    policy: list[str] | None = None,
    until: str | None = None,
    pause: str | None = None,
    faults: int = 1,
    horizon: str | None = None,
    in_flight: InFlightRule = "lost",
    svg: Path | None = None,
    as_json: bool = False,
) -> None:
    """Replay a failure trace: samples trained, time lost by cause, throughput over time.

    Exit code 0: replayed; 2: bad input; 3: the instance has no plan to start with.
    """
    from formulations.instance.load import load_instance
    from formulations.space.fleets import check_fleets
    from solver.replay.player import replay
    from solver.replay.policies import InstancePolicies, PolicyOptions
    from solver.replay.trace import read_trace, regular_trace
    from solver.report.fleet import replay_json, replay_picture, replay_text

    check_writable(svg, keep=(instance, trace))
    allowed: dict[str, PolicyName] = {name: name for name in get_args(PolicyName)}
    if unknown := [name for name in policy or () if name not in allowed]:
        raise PlannerError(
            f"--policy {unknown[0]} is no policy; allowed: ours, restart or redundancy"
        )
    names = [allowed[name] for name in policy or ["ours"]]
    pause_ns = None if pause is None else time_ns("--pause", pause)
    horizon_ns = None if horizon is None else time_ns("--horizon", horizon, least_ns=1)
    rules = PolicyOptions(in_flight, faults, pause_ns, horizon_ns, options)
    with progress_display() as progress:
        problem = load_instance(instance, check_fleets if "ours" in names else None)
        policies = InstancePolicies(problem, rules, progress)
        nodes = problem.cluster.node_names
        if (trace is None) == (every is None):
            raise PlannerError("say either --trace FILE or --every TIME")
        if trace is not None:
            end_ns = None if until is None else time_ns("--until", until, least_ns=1)
            events = read_trace(trace, nodes, end_ns)
        elif until is not None:
            raise PlannerError("--until is for --trace; with --every, half of the nodes fail")
        else:
            events = regular_trace(nodes, time_ns("--every", str(every), least_ns=1), options.seed)
        played = ((recovery, policies.of(recovery, events)) for recovery in names)
        over = policies.deadline.over
        runs = {str(name): (chosen, replay(events, chosen, over)) for name, chosen in played}
    if svg is not None:
        title = f"{instance.stem}: training through failures"
        write_text(svg, replay_picture(title, {name: run for name, (_, run) in runs.items()}))
    print_either(as_json, lambda: replay_json(runs), lambda: replay_text(runs, policies.summary))


def fleet_report(document: "FleetDocument") -> "Parts":
    """A fleet, and why nodes are idle."""
    from solver.fleets.fleet import step_of_all_nodes_ns
    from solver.report.fleet import fleet_text

    all_nodes_ns = step_of_all_nodes_ns(document) if document.idle else None
    return fleet_text(document, None if all_nodes_ns is None else seconds(all_nodes_ns))


# Templates in words and tables


def stages_text(template: "Template") -> str:
    """Layers per stage and GPUs, node by node: "5x1 4x1 | 9x2": 5 and 4 on one GPU each, 9 on 2.

    Equal neighbours on one node are counted: "2*(4x1)".
    """
    nodes = []
    for _, on_node in groupby(template.stages, key=lambda stage: stage.group.node):
        words = [f"{stage.layers[1] - stage.layers[0]}x{stage.degrees.tp}" for stage in on_node]
        runs = [(word, len(list(run))) for word, run in groupby(words)]
        nodes.append(" ".join(word if n == 1 else f"{n}*({word})" for word, n in runs))
    return " | ".join(nodes)


def recomputed_text(template: "Template") -> str:
    """Blocks that are recomputed, by way: "full 12, selective 4"; "none" without any."""
    blocks = Counter[str]()
    for stage in template.stages:
        blocks[stage.recomputed.way] += stage.recomputed.blocks
    return ", ".join(f"{way} {number}" for way, number in blocks.items() if number) or "none"


def templates_text(document: "TemplatesDocument") -> "Parts":
    """The report: n0, the sizes and their proof, one row per template."""
    from rich.console import Group

    from solver.report.fleet import choices_text
    from solver.report.layout import Labelled

    yield Labelled(_sizes(document))
    # How many pipelines of which sizes: one sentence, without the middle where they are many
    ways = document.pipelines
    listed = ways if len(ways) <= MOST_WAYS else (*ways[:8], "...", *ways[-2:])
    yield Group(*document.coverage, *[f"{'; '.join(listed)}."] * bool(ways))
    yield _table(document)
    if document.choices:
        yield from choices_text(document, document.choices)


def _sizes(document: "TemplatesDocument") -> "Lines":
    n0, sizes, fewest = document.least_nodes, document.sizes, document.fewest_sizes
    holding = f"n0 = {n0}: the fewest nodes that hold the model, whichever they are"
    if fewer := {entry.nodes for entry in document.templates if entry.nodes < n0}:
        holding += f"; some choices of {_range_text(sorted(fewer))} do too"
    covered = f"{_range_text(sizes)}: for every number of nodes"
    if sizes == (*range(n0, 2 * n0),):
        covered += ", and to merge after failures"
    if larger := {entry.nodes for entry in document.templates if entry.nodes > sizes[-1]}:
        covered += f"; {_range_text(sorted(larger))}: for fleets of fewer pipelines"
    yield "instance", f"{document.instance}, {document.available} nodes"
    yield "faults", f"{document.faults}: at least {document.faults + 1} pipelines"
    yield "least", holding
    yield "sizes", covered
    # The fewest sizes, where any cover
    if fewest:
        proved = "" if document.fewest_proved else " (not proved to be fewest)"
        verb = "covers" if len(fewest) == 1 else "cover"
        yield "fewest", f"{', '.join(map(str, fewest))} {verb} the same numbers of nodes{proved}"
    # What one failure takes apart, with the sizes and with the fewest
    if document.rebuilt_nodes is not None and document.rebuilt is not None:
        low, high = document.rebuilt_nodes
        pipelines = counted(document.rebuilt, "pipeline")
        text = f"of {low} to {high} nodes a failure takes at most {pipelines} apart"
        if fewest != sizes:
            text += f"; with the fewest sizes at most {document.rebuilt_by_fewest}"
        yield "merging", text
    yield "micro-batch", counted(document.micro_batch, "sequence")
    yield "split", document.split.value


def _table(document: "TemplatesDocument") -> "Grid":
    from solver.report.layout import table_of

    longest_s = max((entry.step_time_s or 0.0 for entry in document.templates), default=0.0)

    def nodes(entry: "TemplateEntry") -> str:
        names = document.node_groups
        if entry.template is None or len(names) == 1:
            return str(entry.nodes)
        counts = Counter(names[j] for j in entry.template.node_groups)
        return f"{entry.nodes}: " + ", ".join(f"{n} {name}" for name, n in counts.items())

    def stages(entry: "TemplateEntry") -> str:
        return stages_text(entry.template) if entry.template else f"none ({entry.status.value})"

    def gap(entry: "TemplateEntry") -> str:
        return percent(entry.gap) if entry.gap else "0"

    return table_of(
        document.templates,
        {
            "nodes": nodes,
            "stages: layers x GPUs, node | node": stages,
            "recompute": lambda entry: recomputed_text(entry.template) if entry.template else "",
        },
        {
            "micro-batches": lambda entry: str(entry.micro_batches),
            "step": lambda entry: (
                time_text(entry.step_time_s or 0.0, longest_s) if entry.template else ""
            ),
            "gap": lambda entry: gap(entry) if entry.template else "",
        },
    )


def _range_text(sizes: Sequence[int]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
