"""`verify`: checks a plan file without any code of models or search."""

from pathlib import Path
from typing import Annotated

import typer

from formulations.errors import PlannerError
from solver.cli.terminal import say


class RefusedError(PlannerError):
    """The plan file is not what solve wrote, or its claims are wrong."""

    exit_code = 1


def verify_command(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file written by solve --out.")],
    instance: Annotated[
        Path | None,
        typer.Option(help="Also compare with this instance file, which the plan should be for."),
    ] = None,
) -> None:
    """Check every constraint, figure and proof of a plan again.

    Exit code 0: all hold; 1: refused, with field, found and expected; 2: not a plan file.
    """
    from solver.document import read_document
    from solver.verify import compare_instance, verify_document

    document = read_document(plan)
    verification = verify_document(document)
    problems = list(verification.problems)
    if instance is not None:
        from formulations.instance.load import load_instance

        problems += compare_instance(document, load_instance(instance))
    for line in verification.checked:
        say(f"checked: {line}")
    for line in problems:
        say(f"refused: {line}")
    if problems:
        raise RefusedError(f"{plan}: refused for {len(problems)} of its fields or claims")
    say(f"{plan}: verified")
