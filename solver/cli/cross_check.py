"""`cross-check`: heuristics and exact methods side by side."""

from typing import Annotated

import typer

from solver.cli.search_options import (
    GapOption,
    InstanceArgument,
    JsonOption,
    SeedOption,
    WorkersOption,
    all_cores,
    limit,
)
from solver.cli.terminal import print_either, progress_display
from solver.options import CheckMethod, SolveOptions

USUAL = (CheckMethod.MINMAX, CheckMethod.LOCAL, CheckMethod.EXACT)


def cross_check_command(
    instance: InstanceArgument,
    method: Annotated[
        list[CheckMethod] | None,
        typer.Option(
            help="What to compare; repeat it for several. local: local search, no proof. Unless "
            "given: minmax, local and exact."
        ),
    ] = None,
    time_limit: Annotated[float, limit("For each of the methods.")] = 60.0,
    as_json: JsonOption = False,
    gap: GapOption = 0.0,
    seed: SeedOption = 0,
    workers: WorkersOption = None,
) -> None:
    """Compare the plans and the bounds that several methods find for INSTANCE.

    Exit code 0: no plan is below a proved bound; 1: a contradiction; 2: bad input.
    """
    from formulations.instance.load import load_instance
    from solver.report.comparison import comparison_json, comparison_text
    from solver.search.cross_check import cross_check

    problem = load_instance(instance)
    options = SolveOptions("exact", time_limit, gap, seed, workers or all_cores())
    with progress_display() as progress:
        comparison = cross_check(problem, method or USUAL, options, progress)
    print_either(as_json, lambda: comparison_json(comparison), lambda: comparison_text(comparison))
    raise typer.Exit(1 if comparison.contradictions else 0)
