"""`verify`: checks a plan file without any code of models or search."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from formulations.errors import PlannerError
from solver.cli.search_options import limit
from solver.cli.terminal import say, steps_display

if TYPE_CHECKING:
    from solver.verify import Verification

#: Claims that are named one by one.
EXAMPLES = 20


class RefusedError(PlannerError):
    """The plan file is not what solve wrote, or its claims are wrong."""

    exit_code = 1


class UnprovedError(PlannerError):
    """Nothing is wrong with the plan file, but not all that it claims was proved again."""

    exit_code = 5


def verify_command(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="Plan, front, fleet, switch or lengths file.")
    ],
    instance: Annotated[
        Path | None,
        typer.Option(help="Also compare with this instance file, which the plan should be for."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Leave what an exhaustive search closed at its word."),
    ] = False,
    time_limit: Annotated[float | None, limit("Longest time for proofs.")] = None,
) -> None:
    """Check every constraint, figure and proof of a plan again.

    Exit code 0: all is proved; 5: nothing is wrong, but the claims that are listed were not proved
    again; 1: refused, with field, found and expected; 2: not a plan file.
    """
    from solver.cli.kinds import part_of, read_kind
    from solver.report.degrees import one_line
    from solver.verify import Effort

    kind, document = read_kind(plan)
    differs = instance and partial(part_of(kind, "differs", "--instance"), document, instance)
    with steps_display("claims proved again") as show:
        effort = Effort(time_limit, "quick" if quick else "all", show)
        verification = kind.verify(document, effort)
    for index in verification.unproved[:EXAMPLES]:
        record = document.closed_shapes[index]
        what = one_line(record.shape)
        say(f"not proved again: closed_shapes[{index}], closed by {record.proof}: {what}")
    if (more := len(verification.unproved) - EXAMPLES) > 0:
        say(f"not proved again: {more} more")
    _judge(plan, verification, differs() if differs else ())


def _judge(plan: Path, verification: "Verification", more: Sequence[str] = ()) -> None:
    """Prints what was found and the verdict; raises RefusedError or UnprovedError."""
    problems = [*verification.problems, *more]
    for line in verification.checked:
        say(f"checked: {line}")
    for line in problems:
        say(f"refused: {line}")
    if problems:
        raise RefusedError(f"{plan}: refused for {len(problems)} of its fields or claims")
    for line in verification.reservations:
        say(f"not proved again: {line}")
    unproved = len(verification.unproved) + len(verification.reservations)
    if unproved:
        claims = "1 claim that was" if unproved == 1 else f"{unproved} claims that were"
        raise UnprovedError(f"{plan}: nothing wrong, but {claims} not proved again")
    say(f"{plan}: verified")
