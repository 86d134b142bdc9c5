"""`replay`: a failure trace played through recovery policies."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from formulations.errors import PlannerError
from solver.cli.files import check_writable, write_text
from solver.cli.search_options import (
    GapOption,
    InstanceArgument,
    JsonOption,
    SeedOption,
    WorkersOption,
    all_cores,
    gone,
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

#: As in `solver.replay.policies`, which is slow to import.
PolicyName = Literal["ours", "restart", "redundancy"]
#: What a failure makes of the step in flight; see `solver.replay.policy`.
InFlightRule = Literal["lost", "background"]
#: Policies of published systems, and what to say to those who name one.
PUBLISHED = {
    "oobleck": "a benchmark, python -m bench policies; ours forms fleets of the same templates",
    "varuna": "called restart",
    "bamboo": "called redundancy",
}


def _policy_names(names: list[str] | None) -> list[PolicyName]:
    """The policies asked for. Raises PlannerError for others."""
    policies: dict[str, PolicyName] = {name: name for name in get_args(PolicyName)}
    for name in names or ():
        if name not in policies:
            what = PUBLISHED.get(name, "no policy")
            raise PlannerError(f"--policy {name} is {what}; allowed: ours, restart or redundancy")
    return [policies[name] for name in names or ["ours"]]


TraceOption = Annotated[
    Path | None,
    typer.Option(help="CSV file of failures: time,node,event (fail or join)."),
]
EveryOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="One node at random fails every TIME, such as 10m or 6h, until half of them are left.",
    ),
]
PolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ours|restart|redundancy",
        help="How training recovers; repeat it for several. ours: the fleet of templates that "
        "trains most until the next failure. restart: all nodes, from the last checkpoint. "
        "redundancy: a neighbour computes for the lost node. Unless given: ours.",
    ),
]
ThroughputOption = Annotated[
    str | None,
    gone("published inputs of a --model are a benchmark, python -m bench replay"),
]
UntilOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="End of the run. Unless given: the trace's last event."),
]
PauseOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="From a failure to the next step; for ours copying comes on top. "
        "Unless given: as published for a model of this size.",
    ),
]
FaultsOption = Annotated[int, typer.Option(min=0, help="Failures at once that ours is to survive.")]
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
    instance: InstanceArgument,
    trace: TraceOption = None,
    every: EveryOption = None,
    policy: PolicyOption = None,
    until: UntilOption = None,
    pause: PauseOption = None,
    faults: FaultsOption = 1,
    horizon: HorizonOption = None,
    in_flight: InFlightOption = "lost",
    svg: SvgOption = None,
    as_json: JsonOption = False,
    time_limit: TimeLimitOption = None,
    gap: GapOption = 0.0,
    seed: SeedOption = 0,
    workers: WorkersOption = None,
    throughput: ThroughputOption = None,
    model: ThroughputOption = None,
) -> None:
    """Replay a failure trace: samples trained, time lost by cause, throughput over time.

    Exit code 0: replayed; 2: bad input; 3: the instance has no plan to start with.
    """
    from formulations.instance.load import load_instance
    from formulations.space.fleets import check_fleets
    from solver.replay.player import replay
    from solver.replay.policies import InstancePolicies, PolicyOptions
    from solver.report.replay import replay_json, replay_picture, replay_text

    check_writable(svg, keep=(instance, trace))
    names = _policy_names(policy)
    options = PolicyOptions(
        in_flight,
        faults,
        None if pause is None else time_ns("--pause", pause),
        None if horizon is None else time_ns("--horizon", horizon, least_ns=1),
        SolveOptions("exact", time_limit, gap, seed, workers or all_cores()),
    )
    with progress_display() as progress:
        problem = load_instance(instance, check_fleets if "ours" in names else None)
        policies = InstancePolicies(problem, options, progress)
        events = _trace(problem, trace, every, until, seed)
        runs: dict[str, tuple[Policy, Replay]] = {}
        for name in names:
            chosen = policies.of(name, events)
            runs[name] = chosen, replay(events, chosen, policies.out_of_time)
    if svg is not None:
        title = f"{instance.stem}: training through failures"
        write_text(svg, replay_picture(title, {name: run for name, (_, run) in runs.items()}))
    print_either(as_json, lambda: replay_json(runs), lambda: replay_text(runs, policies.summary))


def _trace(
    instance: "Instance", path: Path | None, every: str | None, until: str | None, seed: int
) -> "Trace":
    """The trace that the options ask for."""
    from solver.replay.trace import read_trace, regular_trace

    nodes = instance.cluster.node_names
    if (path is None) == (every is None):
        raise PlannerError("say either --trace FILE or --every TIME")
    if path is not None:
        end_ns = None if until is None else time_ns("--until", until, least_ns=1)
        return read_trace(path, nodes, end_ns)
    if until is not None:
        raise PlannerError("--until is for --trace; with --every, half of the nodes fail")
    assert every is not None
    return regular_trace(nodes, time_ns("--every", every, least_ns=1), seed)
