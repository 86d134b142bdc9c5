"""`show`: a plan file in words and as a picture."""

from pathlib import Path
from typing import Annotated

import typer

from solver.cli.files import check_writable, write_text
from solver.cli.terminal import print_report, say


def show_command(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="Plan, front, fleet, switch or lengths file.")
    ],
    svg: Annotated[
        Path | None,
        typer.Option("--svg", help="Draw it here: a front, a switch, a step of lengths."),
    ] = None,
) -> None:
    """Show the stages, places and timeline of a plan.

    It is checked as `verify` does, but for the proof that no plan is better.
    """
    from solver.cli.kinds import checked_kind, part_of

    check_writable(svg, keep=(plan,))
    kind, document = checked_kind(plan)
    if svg is not None:
        write_text(svg, part_of(kind, "picture", "--svg")(document))
    print_report(kind.text(document))
    if kind.claims(document):
        say(f"The file is checked; its bound is only if `verify {plan}` says so.")
