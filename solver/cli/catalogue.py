"""`catalogue`: GPUs and workloads that instances may name."""

from typing import Annotated

import typer

from solver.cli.terminal import print_either


def catalogue_command(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of tables.")
    ] = False,
) -> None:
    """List the GPUs and workloads that an instance may name."""
    from formulations.instance.catalogue import catalogue, workload_from_catalogue
    from solver.report.catalogue import gpu_json, gpu_report, workload_list
    from solver.report.workload import workload_json

    known = catalogue()
    gpus = known.gpus
    workloads = [workload_from_catalogue(known.workloads, name) for name in known.workloads]
    figures = {"gpus": gpu_json(gpus), "workloads": [workload_json(one) for one in workloads]}
    print_either(
        as_json, lambda: figures, lambda: [*gpu_report(gpus), "", *workload_list(workloads)]
    )
