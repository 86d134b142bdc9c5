"""`evaluate`: what a user runs today, judged as a plan."""

from pathlib import Path
from typing import Annotated

import typer

from formulations.errors import PlannerError
from solver.cli.files import check_writable, write_text
from solver.cli.search_options import (
    GapOption,
    InstanceArgument,
    JsonOption,
    WorkersOption,
    all_cores,
    finite,
)
from solver.cli.terminal import print_either, progress_display


def evaluate_command(
    instance: InstanceArgument,
    megatron: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Arguments of Megatron-LM.")
    ] = None,
    torchtitan: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Configuration module, and its schedule.")
    ] = None,
    degrees: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="tp, cp, ep, pp, dp, vpp, micro_batch (1 unless given), schedule, recompute, "
            "zero, split=9/7/5/3 (blocks).",
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Node groups of the hosts in rank order, as small,big*2; unless given, hosts.txt "
            "beside the files, or the order of INSTANCE.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the plan here, as solve does.")
    ] = None,
    as_json: JsonOption = False,
    time_limit: Annotated[
        float,
        typer.Option(
            min=0.0,
            callback=finite,
            metavar="SECONDS",
            help="For the best plan; 0: do not look for it.",
        ),
    ] = 60.0,
    gap: GapOption = 0.001,
    workers: WorkersOption = None,
) -> None:
    """Predict the step of what runs today on INSTANCE, and say what would make it faster.

    Degrees, split and strategies are read from launch files, and judged as a plan: step time,
    memory per GPU, how far it is from the best plan, and which single decision of that plan brings
    most. Exit code 2: files that their framework, or the machines, would refuse.
    """
    from formulations.instance.load import load_instance
    from solver.evaluate.evaluation import compared, predicted
    from solver.evaluate.read import read_run
    from solver.files import to_json
    from solver.options import SolveOptions
    from solver.report.document import costs_of
    from solver.report.evaluated import evaluation_json, evaluation_text
    from solver.search.driver import solve
    from solver.simulate import simulate_step

    check_writable(out, keep=(instance, megatron, torchtitan))
    own = read_run(load_instance(instance), megatron, torchtitan, degrees, order)
    document, found = predicted(own)
    if out is not None and not found.broken:
        write_text(out, to_json(document))
    if time_limit:
        options = SolveOptions(time_limit_s=time_limit, gap=gap, workers=workers or all_cores())
        with progress_display() as progress:
            found = compared(own, found, options, lambda space, how: solve(space, how, progress))
    print_either(
        as_json,
        lambda: evaluation_json(document, found),
        lambda: evaluation_text(document, simulate_step(costs_of(document)), found),
    )
    if out is not None and found.broken:
        raise PlannerError(f"{out} is not written: {found.broken[0]}; plan files keep all limits")
