"""`init`: a first instance from a model and a list of machines."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from formulations.errors import InstanceError, PlannerError
from solver.cli.files import DEFAULT_TOKENS, check_writable, names_file, usual_tokens, write_text
from solver.cli.search_options import JsonOption
from solver.cli.terminal import print_either, say

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
    from formulations.instance.catalogue import catalogue
    from formulations.instance.load import parse_instance
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
    from formulations.instance.catalogue import gpu_catalogue
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
    from formulations.instance.catalogue import catalogue, workload_from_catalogue
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


def calibrate_command(
    instance: Annotated[Path, typer.Argument(metavar="INSTANCE", help="Instance file.")],
    measured: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="CSV of measured steps: tensor_parallel, data_parallel, pipeline_parallel, "
            "micro_batch, seconds; also memory, group, global_batch, recompute and others.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Instance file to write.")],
) -> None:
    """Correct the layer times of INSTANCE by measured steps; plans then say what error to expect.

    One step per tensor-parallel degree and micro-batch size that matters is enough; several with
    unlike numbers of stages tell the blocks from embedding and head.
    """
    from formulations.instance.documents import read_text
    from formulations.instance.load import parse_instance
    from solver.measure.calibration import Corrected, fit, memory_headroom, section, summary
    from solver.measure.steps_file import read_steps

    check_writable(out)
    text = read_text(instance, "the path of an instance file")
    planned = parse_instance(text, str(instance), instance.parent)
    if planned.calibration is not None:
        allowed = "the instance without it, and all measured steps in one file"
        raise InstanceError(str(instance), "a calibration already", allowed)
    rows = read_steps(measured, planned)
    steps = [step for step, _ in rows]
    source = f"{measured.name}, {len(steps)} measured step{'s' if len(steps) > 1 else ''}"
    found = Corrected(source, planned, steps, fit(steps), memory_headroom(rows))
    written = text.rstrip("\n") + "\n" + section(found)
    try:
        parse_instance(written, f"{out} (not written)", out.parent)
    except InstanceError as error:
        if instance.resolve().parent == out.resolve().parent:
            raise
        raise PlannerError(f"{error}; or write --out beside {instance}") from None
    write_text(out, written)
    for line in summary(found):
        say(line)
    say(f"wrote {out}; next: hetplan solve {out}")


if TYPE_CHECKING:
    from formulations.instance.transformer import Architecture, TransformerSizes


def profile_command(
    model: Annotated[
        str, typer.Option(help="Name of the catalogue, or path of a Hugging Face config.json.")
    ],
    out: Annotated[Path, typer.Option(help="Profile file to write.")],
    gpu: Annotated[
        str | None,
        typer.Option(help="Name of the GPU in instances. Default: the catalogue's, or CPU."),
    ] = None,
    tensor_parallel: Annotated[
        str, typer.Option(metavar="1,2", help="Tensor-parallel degrees, with commas between.")
    ] = "1",
    micro_batch: Annotated[
        str, typer.Option(metavar="1,2,4", help="Micro-batch sizes, with commas between.")
    ] = "1,2,4",
    sequence_length: Annotated[
        int | None, typer.Option(min=1, max=10**6, help="Tokens per sequence.")
    ] = None,
    precision: Annotated[
        Literal["fp32", "tf32", "fp16", "bf16"] | None,
        typer.Option(help="Default: bf16, fp16 before Ampere, fp32 on a CPU."),
    ] = None,
    device: Annotated[
        Literal["cuda", "cpu"] | None, typer.Option(help="Default: cuda where there is a GPU.")
    ] = None,
) -> None:
    """Measure forward, backward and weight-gradient time and peak memory of every layer kind here.

    One GPU runs the share 1 / tp of each layer, so without tensor-parallel traffic. Needs PyTorch.
    """
    check_writable(out)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # PyTorch's profiler talks on stderr
    try:
        import torch  # noqa: F401, before all that needs it
    except ImportError:
        need = "profile needs PyTorch: pip install 'hetplan[torch]', or torch as your GPU needs it"
        raise PlannerError(need) from None
    from formulations.instance.catalogue import gpu_catalogue
    from formulations.instance.load import check_profile
    from solver.measure import layer_profile as measuring
    from solver.report.quantities import time_text
    from solver.setup.machines import catalogue_name

    architecture, length = _model(model)
    sizes = measuring.buildable(architecture, f"--model {model}")
    here = measuring.device_of(device)
    wanted = measuring.Wanted(
        model=model,
        sizes=sizes,
        sequence_length=sequence_length or length,
        precision=precision or measuring.usual_precision(here),
        tensor_parallel=_degrees(tensor_parallel, sizes),
        micro_batch=_numbers("--micro-batch", micro_batch),
    )
    driver = measuring.gpu_name(here)
    name = gpu or (catalogue_name(driver, gpu_catalogue(), "--gpu") if driver else "CPU")
    found = {}
    for key, one in measuring.measure(wanted, here):
        found[key] = one
        kind, tp, b = key
        forward, backward = (time_text(ms / 1e3) for ms in (one.forward_ms, one.backward_ms))
        passes = f"forward {forward}, backward {backward}"
        say(f"{kind}, tensor {tp}, micro-batch {b}: {passes}", err=True)
    text = measuring.profile_text(wanted, here, name, found)
    check_profile(text, f"{out} (not written)")
    write_text(out, text)
    say(f"wrote {out}: {model} on {name}; name it as `profile` in an instance")


def _model(model: str) -> "tuple[Architecture, int]":
    """Its architecture, and the tokens per sequence that it is usually trained with."""
    from formulations.instance.catalogue import catalogue, catalogue_entry
    from formulations.instance.huggingface import architecture_from_config
    from formulations.instance.resolve_workload import from_config

    if not names_file(model):
        entry = catalogue_entry(catalogue().workloads, model, "--model")
        return entry.sizes, entry.sequence_length
    path = Path(model)
    return from_config(path, architecture_from_config), usual_tokens(path)


def _numbers(option: str, text: str) -> list[int]:
    """Different numbers, ascending. Raises InstanceError for other text."""
    numbers = {int(one) for one in text.split(",") if one.strip().isdecimal() and len(one) < 6}
    if not numbers or 0 in numbers or len(numbers) != len(text.split(",")):
        raise InstanceError(option, repr(text), "different numbers from 1 on, such as 1,2,4")
    return sorted(numbers)


def _degrees(text: str, sizes: "TransformerSizes") -> list[int]:
    """Degrees that split heads and feed-forward network evenly."""
    degrees = _numbers("--tensor-parallel", text)
    for tp in degrees:
        if sizes.num_kv_heads % tp or sizes.dense_ffn_size % tp:
            found = f"{tp}, which does not divide the {sizes.num_kv_heads} heads"
            if sizes.num_kv_heads % tp == 0:
                found = f"{tp}, which does not divide the inner width {sizes.dense_ffn_size}"
            raise InstanceError("--tensor-parallel", found, "common divisors of both")
    return degrees


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
    from solver.report.catalogue import workload_json, workload_report

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


def catalogue_command(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of tables.")
    ] = False,
) -> None:
    """List the GPUs and workloads that an instance may name."""
    from formulations.instance.catalogue import catalogue, workload_from_catalogue
    from solver.report.catalogue import gpu_json, gpu_report, workload_json, workload_list

    known = catalogue()
    gpus = known.gpus
    workloads = [workload_from_catalogue(known.workloads, name) for name in known.workloads]
    figures = {"gpus": gpu_json(gpus), "workloads": [workload_json(one) for one in workloads]}
    print_either(
        as_json, lambda: figures, lambda: [*gpu_report(gpus), "", *workload_list(workloads)]
    )


def schema_command() -> None:
    """Print the JSON schema of instance files."""
    from formulations.instance.schema import instance_json_schema

    say(json.dumps(instance_json_schema(), indent=2))
