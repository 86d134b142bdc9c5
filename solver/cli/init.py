"""`init`: a first instance from a model and a list of machines."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from formulations.errors import PlannerError
from solver.cli.files import check_writable, names_file, usual_tokens, write_text
from solver.cli.terminal import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from solver.setup.machines import Machines
    from solver.setup.written import Training

Answer = TypeVar("Answer")

MODEL_HELP = "Name of the catalogue, or path of a Hugging Face config.json."
NODES_HELP = 'NODESxGPUSxTYPE[@NETWORK]: 4x8xH100, or "2x4xRTX-3090@10 Gbit/s".'
DEFAULT_BATCH = 256  #: sequences per step of a config.json, which names none


def init_command(
    model: Annotated[str | None, typer.Option(help=MODEL_HELP)] = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(metavar="MACHINES", help=f"{NODES_HELP} Once per kind of machine."),
    ] = None,
    slurm: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The machines in what `scontrol show node` or `sinfo -o '%N %G %T'` printed.",
        ),
    ] = None,
    detect: Annotated[
        bool, typer.Option("--detect", help="The GPUs of this machine; needs nvidia-ml-py.")
    ] = False,
    sequence_length: Annotated[
        int | None, typer.Option(min=1, max=10**8, help="Tokens per sequence.")
    ] = None,
    global_batch: Annotated[
        int | None, typer.Option(min=1, max=10**8, help="Sequences per step.")
    ] = None,
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("instance.yaml"),
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file if there is one.")
    ] = False,
) -> None:
    """Write a first instance, with comments; asks for what no option says."""
    from formulations.instance.load import catalogue, parse_instance
    from formulations.instance.target import untrained
    from solver.report.text import cluster_text
    from solver.setup.written import WIDEST, instance_text

    check_writable(out)
    if out.exists() and not force:
        raise PlannerError(
            f"{out} exists; name another file with --out, or replace it with --force"
        )
    training = _asked_training(model, sequence_length, global_batch)
    machines = _machines(nodes, slurm, detect)
    text = instance_text(training, machines, catalogue().gpus, out.parent)
    instance = parse_instance(text + WIDEST, f"{out} (not written)", out.parent)
    untaken = any(untrained("megatron", instance.workload))
    write_text(out, text + WIDEST if untaken else text)
    say(f"wrote {out}: {instance.workload.name} on {cluster_text(instance)}")
    say(f"next: hetplan solve {out}")


def _asked(option: str, question: str, read: "Callable[[str], Answer]") -> "Answer":
    """What the user answers, asked again until it can be read.

    Raises PlannerError where nobody can answer.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise PlannerError(f"{option} is missing: {question}")
    while True:
        try:
            return read(str(typer.prompt(question.removesuffix("."))))
        except PlannerError as error:
            say(f"error: {error}", err=True)


def _asked_training(
    model: str | None, sequence_length: int | None, global_batch: int | None
) -> "Training":
    def read(answer: str) -> "Training":
        return _training(answer, sequence_length, global_batch)

    return _asked("--model", MODEL_HELP, read) if model is None else read(model)


def _machines(nodes: list[str] | None, slurm: Path | None, detect: bool) -> "list[Machines]":
    """What the options name together; what the user answers if they name nothing."""
    from formulations.instance.load import gpu_catalogue
    from solver.setup.machines import detected_machines, parse_machines, slurm_machines

    known = gpu_catalogue()
    found = [parse_machines(text, known) for text in nodes or ()]
    found += slurm_machines(slurm, known) if slurm else []
    found += [detected_machines(known)] if detect else []
    if not found:
        question = f"{NODES_HELP} Several with commas between"
        return _asked(
            "--nodes",
            question,
            lambda answer: [parse_machines(text, known) for text in answer.split(",")],
        )
    return found


def _training(model: str, sequence_length: int | None, global_batch: int | None) -> "Training":
    """The model with what the catalogue or its own file says of its training."""
    from formulations.instance.load import catalogue
    from formulations.instance.workload_catalogue import workload_from_catalogue
    from solver.setup.written import Training

    if names_file(model):
        path = Path(model)
        return Training(path, sequence_length or usual_tokens(path), global_batch or DEFAULT_BATCH)
    workload = workload_from_catalogue(
        catalogue().workloads,
        model,
        where="--model",
        sequence_length=sequence_length,
        global_batch=global_batch,
    )
    return Training(model, workload.sequence_length, workload.global_batch)
