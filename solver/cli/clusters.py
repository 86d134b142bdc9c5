"""`pareto`: which clusters are worth their money, or which nodes help, with the proof."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from solver.cli import search_options
from solver.cli.files import check_writable
from solver.cli.search_options import flag, limit, num_workers, option, positive, time_ns
from solver.cli.terminal import family_display, say
from solver.options import Engine, SolveOptions

if TYPE_CHECKING:
    from formulations.instance.instance import Family
    from solver.front_document import Aim, FrontDocument

#: Exit codes where there is no point: no cluster has a plan, and none was found in time.
NO_PLAN, NONE_IN_TIME = 3, 4


def pareto_command(
    instance: Path = search_options.INSTANCE,
    out: Path | None = option("Write the front, its plans and proofs here."),
    svg: Path | None = option("Also draw the front here."),
    as_json: bool = search_options.JSON,
    subsets: bool = flag(
        "--subsets",
        "Instead the best subset of every size of the nodes of INSTANCE, and what each "
        "group brings; where the nodes of a group are a range, of the most.",
    ),
    budget: float | None = option(
        "Least step time at this training cost at most.", callback=positive, metavar="USD"
    ),
    deadline: str | None = option(
        "Least money for a training of this time, such as 30d.", metavar="TIME"
    ),
    sequences: int | None = option("Of the training; default: objective.steps.", min=1, max=10**15),
    time_limit: float | None = limit("Stop with the front so far."),
    gap: float = search_options.gap_option(),
    seed: int = search_options.SEED,
    workers: int | None = search_options.WORKERS,
    study: Path | None = search_options.STUDY,
    engine: Engine = search_options.ENGINE,
    address: str | None = search_options.ADDRESS,
) -> None:
    """Find the clusters of INSTANCE that no other beats in both throughput and training cost.

    In INSTANCE the nodes of groups are ranges such as {min: 0, max: 8}. With --budget the fastest
    cluster within it, with --deadline the cheapest, with both the front within both. Of useful
    sequences, and with the terms of the nodes, if INSTANCE minimises cost_per_useful_sequence.
    With --subsets the nodes of one cluster that help, whatever they cost.

    Exit code 0: a front; 2: bad input; 3: no cluster has a plan; 4: none found within the limit.
    """
    from formulations.instance.load import load_family
    from solver.cli.kinds import deliver
    from solver.clusters.wanted import Wanted

    check_writable(out, svg, keep=(instance, study))
    count = num_workers(workers, engine, address)
    options = SolveOptions("exact", time_limit, gap, seed, count, None, engine, address)
    deadline_s = None if deadline is None else time_ns("--deadline", deadline, least_ns=1) / 1e9
    wanted = Wanted(subsets, budget, deadline_s, sequences)
    family, aim = wanted.family(load_family(instance), str(instance))
    document = _search(family, aim, options, study)
    try:
        deliver(document, out, as_json=as_json, svg=svg)
    finally:
        if not (subsets or document.points or document.num_open):
            to_go_s = None if time_limit is None else max(0.0, time_limit - document.runtime_s)
            say(_remedy(family, replace(options, time_limit_s=to_go_s), study), err=True)
    if not document.points:
        raise typer.Exit(NONE_IN_TIME if document.num_open else NO_PLAN)


def _remedy(family: "Family", options: SolveOptions, study: Path | None) -> str:
    """What limits would have to allow: the least cost within the deadline, else the least time."""
    from solver.report.front import least_text

    limits: tuple[tuple[str, Aim], ...]
    limits = ("max_cost_usd_per_step", "money"), ("max_step_time_s", "time")
    wider = family
    for name, aim in limits:
        if getattr(wider.instance.limits, name) is None:
            continue
        wider = wider.but(instance={"limits": {name: None}})
        document = _search(wider, aim, options, study)
        if document.points or document.num_open:
            return least_text(document)
    return "no cluster has a plan, whatever the budget and the deadline"


def _search(
    family: "Family", aim: "Aim", options: SolveOptions, study: Path | None
) -> "FrontDocument":
    from solver.clusters.search import front_of
    from solver.study.store import study_at

    with family_display() as progress, study_at(study, family.instance) as kept:
        return front_of(family, aim, options, kept, progress)
