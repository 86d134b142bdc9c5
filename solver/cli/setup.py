"""What stands before a search: a first instance, layer times, what hetplan knows by name."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import typer

from formulations.errors import InstanceError, PlannerError
from solver.cli.files import check_writable, write_text
from solver.cli.search_options import OPTIONS
from solver.cli.terminal import print_either, say
from solver.report.quantities import time_text

if TYPE_CHECKING:
    from formulations.instance import Workload
    from formulations.instance.machines import GpuType
    from formulations.instance.transformer import Architecture
    from solver.setup.first_instance import Machines

Answer = TypeVar("Answer")

NODES_HELP = 'NODESxGPUSxTYPE[@NETWORK]: 4x8xH100, or "2x4xRTX-3090@10 Gbit/s".'
DEFAULT_BATCH = 256  #: sequences per step of a config.json, which names none
DEFAULT_TOKENS = 4096  #: per sequence of a config.json, unless its own maximum is less


def init_command(
    model: str | None = None,
    nodes: list[str] | None = None,
    slurm: Path | None = None,
    kubernetes: Path | None = None,
    skypilot: Path | None = None,
    region: str | None = None,
    detect: bool = False,
    gpu: list[str] | None = None,
    sequence_length: int | None = None,
    global_batch: int | None = None,
    out: Path = Path("instance.yaml"),
    force: bool = False,
) -> None:
    """Write a first instance, with comments; asks for what no option says."""
    from formulations.instance.load import parse_instance
    from formulations.instance.machines import gpu_catalogue
    from formulations.instance.targets import TARGETS
    from solver.report.text import cluster_text
    from solver.setup.first_instance import WIDEST, Training, instance_text, parse_gpu
    from solver.setup.offers import with_prices

    check_writable(out)
    if out.exists() and not force:
        raise PlannerError(
            f"{out} exists; name another file with --out, or replace it with --force"
        )

    if region and not skypilot:
        raise PlannerError("--region is that of the prices: --skypilot FILE is missing")
    described = [parse_gpu(text) for text in gpu or ()]
    gpus = {**{kind.name: kind for kind, _ in described}, **gpu_catalogue()}

    def training_of(answer: str) -> Training:
        described = _model(answer, "--model")
        tokens = sequence_length or described.sequence_length
        # What the instance names: the entry of the catalogue, or the file
        source = Path(answer) if _names_file(answer) else answer
        return Training(source, tokens, global_batch or described.global_batch or DEFAULT_BATCH)

    model_help = OPTIONS["shared"]["model"]
    training = training_of(model) if model else _asked("--model", model_help, training_of)
    machines = _machines(nodes, slurm, kubernetes, detect, gpus)
    machines = with_prices(skypilot, machines, gpus, region) if skypilot else machines
    lines = {kind.name: written for kind, written in described}
    text = instance_text(training, machines, gpus, out.parent, lines)
    instance = parse_instance(text + WIDEST, f"{out} (not written)", out.parent)
    untaken = any(TARGETS["megatron"].untrained(instance.workload))
    write_text(out, text + WIDEST if untaken else text)
    say(f"wrote {out}: {instance.workload.name} on {cluster_text(instance)}")
    say(f"next: hetplan solve {out}")


def _machines(
    nodes: list[str] | None,
    slurm: Path | None,
    kubernetes: Path | None,
    detect: bool,
    gpus: "Mapping[str, GpuType]",
) -> "list[Machines]":
    """Those of all options, else those that the user names; of a GPU not known also an example."""
    from solver.setup import first_instance as setup

    try:
        machines = [setup.parse_machines(text, gpus) for text in nodes or ()]
        machines += setup.slurm_machines(slurm, gpus) if slurm else []
        machines += setup.kubernetes_machines(kubernetes, gpus) if kubernetes else []
        machines += [setup.detected_machines(gpus)] if detect else []
    except setup.UnknownGpuError as error:
        for line in error.example:
            say(line, err=True)
        raise
    return machines or _asked(
        "--nodes",
        f"{NODES_HELP} Several with commas between",
        lambda answer: [setup.parse_machines(m, gpus) for m in answer.split(",")],
    )


def _asked(option: str, question: str, read: Callable[[str], Answer]) -> Answer:
    """What the user answers, asked again until it can be read; PlannerError if nobody can."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise PlannerError(f"{option} is missing: {question}")
    while True:
        try:
            return read(str(typer.prompt(question.removesuffix("."))))
        except PlannerError as error:
            say(f"error: {error}", err=True)


def calibrate_command(instance: Path, measured: Path, out: Path) -> None:
    """Correct the layer times of INSTANCE by measured steps; plans then say what error to expect.

    One step per tensor-parallel degree and micro-batch size that matters is enough; several with
    unlike numbers of stages tell the blocks from embedding and head.
    """
    from formulations.instance.documents import read_text
    from formulations.instance.load import parse_instance
    from solver.measure.corrected import calibrated, summary

    check_writable(out)
    text = read_text(instance, "the path of an instance file")
    corrected, written = calibrated(text, str(instance), instance.parent, measured)
    try:
        parse_instance(written, f"{out} (not written)", out.parent)
    except InstanceError as error:
        if instance.resolve().parent == out.resolve().parent:
            raise
        raise PlannerError(f"{error}; or write --out beside {instance}") from None
    write_text(out, written)
    for line in summary(corrected):
        say(line)
    say(f"wrote {out}; next: hetplan solve {out}")


