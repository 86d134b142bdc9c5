"""`export`: a plan as files that a framework launches."""

from pathlib import Path
from typing import Annotated

import typer

from solver.cli.files import check_folder, checked_plan, write_folder
from solver.cli.terminal import say
from solver.options import ExportTarget


def export_command(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file written by solve --out.")],
    to: Annotated[ExportTarget, typer.Option("--to", help="Who is to run it.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="New folder for the files.")],
) -> None:
    """Write the files with which a framework launches PLAN, and what starts its processes.

    What the framework cannot express is refused, with what to change or who can. The files are read
    back and must sum to the plan: layers, ranks, micro-batches.
    """
    from solver.export.registry import EXPORTERS, exported
    from solver.report.document import plan_of

    check_folder(out)
    document = checked_plan(plan)
    texts, check = exported(document.instance, plan_of(document), to, str(plan))
    write_folder(out, texts, check)
    names = ", ".join(sorted(texts))
    say(f"{EXPORTERS[to].name}: wrote {names} to {out}; read back, they sum to the plan.")
