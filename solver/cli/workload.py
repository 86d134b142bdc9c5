"""`workload`: what a model costs before any plan."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from solver.cli.files import DEFAULT_TOKENS, names_file, usual_tokens
from solver.cli.search_options import JsonOption
from solver.cli.terminal import print_either

if TYPE_CHECKING:
    from formulations.instance import Workload


def workload_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name in the catalogue, or a Hugging Face config.json."
        ),
    ],
    as_json: JsonOption = False,
    sequence_length: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10**8,
            help="Tokens per sequence; default: the catalogue's, or what config.json allows "
            f"up to {DEFAULT_TOKENS}.",
        ),
    ] = None,
    global_batch: Annotated[
        int | None,
        typer.Option(min=1, max=10**8, help="Sequences per step; default: the catalogue's, or 1."),
    ] = None,
) -> None:
    """Print parameters, FLOPs and bytes per layer of a workload."""
    from solver.report.workload import workload_json, workload_report

    load = _from_config if names_file(name) else _from_catalogue
    workload = load(name, sequence_length, global_batch)
    print_either(as_json, lambda: workload_json(workload), lambda: workload_report(workload))


def _from_catalogue(name: str, length: int | None, batch: int | None) -> "Workload":
    from formulations.instance.catalogue import catalogue, workload_from_catalogue

    known = catalogue().workloads
    return workload_from_catalogue(
        known, name, where="workload", sequence_length=length, global_batch=batch
    )


def _from_config(name: str, length: int | None, batch: int | None) -> "Workload":
    from formulations.instance.huggingface import architecture_from_config
    from formulations.instance.resolve_workload import config_name, from_config
    from formulations.instance.transformer import build_workload

    path = Path(name)
    architecture = from_config(path, architecture_from_config)
    return build_workload(
        architecture,
        name=config_name(path),
        source=name,
        sequence_length=length or usual_tokens(path),
        global_batch=batch or 1,
    )
