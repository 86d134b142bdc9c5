"""`replay`: a failure trace played through recovery policies."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from formulations.errors import PlannerError
from solver.cli import search_options
from solver.cli.files import check_writable, write_text
from solver.cli.search_options import all_cores, gone, limit, option, time_ns
from solver.cli.terminal import print_either, progress_display
from solver.options import SolveOptions

if TYPE_CHECKING:
    from solver.replay.policy import Policy
    from solver.replay.spans import Replay

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
_GONE = gone("published inputs of a --model are a benchmark, python -m bench replay")


def replay_command(
    instance: search_options.InstanceArgument,
    trace: Path | None = option("CSV file of failures: time,node,event (fail or join)."),
    every: str | None = option(
        "One node at random fails every TIME, such as 10m or 6h, until half of them are left.",
        metavar="TIME",
    ),
    policy: list[str] | None = option(
        "How training recovers; repeat it for several. ours: the fleet of templates that "
        "trains most until the next failure. restart: all nodes, from the last checkpoint. "
        "redundancy: a neighbour computes for the lost node. Unless given: ours.",
        metavar="ours|restart|redundancy",
    ),
    until: str | None = option(
        "End of the run. Unless given: the trace's last event.", metavar="TIME"
    ),
    pause: str | None = option(
        "From a failure to the next step; for ours copying comes on top. "
        "Unless given: as published for a model of this size.",
        metavar="TIME",
    ),
    faults: int = option("Failures at once that ours is to survive.", 1, min=0),
    horizon: str | None = option(
        "Time to the next failure that ours reckons with. Unless given: the trace's mean.",
        metavar="TIME",
    ),
    in_flight: InFlightRule = option(
        "The step in flight at a failure: lost; or background: the old configuration "
        "trains on during the pause, as in Oobleck's public simulator.",
        "lost",
    ),
    svg: Path | None = option("Draw the throughput over time here."),
    as_json: search_options.JsonOption = False,
    time_limit: float | None = limit("Stop with what was played so far."),
    gap: search_options.GapOption = 0.0,
    seed: search_options.SeedOption = 0,
    workers: search_options.WorkersOption = None,
    throughput: str | None = _GONE,
    model: str | None = _GONE,
) -> None:
    """Replay a failure trace: samples trained, time lost by cause, throughput over time.

    Exit code 0: replayed; 2: bad input; 3: the instance has no plan to start with.
    """
    from formulations.instance.load import load_instance
    from formulations.space.fleets import check_fleets
    from solver.replay.player import replay
    from solver.replay.policies import InstancePolicies, PolicyOptions
    from solver.replay.trace import read_trace, regular_trace
    from solver.report.replay import replay_json, replay_picture, replay_text

    check_writable(svg, keep=(instance, trace))
    allowed: dict[str, PolicyName] = {name: name for name in get_args(PolicyName)}
    for name in policy or ():
        if name not in allowed:
            what = PUBLISHED.get(name, "no policy")
            raise PlannerError(f"--policy {name} is {what}; allowed: ours, restart or redundancy")
    names = [allowed[name] for name in policy or ["ours"]]
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
        nodes = problem.cluster.node_names
        if (trace is None) == (every is None):
            raise PlannerError("say either --trace FILE or --every TIME")
        if trace is not None:
            end_ns = None if until is None else time_ns("--until", until, least_ns=1)
            events = read_trace(trace, nodes, end_ns)
        elif until is not None:
            raise PlannerError("--until is for --trace; with --every, half of the nodes fail")
        else:
            events = regular_trace(nodes, time_ns("--every", str(every), least_ns=1), seed)
        runs: dict[str, tuple[Policy, Replay]] = {}
        for recovery in names:
            chosen = policies.of(recovery, events)
            runs[recovery] = chosen, replay(events, chosen, policies.deadline.over)
    if svg is not None:
        title = f"{instance.stem}: training through failures"
        write_text(svg, replay_picture(title, {name: run for name, (_, run) in runs.items()}))
    print_either(as_json, lambda: replay_json(runs), lambda: replay_text(runs, policies.summary))
