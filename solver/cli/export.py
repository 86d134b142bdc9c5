"""`export`: a plan as files that a framework launches."""

from pathlib import Path
from typing import Annotated

import typer

from solver.cli.files import check_folder, refuse_changed, write_folder
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
    from solver.document import read_document
    from solver.export.registry import EXPORTERS, exported
    from solver.report.document import plan_of
    from solver.verify import Effort, verify_document

    check_folder(out)
    document = read_document(plan)
    refuse_changed(plan, verify_document(document, Effort(prove="nothing")))
    texts, check = exported(document.instance, plan_of(document), to, str(plan))
    write_folder(out, texts, check)
    names = ", ".join(sorted(texts))
    say(f"{EXPORTERS[to].name}: wrote {names} to {out}; read back, they sum to the plan.")
