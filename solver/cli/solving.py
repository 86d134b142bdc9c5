"""What asks for the best: plans, beside what runs, of many lengths, and the best clusters."""

import gc
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from formulations.errors import InstanceError, PlanError, PlannerError
from solver.cli.files import check_folder, check_writable, write_folder, write_text
from solver.cli.search_options import time_ns
from solver.cli.terminal import (
    family_display,
    print_either,
    print_report,
    progress_display,
    say,
    steps_display,
)
from solver.options import CheckMethod, ExportTarget, SolveOptions

if TYPE_CHECKING:
    from formulations.instance.instance import Family
    from solver.front_document import Aim, FrontDocument

#: Methods that `cross-check` compares unless others are named.
USUAL = (CheckMethod.MINMAX, CheckMethod.LOCAL, CheckMethod.EXACT)
EXIT_CODES = {"optimal": 0, "feasible": 0, "infeasible": 3, "unknown": 4}


def solve_command(
    instance: Path,
    options: SolveOptions,
    out: Path | None = None,
    as_json: bool = False,
    proof: bool = False,
    details: bool = False,
    study: Path | None = None,
) -> None:
    """Find the best plan of INSTANCE and prove how good it is.

    Exit code 0: a plan; 2: bad input; 3: there is no plan; 4: none found within the limit.
    """
    from formulations.instance.load import load_instance
    from solver.files import to_json
    from solver.plan_figures import build_document
    from solver.report.text import solution_text
    from solver.search.driver import solve_with_targets
    from solver.study.store import study_at

    if study is not None and options.method != "exact":
        raise PlannerError(f"--study keeps what --method exact closes; found: {options.method}")
    if options.engine == "ray" and options.method != "exact":
        raise PlannerError(f"--engine ray is for --method exact; found: {options.method}")
    if proof and not as_json:
        raise PlannerError("--proof adds to what --json prints; a plan file holds it anyway")
    check_writable(out, options.write_model, keep=(instance, study))
    problem = load_instance(instance)
    gc.freeze()  # what is loaded stays: no collection during the search looks at it again
    with progress_display() as progress, study_at(study, problem) as kept:
        result = solve_with_targets(problem, options, progress, kept)
    document = build_document(result, options)
    try:
        if out is not None:
            write_text(out, to_json(document))
    finally:
        if not as_json:
            why, others = result.infeasibility, result.other_targets
            print_report(solution_text(document, why, others, details=details))
        else:
            say(to_json(document, proof=proof), end="")
            if result.infeasibility is not None:
                reason = result.infeasibility
                say(f"{reason.constraint}; {reason.remedy}", err=True)
    raise typer.Exit(EXIT_CODES[result.status])


def cross_check_command(
    instance: Path,
    options: SolveOptions,
    method: list[CheckMethod] | None = None,
    as_json: bool = False,
) -> None:
    """Compare the plans and the bounds that several methods find for INSTANCE.

    Exit code 0: no plan is below a proved bound; 1: a contradiction; 2: bad input.
    """
    from formulations.instance.load import load_instance
    from solver.report.compared import comparison_json, comparison_text
    from solver.search.cross_check import cross_check

    problem = load_instance(instance)
    with progress_display() as progress:
        comparison = cross_check(problem, method or USUAL, options, progress)
    print_either(as_json, comparison_json, comparison_text, comparison)
    raise typer.Exit(1 if comparison.contradictions else 0)


def evaluate_command(
    instance: Path,
    options: SolveOptions,
    megatron: Path | None = None,
    torchtitan: Path | None = None,
    degrees: str | None = None,
    order: str | None = None,
    out: Path | None = None,
    as_json: bool = False,
) -> None:
    """Predict the step of what runs today on INSTANCE, and say what would make it faster.

    Degrees, split and strategies are read from launch files, and judged as a plan: step time,
    memory per GPU, how far it is from the best plan, and which single decision of that plan brings
    most. Exit code 2: files that their framework, or the machines, would refuse.
    """
    from formulations.instance.load import load_instance
    from solver.evaluate.evaluation import compared, predicted
    from solver.evaluate.run_plan import read_run
    from solver.files import to_json
    from solver.report.compared import evaluation_json, evaluation_text

    check_writable(out, keep=(instance, megatron, torchtitan))
    run = read_run(load_instance(instance), megatron, torchtitan, degrees, order)
    document, evaluation = predicted(run)
    if out is not None and not evaluation.broken:
        write_text(out, to_json(document))
    if options.time_limit_s:
        with progress_display() as progress:
            evaluation = compared(run, evaluation, options, progress)
    print_either(as_json, evaluation_json, evaluation_text, document, evaluation)
    if out is not None and evaluation.broken:
        broken = evaluation.broken[0]
        raise PlannerError(f"{out} is not written: {broken}; plan files keep all limits")


