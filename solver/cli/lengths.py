"""`lengths`: which strategy runs which sequences of a step of many lengths, and when."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from formulations.errors import InstanceError, PlanError
from solver.cli.files import check_folder, check_writable, write_folder, write_text
from solver.cli.search_options import (
    GapOption,
    InstanceArgument,
    JsonOption,
    SeedOption,
    StudyOption,
    limit,
)
from solver.cli.terminal import print_report, say, steps_display
from solver.options import MAX_WORKERS, SolveOptions

if TYPE_CHECKING:
    from solver.lengths_document import LengthsDocument

OrderOption = Annotated[
    Literal["ascending", "free"],
    typer.Option(help="Shorter sequences first, or groups of any lengths in any order."),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="Write the step, its times and bound here.")
]
SvgOption = Annotated[Path | None, typer.Option("--svg", help="Also draw the step here.")]
PlansOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write plans of what runs, and of the best single strategy, into a new folder.",
    ),
]
TimeLimitOption = Annotated[float | None, limit("Longest search of a free order.")]
ThreadsOption = Annotated[
    int, typer.Option(min=1, max=MAX_WORKERS, help="Threads of the search of a free order.")
]


def lengths_command(
    instance: InstanceArgument,
    order: OrderOption = "ascending",
    out: OutOption = None,
    svg: SvgOption = None,
    plans: PlansOption = None,
    as_json: JsonOption = False,
    time_limit: TimeLimitOption = None,
    study: StudyOption = None,
    gap: GapOption = 0.0,
    seed: SeedOption = 0,
    workers: ThreadsOption = 1,
) -> None:
    """Choose which strategy runs which sequences of INSTANCE, whose `lengths` are many.

    Exit code 0: a step; 2: bad input; 3: sequences that no strategy takes, or no step; 4: none
    found within the limit.
    """
    from formulations.instance.load import load_instance
    from solver.evaluate.evaluation import row_plans
    from solver.files import to_json
    from solver.lengths.candidates import candidates
    from solver.lengths.choose import build_lengths, check_limits, choose
    from solver.report.lengths import (
        dispatch_text,
        lengths_picture,
        step_text,
        strategies_text,
    )
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
        _write_plans(plans, document)
    if out is not None:
        write_text(out, to_json(document))
    if svg is not None:
        write_text(svg, lengths_picture(document))
    if as_json:
        say(to_json(document), end="")
        return
    print_report([*strategies_text(problem, found.mixed), "", *step_text(document)])
    print_report(dispatch_text(document))


def _write_plans(folder: Path, document: "LengthsDocument") -> None:
    """Plan files of the strategies that run, of the best single one, and of the anchor."""
    from solver.evaluate.evaluation import row_file_name
    from solver.files import to_json

    if not document.plans:
        raise PlanError("--plans", "strategies that were measured", "those of the search")
    single = () if document.single is None else (document.single.strategy,)
    used = sorted({document.anchor, *single, *(group.strategy for group in document.groups)})
    names = [row_file_name(document.problem.strategies[q].name) for q in used]
    files = {name: to_json(document.plans[q]) for name, q in zip(names, used, strict=True)}
    write_folder(folder, files)