def profile_command(
    model: str,
    out: Path,
    gpu: str | None = None,
    tensor_parallel: str = "1",
    micro_batch: str = "1,2,4",
    sequence_length: int | None = None,
    precision: Literal["fp32", "tf32", "fp16", "bf16"] | None = None,
    device: Literal["cuda", "cpu"] | None = None,
) -> None:
    """Measure forward, backward and weight-gradient time and peak memory of every layer kind here.

    One GPU runs the share 1 / tp of each layer, so without tensor-parallel traffic. Needs PyTorch.
    """
    check_writable(out)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # PyTorch's profiler talks on stderr
    try:
        import torch  # before all that needs it
    except ImportError:
        need = "profile needs PyTorch: pip install 'hetplan[torch]', or torch as your GPU needs it"
        raise PlannerError(need) from None
    from formulations.instance.load import check_profile
    from formulations.instance.machines import gpu_catalogue
    from solver.measure import layer_profile as measuring
    from solver.setup.first_instance import catalogue_name

    described = _model(model, "--model")
    sizes = measuring.buildable(described.architecture, f"--model {model}")
    here = measuring.device_of(device)
    degrees = _numbers("--tensor-parallel", tensor_parallel)
    for tp in degrees:  # they split heads and feed-forward network evenly
        problem = f"{tp}, which does not divide the inner width {sizes.dense_ffn_size}"
        if sizes.num_kv_heads % tp:
            problem = f"{tp}, which does not divide the {sizes.num_kv_heads} heads"
        if sizes.num_kv_heads % tp or sizes.dense_ffn_size % tp:
            raise InstanceError("--tensor-parallel", problem, "common divisors of both")
    wanted = measuring.Wanted(
        model=model,
        sizes=sizes,
        sequence_length=sequence_length or described.sequence_length,
        precision=precision or measuring.usual_precision(here),
        tensor_parallel=degrees,
        micro_batch=_numbers("--micro-batch", micro_batch),
    )
    driver = torch.cuda.get_device_name(here) if here.type == "cuda" else None
    name = gpu or (catalogue_name(driver, gpu_catalogue(), "--gpu") if driver else "CPU")
    measured = {}
    for key, times in measuring.measure(wanted, here):
        measured[key] = times
        kind, tp, b = key
        forward, backward = (time_text(ms / 1e3) for ms in (times.forward_ms, times.backward_ms))
        passes = f"forward {forward}, backward {backward}"
        say(f"{kind}, tensor {tp}, micro-batch {b}: {passes}", err=True)
    text = measuring.profile_text(wanted, here, name, measured)
    check_profile(text, f"{out} (not written)")
    write_text(out, text)
    say(f"wrote {out}: {model} on {name}; name it as `profile` in an instance")


def _numbers(option: str, text: str) -> list[int]:
    """Different numbers, ascending. Raises InstanceError for other text."""
    numbers = {
        int(number) for number in text.split(",") if number.strip().isdecimal() and len(number) < 6
    }
    if not numbers or 0 in numbers or len(numbers) != len(text.split(",")):
        raise InstanceError(option, repr(text), "different numbers from 1 on, such as 1,2,4")
    return sorted(numbers)


def catalogue_command(
    name: str | None = None,
    as_json: bool = False,
    sequence_length: int | None = None,
    global_batch: int | None = None,
    schema: bool = False,
) -> None:
    """List the GPUs and workloads that an instance may name, or print the figures of a workload."""
    from formulations.instance.load import instance_json_schema
    from solver.report import catalogue as reports

    if name is None and (sequence_length, global_batch) != (None, None):
        raise PlannerError("--sequence-length and --global-batch are of a workload: give its NAME")
    if schema:
        if name is not None:
            raise PlannerError(f"--schema is of all instance files, so no NAME; found: {name}")
        say(json.dumps(instance_json_schema(), indent=2))
    elif name is not None:
        workload = named_workload(name, sequence_length, global_batch)
        print_either(as_json, reports.workload_json, reports.workload_report, workload)
    else:
        figures = reports.catalogued()
        print_either(as_json, reports.catalogue_json, reports.catalogue_report, *figures)


def named_workload(name: str, sequence_length: int | None, global_batch: int | None) -> "Workload":
    """A workload of the catalogue, or of a config.json, with lengths and batch as usual."""
    from formulations.instance.transformer import build_workload

    model = _model(name, "workload")
    return build_workload(
        model.architecture,
        name=model.name,
        source=model.source,
        sequence_length=sequence_length or model.sequence_length,
        global_batch=global_batch or model.global_batch or 1,
    )


class _Model(NamedTuple):
    """A model by name or by the path of its config.json, and how it is usually trained."""

    architecture: "Architecture"
    name: str
    source: str
    sequence_length: int
    global_batch: int | None


def _model(model: str, where: str) -> _Model:
    """The model; `where`: what names it, for errors."""
    from formulations.instance.huggingface import config_name, read_config
    from formulations.instance.huggingface_model import architecture_from_config, maximum_positions
    from formulations.instance.resolve_workload import catalogue_entry

    if not _names_file(model):
        entry = catalogue_entry(model, where)
        return _Model(entry.sizes, model, entry.source, entry.sequence_length, entry.global_batch)
    path = Path(model)
    config = read_config(path)
    architecture = architecture_from_config(config)
    tokens = min(maximum_positions(config) or DEFAULT_TOKENS, DEFAULT_TOKENS)
    return _Model(architecture, config_name(path), model, tokens, None)


def _names_file(model: str) -> bool:
    """Whether a model is given by the path of its config.json, and not by name."""
    return model.endswith(".json") or os.sep in model or os.path.isfile(model)
