"""`replay`: a failure trace played through recovery policies."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from formulations.errors import PlannerError
from solver.cli.files import check_writable, write_text
from solver.cli.search_options import (
    GapOption,
    JsonOption,
    SeedOption,
    WorkersOption,
    all_cores,
    limit,
    time_ns,
)
from solver.cli.terminal import print_either, progress_display
from solver.options import SolveOptions

if TYPE_CHECKING:
    from formulations.instance import Instance
    from solver.replay.policy import Policy
    from solver.replay.spans import Replay
    from solver.replay.trace import Trace
    from solver.search.progress import Progress


class PolicyName(StrEnum):
    """Recovery policies that can be replayed."""

    OOBLECK = "oobleck"
    VARUNA = "varuna"
    BAMBOO = "bamboo"
    OURS = "ours"


#: What a failure makes of the step in flight; see `solver.replay.policy`.
InFlightRule = Literal["lost", "background"]


@dataclass(frozen=True)
class _Source:
    """Where nodes, named traces and policies come from."""

    nodes: Sequence[str]
    named_trace: "Callable[[str, int], Trace | None]"
    policy: "Callable[[str, Trace], Policy]"
    summary: "Callable[[], str | None]"  # of what was planned
    stop: "Callable[[], bool]"


InstanceOrNone = Annotated[
    Path | None,
    typer.Argument(metavar="INSTANCE", help="Instance file (YAML); or else --throughput."),
]
TraceOption = Annotated[
    Path | None,
    typer.Option(help="CSV file of failures: time,node,event (fail or join)."),
]
EveryOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="One node at random fails every TIME, such as 10m or 6h, until half of them are "
        "left; or the name of a trace of the --throughput file.",
    ),
]
PolicyOption = Annotated[
    list[PolicyName] | None,
    typer.Option(
        help="How training recovers; repeat it for several. ours: the fleet of templates that "
        "trains most until the next failure. Unless given: oobleck."
    ),
]
ThroughputOption = Annotated[
    Path | None,
    typer.Option(help="JSON file of throughput per number of nodes and recovery costs."),
]
ModelOption = Annotated[str | None, typer.Option(help="Which model of the --throughput file.")]
UntilOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="End of the run. Unless given: the trace's last event."),
]
PauseOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="From a failure to the next step; for oobleck and ours copying comes on top. "
        "Unless given: as published for a model of this size.",
    ),
]
FaultsOption = Annotated[
    int | None,
    typer.Option(
        min=0, help="Failures at once that oobleck and ours are to survive. Unless given: 1."
    ),
]
HorizonOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Time to the next failure that ours reckons with. Unless given: the trace's mean.",
    ),
]
InFlightOption = Annotated[
    InFlightRule,
    typer.Option(
        help="The step in flight at a failure: lost; or background: the old configuration "
        "trains on during the pause, as in Oobleck's public simulator."
    ),
]
SvgOption = Annotated[
    Path | None, typer.Option("--svg", help="Draw the throughput over time here.")
]
TimeLimitOption = Annotated[float | None, limit("Stop with what was played so far.")]


def replay_command(
    instance: InstanceOrNone = None,
    trace: TraceOption = None,
    every: EveryOption = None,
    policy: PolicyOption = None,
    throughput: ThroughputOption = None,
    model: ModelOption = None,
    until: UntilOption = None,
    pause: PauseOption = None,
    faults: FaultsOption = None,
    horizon: HorizonOption = None,
    in_flight: InFlightOption = "lost",
    svg: SvgOption = None,
    as_json: JsonOption = False,
    time_limit: TimeLimitOption = None,
    gap: GapOption = 0.0,
    seed: SeedOption = 0,
    workers: WorkersOption = None,
) -> None:
    """Replay a failure trace: samples trained, time lost by cause, throughput over time.

    Exit code 0: replayed; 2: bad input; 3: the instance has no plan to start with.
    """
    from formulations.instance.load import load_instance
    from solver.replay.player import replay
    from solver.report.replay import replay_json, replay_picture, replay_text

    check_writable(svg, keep=(instance, throughput, trace))
    options = SolveOptions("exact", time_limit, gap, seed, workers or all_cores())
    names = policy or [PolicyName.OOBLECK]
    fleets = not {PolicyName.OOBLECK, PolicyName.OURS}.isdisjoint(names)
    with progress_display() as progress:
        if throughput is not None and instance is None:
            limits = faults, pause, horizon
            source = _from_file(throughput, model, in_flight, limits, time_limit)
        elif instance is not None and throughput is None:
            if model is not None:
                raise PlannerError("--model is for --throughput; an instance has its own")
            limits = faults, pause, horizon
            problem = load_instance(instance, fleets=fleets)
            source = _from_instance(problem, in_flight, limits, options, progress)
        else:
            raise PlannerError(
                "name either an instance file or, with --throughput, a throughput file"
            )
        events = _trace(source, trace, every, until, seed)
        runs: dict[str, tuple[Policy, Replay]] = {}
        for name in names:
            chosen = source.policy(str(name), events)
            runs[str(name)] = chosen, replay(events, chosen, source.stop)
    if svg is not None:
        title = f"{model or (instance and instance.stem)}: training through failures"
        write_text(svg, replay_picture(title, {name: run for name, (_, run) in runs.items()}))
    print_either(as_json, lambda: replay_json(runs), lambda: replay_text(runs, source.summary()))


def _from_file(
    path: Path,
    model: str | None,
    in_flight: InFlightRule,
    others: tuple[object, ...],
    time_limit_s: float | None,
) -> _Source:
    """others: options that are for instances."""
    from solver.replay.published import read_throughput

    if model is None:
        raise PlannerError("--throughput needs --model")
    if any(option is not None for option in others):
        raise PlannerError("--throughput has its own costs, so no --faults, --pause or --horizon")
    begin = time.monotonic()
    inputs = read_throughput(path)

    def out_of_time() -> bool:
        return time_limit_s is not None and time.monotonic() - begin >= time_limit_s

    nodes = tuple(f"node-{i}" for i in range(inputs.most_nodes))

    def policy(name: str, _: "Trace") -> "Policy":
        if name == "ours":
            raise PlannerError("--policy ours needs an instance: it forms fleets of templates")
        return inputs.policy(name, model, in_flight)

    def named_trace(name: str, seed: int) -> "Trace | None":
        return inputs.trace(name, nodes, seed)

    return _Source(nodes, named_trace, policy, lambda: None, out_of_time)


def _from_instance(
    instance: "Instance",
    in_flight: InFlightRule,
    limits: tuple[int | None, str | None, str | None],
    search: SolveOptions,
    progress: "Callable[[Progress], None] | None",
) -> _Source:
    """limits: --faults, --pause and --horizon."""
    from solver.replay.instance_policies import InstancePolicies, PolicyOptions

    faults, pause, horizon = limits
    options = PolicyOptions(
        in_flight,
        1 if faults is None else faults,
        None if pause is None else time_ns("--pause", pause),
        None if horizon is None else time_ns("--horizon", horizon, least_ns=1),
        search,
    )
    policies = InstancePolicies(instance, options, progress)
    names = policies.instance.cluster.node_names
    return _Source(
        names, lambda _, __: None, policies.of, lambda: policies.summary, policies.out_of_time
    )


def _trace(
    source: _Source, path: Path | None, every: str | None, until: str | None, seed: int
) -> "Trace":
    """The trace that the options ask for."""
    from solver.replay.trace import regular_trace
    from solver.replay.trace_file import read_trace

    if (path is None) == (every is None):
        raise PlannerError("say either --trace FILE or --every TIME")
    if every is None:
        assert path is not None
        return read_trace(
            path, source.nodes, None if until is None else time_ns("--until", until, least_ns=1)
        )
    if until is not None:
        raise PlannerError("--until is for --trace; with --every, half of the nodes fail")
    named = source.named_trace(every, seed)
    return named or regular_trace(source.nodes, time_ns("--every", every, least_ns=1), seed)
