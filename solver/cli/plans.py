"""What is done with files: check, show, draw, compare, explain, launch; the switch between two."""

from pathlib import Path
from typing import Any, Literal

from formulations.errors import PlanError, PlannerError
from solver.cli.files import (
    check_folder,
    check_writable,
    checked,
    checked_plan,
    write_folder,
    write_text,
)
from solver.cli.terminal import print_either, print_report, say, steps_display
from solver.options import ExportTarget, SolveOptions

#: Claims that are named one by one.
EXAMPLES = 20

#: Exit codes: a file is not what solve wrote, or its claims are wrong; nothing is wrong, but not
#: all that it claims was proved again.
REFUSED, UNPROVED = 1, 5


def verify_command(
    plan: Path, instance: Path | None = None, quick: bool = False, time_limit: float | None = None
) -> None:
    """Check every constraint, figure and proof of a plan again.

    Exit code 0: all is proved; 5: nothing is wrong, but the claims that are listed were not proved
    again; 1: refused, with field, found and expected; 2: not a plan file.
    """
    from formulations.instance.load import load_family
    from solver.cli.kinds import KINDS, differences
    from solver.files import read_one_of
    from solver.report.naming import one_line
    from solver.verify import Effort, verified

    document: Any = read_one_of([*KINDS], plan)
    with steps_display("claims proved again") as show:
        effort = Effort(time_limit, "quick" if quick else "all", show)
        verification = verified(document, effort)
    for index in verification.unproved[:EXAMPLES]:
        record = document.closed_configs[index]
        what = one_line(record.config)
        say(f"not proved again: closed_configs[{index}], closed by {record.proof}: {what}")
    if (more := len(verification.unproved) - EXAMPLES) > 0:
        say(f"not proved again: {more} more")
    problems = list(verification.problems)
    if instance is not None:
        problems += differences(document, load_family(instance))
    for line in verification.checked:
        say(f"checked: {line}")
    for line in problems:
        say(f"refused: {line}")
    if problems:
        refused = f"{plan}: refused for {len(problems)} of its fields or claims"
        raise PlannerError(refused, REFUSED)
    for line in verification.reservations:
        say(f"not proved again: {line}")
    unproved = len(verification.unproved) + len(verification.reservations)
    if unproved:
        claims = "1 claim that was" if unproved == 1 else f"{unproved} claims that were"
        raise PlannerError(f"{plan}: nothing wrong, but {claims} not proved again", UNPROVED)
    say(f"{plan}: verified")


def show_command(
    plan: Path | None = None,
    svg: Path | None = None,
    study: Path | None = None,
    as_json: bool = False,
    details: bool = False,
) -> None:
    """Show the stages, places and timeline of a plan, or how far a study has come.

    A plan is checked as `verify` does, but for the proof that no plan is better.
    """
    if (plan is None) == (study is None):
        raise PlannerError("name either a PLAN file or, with --study, what a search keeps")
    if plan is None:
        from solver.cli.study import show_study

        if svg is not None:
            raise PlannerError("--svg draws a file; a study has no picture")
        if details:
            raise PlannerError("--details is of a plan file, not of a study")
        assert study is not None
        show_study(study, as_json)
        return
    from solver.cli.kinds import KINDS, part_of

    if as_json:
        raise PlannerError(f"--json is for --study; {plan} is JSON already")
    check_writable(svg, keep=(plan,))
    document = checked(plan, *KINDS)
    kind = KINDS[type(document)]
    if svg is not None:
        write_text(svg, part_of(document, "picture", "--svg"))
    print_report(part_of(document, "details", "--details") if details else kind.text(document))
    if kind.claims(document):
        say(f"The file is checked; its bound is only if `verify {plan}` says so.")


def report_command(
    plan: Path,
    other: Path | None = None,
    out: Path = Path("report.html"),
    trace: Path | None = None,
) -> None:
    """Write a plan as one HTML file that needs no network.

    It is checked as `show` does.
    """
    from solver.cli.kinds import KINDS, page_of, part_of

    check_writable(out, trace, keep=(plan, other))
    document = checked(plan, *KINDS)
    beside = None if other is None else (checked_plan(other), str(other))
    texts = {out: page_of(document, str(plan), beside)}
    if trace is not None:
        texts[trace] = part_of(document, "trace", "--trace")
    for path, text in texts.items():
        write_text(path, text)
    say(f"wrote {' and '.join(map(str, texts))}")


def export_command(plan: Path, to: ExportTarget, out: Path, own_model: bool = False) -> None:
    """Write the files with which a framework launches PLAN, and what starts its processes.

    What the framework cannot express is refused, with what to change or who can.
    """
    from solver.export.registry import EXPORTERS, exported
    from solver.plan_figures import plan_of

    check_folder(out)
    try:
        document = checked_plan(plan)
    except PlanError as error:
        if error.found != "a fleet file":
            raise
        names = ", ".join(exporter.name for exporter in EXPORTERS.values())
        unlike = f"a fleet file, and none of {names} sums gradients over pipelines of unlike stages"
        raise PlanError(error.where, unlike, error.allowed) from None
    texts = exported(document.instance, plan_of(document), to, str(plan), own_model)
    write_folder(out, texts)
    names = ", ".join(sorted(texts))
    say(f"{EXPORTERS[to].name}: wrote {names} to {out}; README.md says how to start it.")


def diff_command(first: Path, second: Path) -> None:
    """Show where two plans differ: degrees, time by cost term, memory, money.

    Both are checked as `show` does.
    """
    from solver.report.compared import difference, distinct_names

    a, b = checked_plan(first), checked_plan(second)
    print_report(difference(a, b, distinct_names(str(first), str(second))))


def explain_command(plan: Path, options: SolveOptions, as_json: bool = False) -> None:
    """Say what limits the step of PLAN, and what other machines or strategies would save.

    Every change is solved again, from PLAN where that stays possible: one more node of each group,
    without each group, links and memory twice as large, half the batch, another target, each
    strategy off.
    """
    from solver.explain.what_ifs import answers
    from solver.report.explained import answers_json, explanation

    document = checked_plan(plan)
    with steps_display("changes solved") as tell:
        changes = list(answers(document, options, tell))
    print_either(as_json, lambda: answers_json(changes), lambda: explanation(document, changes))


def switch_command(
    before: Path,
    after: Path,
    moves: Literal["parameters", "gradients", "both"] = "parameters",
    out: Path | None = None,
    as_json: bool = False,
    time_limit: float | None = None,
) -> None:
    """Plan the switch from one plan to another: who sends which slices to whom, soonest done.

    Exit code 0: a plan; 2: bad input.
    """
    from solver.cli.kinds import deliver
    from solver.switching.quickest import check_alike, switch_document

    check_writable(out, keep=(before, after))
    first, second = checked_plan(before), checked_plan(after)
    check_alike(first, second, (str(before), str(after)))
    with steps_display("planning the switch"):
        document = switch_document(first, second, moves, time_limit)
    deliver(document, out, as_json=as_json)
