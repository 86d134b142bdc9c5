"""`explain`: what limits a plan, and what would make it better."""

from pathlib import Path
from typing import Annotated

import typer

from solver.cli.files import checked_plan
from solver.cli.search_options import GapOption, JsonOption, WorkersOption, all_cores, limit
from solver.cli.terminal import print_either, steps_display


def explain_command(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file written by solve --out.")],
    as_json: JsonOption = False,
    time_limit: Annotated[float, limit("For all changes together.")] = 60.0,
    gap: GapOption = 0.001,
    workers: WorkersOption = None,
) -> None:
    """Say what limits the step of PLAN, and what other machines or strategies would save.

    Every change is solved again, from PLAN where that stays possible: one more node of each group,
    without each group, links and memory twice as large, half the batch, another target, each
    strategy off.
    """
    from solver.explain.what_ifs import answers
    from solver.options import SolveOptions
    from solver.report.document import costs_of, plan_of
    from solver.report.explained import answers_json, explanation
    from solver.simulate import simulate_step

    document = checked_plan(plan)
    step = simulate_step(costs_of(document))
    options = SolveOptions(time_limit_s=time_limit, gap=gap, workers=workers or all_cores())
    with steps_display("changes solved") as tell:
        found = list(answers(document.instance, plan_of(document), options, tell))
    print_either(as_json, lambda: answers_json(found), lambda: explanation(document, step, found))
