"""`solve`: the best plan of an instance, with its proof."""

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from formulations.errors import PlannerError
from solver.cli.files import check_writable, write_text
from solver.cli.search_options import (
    AddressOption,
    EngineOption,
    GapOption,
    InstanceArgument,
    JsonOption,
    SeedOption,
    StudyOption,
    WorkersOption,
    limit,
    num_workers,
)
from solver.cli.terminal import print_report, progress_display, say
from solver.options import Method, SolveOptions

if TYPE_CHECKING:
    from solver.document import PlanDocument
    from solver.result import Result

EXIT_CODES = {"optimal": 0, "feasible": 0, "infeasible": 3, "unknown": 4}


def solve_command(
    instance: InstanceArgument,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the plan, its proof and its figures here.")
    ] = None,
    as_json: JsonOption = False,
    proof: Annotated[
        bool,
        typer.Option("--proof", help="In the JSON object also how every combination was closed."),
    ] = False,
    method: Annotated[
        Method,
        typer.Option(
            help="exact: proved best plan. minmax: heuristic, no proof. "
            "cpsat, milp: exact by one CP-SAT or MILP model, slower."
        ),
    ] = "exact",
    time_limit: Annotated[float | None, limit("Stop with the best plan so far.")] = None,
    gap: GapOption = 0.0,
    seed: SeedOption = 0,
    write_model: Annotated[
        Path | None,
        typer.Option(
            help="Write the model of the plan's shape, with all critical paths found, here: "
            ".pb or .pbtxt by --method cpsat, .lp or .mps by milp.",
        ),
    ] = None,
    workers: WorkersOption = None,
    study: StudyOption = None,
    engine: EngineOption = "processes",
    address: AddressOption = None,
) -> None:
    """Find the best plan of INSTANCE and prove how good it is.

    Exit code 0: a plan; 2: bad input; 3: there is no plan; 4: none found within the limit.
    """
    from formulations.instance.load import load_instance
    from solver.files import to_json
    from solver.report.document import build_document
    from solver.search.targets import solve
    from solver.study.store import study_at

    if study is not None and method != "exact":
        raise PlannerError(f"--study keeps what --method exact closes; found: {method}")
    if engine == "ray" and method != "exact":
        raise PlannerError(f"--engine ray is for --method exact; found: {method}")
    if proof and not as_json:
        raise PlannerError("--proof adds to what --json prints; a plan file holds it anyway")
    count = num_workers(workers, engine, address)
    options = SolveOptions(method, time_limit, gap, seed, count, write_model, engine, address)
    check_writable(out, write_model, keep=(instance, study))
    problem = load_instance(instance)
    gc.freeze()  # what is loaded stays: no collection during the search looks at it again
    with progress_display() as progress, study_at(study, problem) as kept:
        result = solve(problem, options, progress, kept)
    document = build_document(result, options)
    try:
        if out is not None:
            write_text(out, to_json(document))
    finally:
        _print(result, document, as_json, proof)
    raise typer.Exit(EXIT_CODES[result.status])


def _print(result: "Result", document: "PlanDocument", as_json: bool, proof: bool) -> None:
    from solver.files import to_json
    from solver.report.text import solution_text

    reason = result.infeasibility
    if not as_json:
        print_report(solution_text(document, reason, result.other_targets))
        return
    say(to_json(document, proof=proof), end="")
    if reason is not None:
        say(f"{reason.constraint}; {reason.remedy}", err=True)
