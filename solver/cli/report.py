"""`report`: a plan as a page for a browser, and as a trace."""

from pathlib import Path
from typing import Annotated

import typer

from solver.cli.files import check_writable, write_text
from solver.cli.terminal import say


def report_command(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="Plan, front, switch or lengths file.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    trace: Annotated[
        Path | None,
        typer.Option(help="Also write one step here, for Perfetto (ui.perfetto.dev)."),
    ] = None,
) -> None:
    """Write a plan as one HTML file that needs no network.

    It is checked as `show` does.
    """
    from solver.cli.kinds import checked_kind, part_of

    check_writable(out, trace, keep=(plan,))
    kind, document = checked_kind(plan)
    files = {out: part_of(kind, "page", "report")}
    if trace is not None:
        files[trace] = part_of(kind, "trace", "--trace")
    for path, write in files.items():
        write_text(path, write(document))
    say(f"wrote {' and '.join(map(str, files))}")
