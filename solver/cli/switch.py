"""`switch`: who sends which slices of tensors to whom between two plans."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from solver.cli.files import check_writable, checked_plan, write_text
from solver.cli.search_options import JsonOption, limit
from solver.cli.terminal import print_report, say


def switch_command(
    before: Annotated[
        Path, typer.Argument(metavar="FROM", help="Plan file written by solve --out.")
    ],
    after: Annotated[
        Path, typer.Argument(metavar="TO", help="Another one, of the same model and machines.")
    ],
    moves: Annotated[
        Literal["parameters", "gradients", "both"],
        typer.Option(help="What moves; gradients are accumulated ones, reduced before."),
    ] = "parameters",
    out: Annotated[Path | None, typer.Option(help="Write the switch here.")] = None,
    as_json: JsonOption = False,
    time_limit: Annotated[float | None, limit("Longest time to beat the published rule.")] = None,
) -> None:
    """Plan the switch from one plan to another: who sends which slices to whom, soonest done.

    Exit code 0: a plan; 2: bad input.
    """
    from solver.files import to_json
    from solver.report.switch import switch_text
    from solver.switching.documented import check_alike, switch_document

    check_writable(out, keep=(before, after))
    first, second = checked_plan(before), checked_plan(after)
    check_alike(first, second, (str(before), str(after)))
    document = switch_document(first, second, moves, time_limit)
    if out is not None:
        write_text(out, to_json(document))
    if as_json:
        say(to_json(document), end="")
    else:
        print_report(switch_text(document))