def shortlist_command(
    instance: Path,
    options: SolveOptions,
    count: int = 5,
    out: Path | None = None,
    to: ExportTarget | None = None,
    as_json: bool = False,
) -> None:
    """Choose which plans of INSTANCE to measure: unlike each other, and any may be the fastest.

    The prediction of a step has an error. Plans within it are told apart by a few measured steps of
    each: DIR has a job per plan and measured.csv, for `calibrate`; then `solve` decides. Exit code
    0: plans; 2: bad input; 3: there is no plan; 4: none found within the limit.
    """
    from formulations.instance.load import load_instance
    from solver.evaluate.shortlist import jobs, shortlist
    from solver.report.compared import shortlist_json, shortlist_text

    if to is not None and out is None:
        raise PlannerError("--to is of the jobs that --out DIR gets")
    if out is not None:
        check_folder(out)
    problem = load_instance(instance)
    with steps_display("configurations") as tell:
        best, plans = shortlist(problem, count, options, tell)
    refused: list[str] = []
    if out is not None and plans.listed:
        texts, refused = jobs(problem, plans, to)
        write_folder(out, texts)
    print_either(as_json, lambda: shortlist_json(plans), lambda: shortlist_text(best, plans))
    for line in refused:
        say(f"no job: {line}", err=True)
    if out is not None and plans.listed and not as_json:
        say(f"wrote {out}: plans, jobs, measured.csv. Run a few steps of each job and fill that in")
        say(
            f"next: hetplan calibrate {instance} --measured {out}/measured.csv --out corrected.yaml"
        )
    raise typer.Exit(EXIT_CODES[best.status])


def lengths_command(
    instance: Path,
    options: SolveOptions,
    order: Literal["ascending", "free"] = "ascending",
    out: Path | None = None,
    plans: Path | None = None,
    static: str | None = None,
    as_json: bool = False,
    study: Path | None = None,
) -> None:
    """Choose which strategy runs which sequences of INSTANCE, whose `lengths` are many.

    Exit code 0: a step; 2: bad input; 3: sequences that no strategy takes, or no step; 4: none
    found within the limit.
    """
    from formulations.instance.load import load_instance
    from solver.cli.kinds import deliver
    from solver.evaluate.evaluation import lengths_document, row_file_name
    from solver.files import to_json
    from solver.lengths.candidates import candidates, static_step
    from solver.report.lengths import dispatch_text, static_text, strategies_text
    from solver.study.store import study_at

    check_writable(out, keep=(instance, study, plans))
    if plans is not None:
        check_folder(plans)
    problem = load_instance(instance)
    if problem.lengths is None:
        allowed = "one with histogram, file or log_normal"
        raise InstanceError(str(instance), "no section lengths", allowed)
    if static is not None and as_json:
        raise PlannerError("--static is printed; allowed: without --json")
    beside = None if static is None else static_step(problem, static)
    with steps_display("layouts") as tell, study_at(study, problem) as kept:
        listed = candidates(problem, tell, kept)
    document = lengths_document(problem, listed, order, options)
    if plans is not None:
        if not document.plans:
            raise PlanError("--plans", "strategies that were measured", "those of the search")
        # Of the strategies that run, of the best single one, and of the anchor
        single = () if document.single is None else (document.single.strategy,)
        used = {document.anchor, *single, *(group.strategy for group in document.groups)}
        names = {q: row_file_name(document.problem.strategies[q].name) for q in sorted(used)}
        write_folder(plans, {name: to_json(document.plans[q]) for q, name in names.items()})
    if not as_json:
        print_report(strategies_text(problem, listed.mixed))
        say("")
    deliver(document, out, as_json=as_json)
    if not as_json:
        print_report(dispatch_text(document))
        print_report(static_text(document, *beside) if beside else [])


def pareto_command(
    instance: Path,
    options: SolveOptions,
    out: Path | None = None,
    svg: Path | None = None,
    as_json: bool = False,
    subsets: bool = False,
    budget: float | None = None,
    deadline: str | None = None,
    sequences: int | None = None,
    study: Path | None = None,
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
    from solver.clusters.front import Wanted

    check_writable(out, svg, keep=(instance, study))
    deadline_s = None if deadline is None else time_ns("--deadline", deadline, least_ns=1) / 1e9
    wanted = Wanted(subsets, budget, deadline_s, sequences)
    family, aim = wanted.family(load_family(instance), str(instance))
    document = _search(family, aim, options, study)
    try:
        deliver(document, out, as_json=as_json, svg=svg)
    finally:
        if not (subsets or document.points or document.num_open):
            limit_s = options.time_limit_s
            to_go_s = None if limit_s is None else max(0.0, limit_s - document.runtime_s)
            say(_remedy(family, replace(options, time_limit_s=to_go_s), study), err=True)
    if not document.points:
        raise typer.Exit(EXIT_CODES["unknown" if document.num_open else "infeasible"])


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
