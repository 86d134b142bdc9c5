"""`replay`: a failure trace played through recovery policies."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from formulations.errors import PlannerError
from solver.cli.files import check_writable, write_text
from solver.cli.search_options import (
    GapOption,
    JsonOption,
    SeedOption,
    WorkersOption,
    all_cores,
    positive,
    time_ns,
)
from solver.cli.terminal import print_report, progress_display, say
from solver.options import SolveOptions

if TYPE_CHECKING:
    from solver.resilience.policy import Policy
    from solver.resilience.replay import Replay
    from solver.resilience.trace import Trace
    from solver.search.progress import Progress


class PolicyName(StrEnum):
    """Recovery policies that can be replayed."""

    OOBLECK = "oobleck"
    VARUNA = "varuna"
    BAMBOO = "bamboo"


class InFlightRule(StrEnum):
    """What a failure makes of the step in flight; see `solver.resilience.policy`."""

    LOST = "lost"
    BACKGROUND = "background"


@dataclass(frozen=True)
class _Source:
    """Where nodes, named traces and policies come from."""

    groups: Sequence[Sequence[str]]
    named_trace: "Callable[[str], Trace | None]"
    policy: "Callable[[str], Policy]"
    summary: "Callable[[], str | None]"  # of what was planned


def replay_command(
    instance: Annotated[
        Path | None,
        typer.Argument(metavar="INSTANCE", help="Instance file (YAML); or else --throughput."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="CSV file of failures: time,node,event (fail or join)."),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="One failure every TIME, such as 10m or 6h, until half of the nodes are left; "
            "or the name of a trace of the --throughput file.",
        ),
    ] = None,
    policy: Annotated[
        list[PolicyName] | None,
        typer.Option(help="How training recovers; repeat it for several. Unless given: oobleck."),
    ] = None,
    throughput: Annotated[
        Path | None,
        typer.Option(help="JSON file of throughput per number of nodes and recovery costs."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Which model of the --throughput file.")] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End of the run. Unless given: the trace's last event."),
    ] = None,
    pause: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="From a failure to the next step. Unless given: as published for the size.",
        ),
    ] = None,
    in_flight: Annotated[
        InFlightRule,
        typer.Option(
            help="The step in flight at a failure: lost; or background: the old configuration "
            "trains on during the pause, as in Oobleck's public simulator."
        ),
    ] = InFlightRule.LOST,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Draw the throughput over time here.")
    ] = None,
    as_json: JsonOption = False,
    time_limit: Annotated[
        float | None,
        typer.Option(callback=positive, metavar="SECONDS", help="For each plan of an INSTANCE."),
    ] = None,
    gap: GapOption = 0.0,
    seed: SeedOption = 0,
    workers: WorkersOption = None,
) -> None:
    """Replay a failure trace: samples trained, time lost by cause, throughput over time.

    Exit code 0: replayed; 2: bad input.
    """
    from solver.report.replay import replay_json, replay_text
    from solver.report.replay_picture import replay_picture
    from solver.resilience.replay import replay

    if svg is not None:
        check_writable(svg)
    options = SolveOptions("exact", time_limit, gap, seed, workers or all_cores())
    with progress_display() as progress:
        source = _source(instance, throughput, model, in_flight, pause, options, progress)
        events = _trace(source, trace, every, until)
        runs: dict[str, tuple[Policy, Replay]] = {}
        for name in policy or [PolicyName.OOBLECK]:
            chosen = source.policy(str(name))
            runs[str(name)] = chosen, replay(events, chosen)
    if svg is not None:
        title = f"{model or (instance and instance.stem)}: training through failures"
        write_text(svg, replay_picture(title, {name: run for name, (_, run) in runs.items()}))
    if as_json:
        say(json.dumps(replay_json(runs), indent=1))
    else:
        print_report(replay_text(runs, source.summary()))


def _source(
    instance: Path | None,
    throughput: Path | None,
    model: str | None,
    in_flight: InFlightRule,
    pause: str | None,
    options: SolveOptions,
    progress: "Callable[[Progress], None] | None",
) -> _Source:
    """The one that the options name."""
    if throughput is not None and instance is None:
        if model is None or pause is not None:
            raise PlannerError("--throughput needs --model; it has its own pauses, so no --pause")
        return _from_file(throughput, model, in_flight)
    if instance is None or throughput is not None:
        raise PlannerError("name either an instance file or, with --throughput, a throughput file")
    if model is not None:
        raise PlannerError("--model is for --throughput; an instance has its own")
    pause_ns = None if pause is None else time_ns("--pause", pause, least_ns=1)
    return _from_instance(instance, options, in_flight, pause_ns, progress)


def _from_file(path: Path, model: str, in_flight: InFlightRule) -> _Source:
    from solver.resilience.published import read_throughput

    inputs = read_throughput(path)
    nodes = tuple(f"node-{i}" for i in range(inputs.most_nodes))
    return _Source(
        [nodes],
        lambda name: inputs.trace(name, nodes),
        lambda name: inputs.policy(name, model, in_flight.value),
        lambda: None,
    )


def _from_instance(
    path: Path,
    options: SolveOptions,
    in_flight: InFlightRule,
    pause_ns: int | None,
    progress: "Callable[[Progress], None] | None",
) -> _Source:
    from formulations.instance.load import load_instance
    from solver.resilience.planned import Planner, planned_policy

    problem = load_instance(path)
    planner = Planner(problem, options, progress)
    groups = problem.cluster.groups
    return _Source(
        [[f"{group.name}-{i}" for i in range(group.nodes)] for group in groups],
        lambda _: None,
        lambda name: planned_policy(planner, name, in_flight.value, pause_ns),
        lambda: planner.summary,
    )


def _trace(source: _Source, path: Path | None, every: str | None, until: str | None) -> "Trace":
    """The trace that the options ask for."""
    from solver.resilience.trace import regular_trace
    from solver.resilience.trace_file import read_trace

    if (path is None) == (every is None):
        raise PlannerError("say either --trace FILE or --every TIME")
    if every is None:
        assert path is not None
        nodes = [node for group in source.groups for node in group]
        return read_trace(
            path, nodes, None if until is None else time_ns("--until", until, least_ns=1)
        )
    if until is not None:
        raise PlannerError("--until is for --trace; with --every, half of the nodes fail")
    named = source.named_trace(every)
    return named or regular_trace(source.groups, time_ns("--every", every, least_ns=1))
