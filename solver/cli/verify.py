"""`verify`: checks a plan file without any code of models or search."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from formulations.errors import PlannerError
from solver.cli.search_options import positive
from solver.cli.terminal import counter_display, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from solver.deep import Opinion
    from solver.document import PlanDocument

#: Claims that are named one by one.
EXAMPLES = 20


class RefusedError(PlannerError):
    """The plan file is not what solve wrote, or its claims are wrong."""

    exit_code = 1


def verify_command(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file written by solve --out.")],
    instance: Annotated[
        Path | None,
        typer.Option(help="Also compare with this instance file, which the plan should be for."),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also prove again what stands at the word of the search."),
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option(callback=positive, metavar="SECONDS", help="Longest time for --deep."),
    ] = None,
) -> None:
    """Check every constraint, figure and proof of a plan again.

    Exit code 0: all hold, but for claims that are listed as not proved again; 1: refused, with
    field, found and expected; 2: not a plan file.
    """
    from solver.document import read_document
    from solver.fleet_document import is_fleet
    from solver.verify import compare_instance, verify_document

    if is_fleet(plan):
        _verify_fleet(plan, instance)
        return
    document = read_document(plan)
    verification = verify_document(document)
    problems = list(verification.problems)
    if instance is not None:
        from formulations.instance.load import load_instance

        problems += compare_instance(document, load_instance(instance))
    for line in verification.checked:
        say(f"checked: {line}")
    unproved = len(verification.by_word)
    if deep and unproved and not problems:
        found = _opinions(document, verification.by_word, time_limit)
        problems += [text for one in found if (text := one.problem(document.instance))]
        unproved = _tell(document, verification.by_word, found)
    _conclude(plan, problems, _reservation(unproved, deep))


def _conclude(plan: Path, problems: "Sequence[str]", reservation: str = "") -> None:
    """Prints problems and the verdict; raises RefusedError if there are any."""
    for line in problems:
        say(f"refused: {line}")
    if problems:
        raise RefusedError(f"{plan}: refused for {len(problems)} of its fields or claims")
    say(f"{plan}: verified{reservation}")


def _verify_fleet(plan: Path, instance: Path | None) -> None:
    """The same for a fleet file."""
    from solver.fleet_document import read_fleet
    from solver.verify import instance_differences, verify_fleet

    document = read_fleet(plan)
    verification = verify_fleet(document)
    problems = list(verification.problems)
    if instance is not None:
        from formulations.instance.load import load_instance

        problems += instance_differences(document.instance, load_instance(instance))
    for line in verification.checked:
        say(f"checked: {line}")
    _conclude(plan, problems, "".join(f", but for {one}" for one in verification.reservations))


def _reservation(unproved: int, deep: bool) -> str:
    """What the verification does not cover."""
    if not unproved:
        return ""
    hint = "" if deep else " (--deep proves them again)"
    claims = "1 claim" if unproved == 1 else f"{unproved} claims"
    return f", but for {claims} at the word of the search{hint}"


def _opinions(
    document: "PlanDocument", entries: "Sequence[int]", time_limit: float | None
) -> "list[Opinion]":
    """What is found out about these entries of the log until time is up or Ctrl-C."""
    from solver.deep import opinions

    found: list[Opinion] = []
    with counter_display("claims proved again", len(entries)) as show:
        try:
            for one in opinions(document, entries, time_limit):
                found.append(one)
                show(len(found))
        except KeyboardInterrupt:
            say("interrupted", err=True)
    return found


def _tell(document: "PlanDocument", entries: "Sequence[int]", found: "Sequence[Opinion]") -> int:
    """Prints what was proved again and what was not; returns the number of the latter."""
    proved = {one.index for one in found if one.reproof.verdict == "proved"}
    refuted = {one.index for one in found if one.reproof.verdict == "refuted"}
    kinds = Counter((one.record.proof, one.reproof.by) for one in found if one.index in proved)
    for (closed_by, by), count in sorted(kinds.items()):
        say(f"checked: {count} closed by {closed_by}, proved again by {by}")
    left = [index for index in entries if index not in proved | refuted]
    for index in left[:EXAMPLES]:
        record = document.closed_shapes[index]
        say(f"not proved again: closed_shapes[{index}], closed by {record.proof}: {record.shape}")
    if len(left) > EXAMPLES:
        say(f"not proved again: {len(left) - EXAMPLES} more")
    return len(left)
