"""`diff`: two plans by cost term."""

from pathlib import Path
from typing import Annotated

import typer

from solver.cli.files import checked_plan
from solver.cli.terminal import print_report


def diff_command(
    first: Annotated[
        Path, typer.Argument(metavar="PLAN", help="Plan file written by solve --out.")
    ],
    second: Annotated[Path, typer.Argument(metavar="PLAN", help="Another one.")],
) -> None:
    """Show where two plans differ: degrees, time by cost term, memory, money.

    Both are checked as `show` does.
    """
    from solver.report.difference import difference

    a, b = checked_plan(first), checked_plan(second)
    names = ("first", "second") if first.name == second.name else (first.name, second.name)
    print_report(difference(a, b, names))
