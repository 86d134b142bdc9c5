"""The section `workload` as people write it, and from it to layers with their costs.

The model is named in the catalogue, described by a `config.json`, or given by its sizes.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeVar

from formulations.errors import InstanceError
from formulations.instance.catalogue import workload_catalogue
from formulations.instance.documents import Place, json_document, parse_json, read_text
from formulations.instance.huggingface_model import architecture_from_config
from formulations.instance.record import (
    Batch,
    Name,
    Section,
    Text,
    printable,
    shown,
)
from formulations.instance.sizes import TransformerSizes
from formulations.instance.transformer import Architecture, build_workload
from formulations.instance.workload import OptimizerState, Precision, Workload


class WorkloadFile(Section):
    """The model to train: exactly one of catalogue, huggingface, sizes; and how it is trained."""

    catalogue: Name | None = None
    """Name in the workload catalogue."""
    huggingface: Name | None = None
    """Path of a Hugging Face config.json, relative to this file's folder."""
    sizes: TransformerSizes | None = None
    """Sizes of a transformer."""
    name: Name | None = None
    """Name in reports."""
    source: Text | None = None
    """Where the sizes come from."""
    sequence_length: Batch | None = None
    """Tokens per sequence; default: the catalogue's."""
    global_batch: Batch | None = None
    """Sequences per step; default: the catalogue's."""
    precision: Precision = "bf16"
    """Of products, parameters and activations. fp8: products of blocks alone, all else is kept in
    16 bit."""
    gradient_precision: Literal["fp32", "fp16", "bf16"] = "fp32"
    """Of gradients, in memory and on the wire."""
    optimizer_state: OptimizerState = "fp32"
    """Of Adam's moments; the master copy of the parameters stays in fp32. 8bit: with a scale per
    block of 2048 (Dettmers et al. 2022)."""
    flash_attention: bool | None = None
    """Are attention scores recomputed instead of stored? Default: what the profile says, else in
    fp16, bf16 and fp8 in plans whose GPUs are all Ampere or later."""


T = TypeVar("T")

_GRADIENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


def resolve_workload(
    written: WorkloadFile, place: Place, folder: Path, flash_attention: bool
) -> tuple[Architecture, Workload]:
    """Architecture and workload; paths are relative to `folder`.

    Raises InstanceError for none or several origins, an unknown name, an unreadable or unsupported
    config.json, and a sequence length or batch that is stated nowhere or does not fit.
    """
    only_origin(written, place, "catalogue", "huggingface", "sizes")
    # The architecture, and what of the rest the user may override.
    length, batch = written.sequence_length, written.global_batch
    if written.sizes is not None:
        architecture: Architecture = written.sizes
        name, source = "transformer", "sizes given in the instance"
    elif written.huggingface is not None:
        path = folder / written.huggingface
        architecture = from_config(path, architecture_from_config, place.at("huggingface"))
        name, source = config_name(path), printable(str(path))
    else:
        name, entries = written.catalogue or "", workload_catalogue()
        entry = place.at("catalogue").pick("workload", name, entries)
        architecture, source = entry.sizes, entry.source
        length, batch = length or entry.sequence_length, batch or entry.global_batch
    if length is None:
        raise place.at("sequence_length").error("missing", "tokens per sequence, such as 2048")
    if batch is None:
        raise place.at("global_batch").error("missing", "sequences per step, such as 256")
    try:
        workload = build_workload(
            architecture,
            name=written.name or name,
            source=written.source or source,
            sequence_length=length,
            global_batch=batch,
            precision=written.precision,
            gradient_bytes=_GRADIENT_BYTES[written.gradient_precision],
            flash_attention=flash_attention,
            optimizer_state=written.optimizer_state,
        )
    except InstanceError as error:
        raise place.at("sequence_length").error(error.found, error.allowed) from None
    return architecture, workload


def only_origin(section: Section, place: Place, *fields: str) -> None:
    """Raises InstanceError where a section has none of these fields, or several."""
    stated = [name for name in fields if getattr(section, name) is not None]
    if len(stated) != 1:
        problem = " and ".join(stated) or f"none of {', '.join(fields)}"
        raise place.error(problem, f"exactly one of {', '.join(fields)}")


def from_config(
    path: Path, read: Callable[[Mapping[str, object], str], T], place: Place | None = None
) -> T:
    """What `read` makes of a config.json and its name; `place`: where another file names it.

    Raises InstanceError for a file that is none, and those of `read` with line and column added.
    """
    allowed = "the path of a config.json" + (" from this file's folder" if place else "")
    name, text = str(path), read_text(path, allowed, place)
    config = parse_json(text, name)
    if not isinstance(config, dict):
        raise InstanceError(f"{name}:1:1", shown(config), "an object with a model_type")
    try:
        return read(config, name)
    except InstanceError as error:
        key = error.where.removeprefix(name).strip()
        where = json_document(text, name).where((key,) if key else (), key=True)
        raise InstanceError(where, error.found, error.allowed) from None


def config_name(path: Path) -> str:
    """Name of the model: of the file, or of its folder if it is called config.json."""
    return printable(path.resolve().parent.name if path.stem == "config" else path.stem)
