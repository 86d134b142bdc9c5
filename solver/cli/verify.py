"""`verify`: checks a plan file without any code of models or search."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from formulations.errors import PlannerError
from solver.cli.search_options import positive
from solver.cli.terminal import say, steps_display

if TYPE_CHECKING:
    from formulations.instance import Instance
    from solver.lengths_document import LengthsDocument
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
    time_limit: Annotated[
        float | None,
        typer.Option(callback=positive, metavar="SECONDS", help="Longest time for proofs."),
    ] = None,
) -> None:
    """Check every constraint, figure and proof of a plan again.

    Exit code 0: all is proved; 5: nothing is wrong, but the claims that are listed were not proved
    again; 1: refused, with field, found and expected; 2: not a plan file.
    """
    from solver.document import read_document
    from solver.fleet_document import FLEET_FILE
    from solver.front_document import FRONT_FILE
    from solver.lengths_document import LENGTHS_FILE
    from solver.report.degrees import one_line
    from solver.switch_document import SWITCH_FILE
    from solver.verify import (
        Effort,
        verify_document,
        verify_fleet,
        verify_front,
        verify_lengths,
        verify_switch,
    )

    kind = FLEET_FILE.kind_of(plan)
    if kind == FLEET_FILE.kind:
        fleet = FLEET_FILE.read(plan)
        _conclude(plan, fleet.instance, verify_fleet(fleet), instance)
        return
    if kind == SWITCH_FILE.kind:
        switch = SWITCH_FILE.read(plan)
        if instance is not None:
            raise PlannerError("--instance is for plans and fleets; a switch has no instance")
        _judge(plan, verify_switch(switch))
        return
    effort = partial(Effort, time_limit, "quick" if quick else "all")
    if kind == LENGTHS_FILE.kind:
        lengths = LENGTHS_FILE.read(plan)
        _judge(plan, verify_lengths(lengths, effort()), _other_instance(lengths, instance))
        return
    with steps_display("claims proved again") as show:
        if kind == FRONT_FILE.kind:
            front = FRONT_FILE.read(plan)
            verification = verify_front(front, effort(show))
            fewest = None if front.aim == "subsets" else front.family.fewest
            _conclude(plan, front.family.instance, verification, instance, fewest)
            return
        document = read_document(plan)
        verification = verify_document(document, effort(show))
    for index in verification.unproved[:EXAMPLES]:
        record = document.closed_shapes[index]
        what = one_line(record.shape)
        say(f"not proved again: closed_shapes[{index}], closed by {record.proof}: {what}")
    if (more := len(verification.unproved) - EXAMPLES) > 0:
        say(f"not proved again: {more} more")
    _conclude(plan, document.instance, verification, instance)


def _conclude(
    plan: Path,
    own: "Instance",
    verification: "Verification",
    instance: Path | None,
    fewest: tuple[int, ...] | None = None,
) -> None:
    """Compares a file with an instance, if one is given, then `_judge`.

    fewest: nodes of every group in the clusters of a front.
    """
    from solver.verify import instance_differences

    problems = list[str]()
    if instance is not None:
        from formulations.instance.load import load_family

        family = load_family(instance)
        problems += instance_differences(own, family.instance)
        if fewest not in (None, family.fewest):
            problems.append(f"fewest nodes: found {fewest}, expected {family.fewest}")
    _judge(plan, verification, problems)


def _other_instance(lengths: "LengthsDocument", instance: Path | None) -> list[str]:
    """What is wrong if a file of mixed lengths should be for an instance and is for another."""
    if instance is None:
        return []
    from formulations.instance.load import load_instance
    from solver.document import digest

    expected = digest(load_instance(instance).model_dump(mode="json"))
    if lengths.instance_digest == expected:
        return []
    return [f"instance_digest: found {lengths.instance_digest}, expected {expected}"]


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
