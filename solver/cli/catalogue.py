"""`catalogue`: GPUs and workloads that instances may name."""

import json
from typing import Annotated

import typer

from solver.cli.terminal import print_report, say


def catalogue_command(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of tables.")
    ] = False,
) -> None:
    """List the GPUs and workloads that an instance may name."""
    from formulations.instance.load import catalogue
    from formulations.instance.workload_catalogue import workload_from_catalogue
    from solver.report.catalogue import gpu_json, gpu_report, workload_list
    from solver.report.workload import workload_json

    known = catalogue()
    gpus = known.gpus
    workloads = [workload_from_catalogue(known.workloads, name) for name in known.workloads]
    if as_json:
        figures = {
            "gpus": gpu_json(gpus),
            "workloads": [workload_json(workload) for workload in workloads],
        }
        say(json.dumps(figures, indent=1))
    else:
        print_report([*gpu_report(gpus), "", *workload_list(workloads)])
