"""`lengths`: which strategy runs which sequences of a step of many lengths, and when."""

from pathlib import Path
from typing import Literal

from formulations.errors import InstanceError, PlanError
from solver.cli import search_options
from solver.cli.files import check_folder, check_writable, write_folder
from solver.cli.search_options import limit, option
from solver.cli.terminal import print_report, steps_display
from solver.options import MAX_WORKERS, SolveOptions


def lengths_command(
    instance: search_options.InstanceArgument,
    order: Literal["ascending", "free"] = option(
        "Shorter sequences first, or groups of any lengths in any order.", "ascending"
    ),
    out: Path | None = option("Write the step, its times and bound here."),
    svg: Path | None = option("Also draw the step here."),
    plans: Path | None = option(
        "Write plans of what runs, and of the best single strategy, into a new folder.",
        metavar="DIR",
    ),
    as_json: search_options.JsonOption = False,
    time_limit: float | None = limit("Longest search of a free order."),
    study: search_options.StudyOption = None,
    gap: search_options.GapOption = 0.0,
    seed: search_options.SeedOption = 0,
    workers: int = option("Threads of the search of a free order.", 1, min=1, max=MAX_WORKERS),
) -> None:
    """Choose which strategy runs which sequences of INSTANCE, whose `lengths` are many.

    Exit code 0: a step; 2: bad input; 3: sequences that no strategy takes, or no step; 4: none
    found within the limit.
    """
    from formulations.instance.load import load_instance
    from solver.cli.kinds import deliver
    from solver.evaluate.evaluation import row_file_name, row_plans
    from solver.files import to_json
    from solver.lengths.candidates import candidates
    from solver.lengths.choose import build_lengths, check_limits, choose
    from solver.report.lengths import dispatch_text, strategies_text
    from solver.study.store import study_at

    check_writable(out, svg, keep=(instance, study, plans))
    if plans is not None:
        check_folder(plans)
    problem = load_instance(instance)
    if problem.lengths is None:
        allowed = "one with histogram, file or log_normal"
        raise InstanceError(str(instance), "no section lengths", allowed)
    with steps_display("layouts") as tell, study_at(study, problem) as kept:
        found = candidates(problem, tell, kept)
    options = SolveOptions(time_limit_s=time_limit, gap=gap, seed=seed, workers=workers)
    chosen = choose(found.mixed, order, options)
    check_limits(problem, chosen)
    files = row_plans(problem, found)
    document = build_lengths(chosen, problem.workload.name, problem, files, found.above)
    if plans is not None:
        if not document.plans:
            raise PlanError("--plans", "strategies that were measured", "those of the search")
        # Of the strategies that run, of the best single one, and of the anchor
        single = () if document.single is None else (document.single.strategy,)
        used = {document.anchor, *single, *(group.strategy for group in document.groups)}
        names = {q: row_file_name(document.problem.strategies[q].name) for q in sorted(used)}
        write_folder(plans, {name: to_json(document.plans[q]) for q, name in names.items()})
    if not as_json:
        print_report([*strategies_text(problem, found.mixed), ""])
    deliver(document, out, as_json=as_json, svg=svg)
    if not as_json:
        print_report(dispatch_text(document))
