"""`show`: a plan file in words and as a picture."""

from pathlib import Path
from typing import Annotated

import typer

from formulations.errors import PlannerError
from solver.cli.files import check_writable, refuse_changed, write_text
from solver.cli.terminal import print_report, say


def show_command(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="Plan, front, fleet, switch or lengths file.")
    ],
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Also draw one step as an SVG picture here.")
    ] = None,
) -> None:
    """Show the stages, places and timeline of a plan.

    It is checked as `verify` does, but for the proof that no plan is better.
    """
    from solver.cli.recover import check_fleet, show_fleet
    from solver.document import read_document
    from solver.fleet_document import FLEET_FILE
    from solver.front_document import FRONT_FILE
    from solver.lengths_document import LENGTHS_FILE
    from solver.report.document import costs_of
    from solver.report.front_picture import front_picture
    from solver.report.lengths_picture import lengths_picture
    from solver.report.lengths_step import step_text
    from solver.report.subsets_text import front_report
    from solver.report.svg import svg_picture
    from solver.report.switch_text import switch_text
    from solver.report.text import plan_text
    from solver.simulate import simulate_step
    from solver.switch_document import SWITCH_FILE
    from solver.verify import Effort, verify_document, verify_front, verify_lengths, verify_switch

    if svg is not None:
        check_writable(svg)
    kind = FLEET_FILE.kind_of(plan)
    if kind == FLEET_FILE.kind:
        if svg is not None:
            raise PlannerError("--svg draws a plan written by solve, not a fleet")
        fleet = FLEET_FILE.read(plan)
        check_fleet(fleet, plan)
        show_fleet(fleet)
        return
    if kind == FRONT_FILE.kind:
        front = FRONT_FILE.read(plan)
        refuse_changed(plan, verify_front(front, Effort(prove="nothing")))
        if svg is not None:
            write_text(svg, front_picture(front))
        print_report(front_report(front))
        return
    if kind == SWITCH_FILE.kind:
        if svg is not None:
            raise PlannerError("--svg draws a plan written by solve, not a switch")
        switch = SWITCH_FILE.read(plan)
        refuse_changed(plan, verify_switch(switch))
        print_report(switch_text(switch))
        return
    if kind == LENGTHS_FILE.kind:
        lengths = LENGTHS_FILE.read(plan)
        refuse_changed(plan, verify_lengths(lengths, Effort(prove="nothing")))
        if svg is not None:
            write_text(svg, lengths_picture(lengths))
        print_report(step_text(lengths))
        say(f"The step is checked; its bound is only if `verify {plan}` says so.")
        return
    document = read_document(plan)
    refuse_changed(plan, verify_document(document, Effort(prove="nothing")))
    step = simulate_step(costs_of(document))
    if svg is not None:
        write_text(svg, svg_picture(document, step))
    print_report(plan_text(document, step))
    if document.closed_shapes:
        say(f"The plan is checked; its bound is only if `verify {plan}` says so.")
