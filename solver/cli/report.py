"""`report`: a plan as a page for a browser, and as a trace."""

from pathlib import Path
from typing import Annotated

import typer

from formulations.errors import PlannerError
from solver.cli.files import check_writable, checked_plan, refuse_changed, write_text
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
    from solver.front_document import FRONT_FILE
    from solver.lengths_document import LENGTHS_FILE
    from solver.report.document import costs_of
    from solver.report.html.front_page import front_page
    from solver.report.html.lengths_page import lengths_page
    from solver.report.html.page import html_page
    from solver.report.html.switch_page import switch_page
    from solver.report.trace import chrome_trace
    from solver.simulate import simulate_step
    from solver.switch_document import SWITCH_FILE
    from solver.verify import Effort, verify_front, verify_lengths, verify_switch

    for path in filter(None, (out, trace)):
        check_writable(path)
    kind = FRONT_FILE.kind_of(plan)
    if kind == FRONT_FILE.kind:
        if trace is not None:
            raise PlannerError("--trace is of a plan written by solve, not of a front")
        front = FRONT_FILE.read(plan)
        refuse_changed(plan, verify_front(front, Effort(prove="nothing")))
        write_text(out, front_page(front))
        say(f"wrote {out}")
        return
    if kind == SWITCH_FILE.kind:
        if trace is not None:
            raise PlannerError("--trace is of a plan written by solve, not of a switch")
        switch = SWITCH_FILE.read(plan)
        refuse_changed(plan, verify_switch(switch))
        write_text(out, switch_page(switch))
        say(f"wrote {out}")
        return
    if kind == LENGTHS_FILE.kind:
        if trace is not None:
            raise PlannerError("--trace is of a plan written by solve, not of mixed lengths")
        lengths = LENGTHS_FILE.read(plan)
        refuse_changed(plan, verify_lengths(lengths, Effort(prove="nothing")))
        write_text(out, lengths_page(lengths))
        say(f"wrote {out}")
        return
    document = checked_plan(plan)
    step = simulate_step(costs_of(document))
    write_text(out, html_page(document, step))
    if trace is not None:
        write_text(trace, chrome_trace(document, step))
    say(f"wrote {' and '.join(str(path) for path in (out, trace) if path)}")
