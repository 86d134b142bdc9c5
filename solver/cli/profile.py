"""`profile`: layer times of the machine at hand."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from formulations.errors import InstanceError, PlannerError
from solver.cli.files import check_writable, names_file, usual_tokens, write_text
from solver.cli.terminal import say

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
