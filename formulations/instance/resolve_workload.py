"""The section `workload` as people write it, and from it to layers with their costs.

The model is named in the catalogue, described by a `config.json`, or given by its sizes. Flash
attention: which GPUs have it, in which precisions, and whether plans do.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from formulations.errors import InstanceError
from formulations.instance.cluster import Cluster
from formulations.instance.documents import Place, resource, suggestion
from formulations.instance.machines import FLASH_CAPABILITY
from formulations.instance.profile import WrittenProfile
from formulations.instance.record import Batch, Name, Record, Section, Text, printable, shown
from formulations.instance.sizes import TransformerSizes
from formulations.instance.transformer import Architecture, build_workload
from formulations.instance.workload import FLASH_PRECISIONS, OptimizerState, Precision, Workload


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
    """Of products, parameters and activations. fp8, fp4: products of blocks alone, all else is
    kept in 16 bit."""
    gradient_precision: Literal["fp32", "fp16", "bf16"] = "fp32"
    """Of gradients, in memory and on the wire."""
    optimizer_state: OptimizerState = "fp32"
    """Of Adam's moments; the master copy of the parameters stays in fp32. 8bit: with a scale per
    block of 2048 (Dettmers et al. 2022)."""
    flash_attention: bool | None = None
    """Are attention scores recomputed instead of stored? Default: what the profile says, else in
    fp16, bf16 and fp8 in plans whose GPUs are all Ampere or later."""
    fused_cross_entropy: bool = False
    """Is the loss one kernel that keeps logits in 16 bit? Megatron-LM's
    --cross-entropy-loss-fusion, which other frameworks do not have; else they are kept in 32
    bit."""


class CatalogueEntry(Record):
    """A published architecture with the sequence length and batch it is usually trained with."""

    source: str = Field(min_length=1)
    sequence_length: int = Field(ge=1)
    global_batch: int = Field(ge=1)  #: sequences
    sizes: TransformerSizes

    def workload(self, name: str) -> Workload:
        """The entry as a workload."""
        return build_workload(self.sizes, name=name, **self.model_dump(exclude={"sizes"}))


@cache
def workload_catalogue() -> Mapping[str, CatalogueEntry]:
    """Published architectures, by name: `catalogue/workloads.yaml`."""
    entries: Any = resource("workloads.yaml").value
    return {name: CatalogueEntry.model_validate(entry) for name, entry in entries.items()}


def catalogue_entry(name: str, where: str) -> CatalogueEntry:
    """The published architecture of that name; InstanceError, with close names, without one."""
    entries = workload_catalogue()
    if name not in entries:
        raise InstanceError(where, repr(name) + suggestion(name, list(entries)), ", ".join(entries))
    return entries[name]


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
        # other instances need no table of config.json
        from formulations.instance.huggingface import config_name, read_config
        from formulations.instance.huggingface_model import architecture_from_config

        path = folder / written.huggingface
        architecture = architecture_from_config(read_config(path, place.at("huggingface")))
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
            gradient_bytes=4 if written.gradient_precision == "fp32" else 2,
            flash_attention=flash_attention,
            optimizer_state=written.optimizer_state,
            fused_cross_entropy=written.fused_cross_entropy,
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


def has_flash(cluster: Cluster, precision: Precision) -> bool:
    """Whether every GPU is known to have it in this precision."""
    return precision in FLASH_PRECISIONS and all(group.gpu.has_flash for group in cluster.groups)


def flash_obstacle(cluster: Cluster, precision: Precision) -> tuple[str, str] | None:
    """What keeps GPUs from it, and what would not; None: nothing that is known."""
    if precision not in FLASH_PRECISIONS:
        allowed = f"workload.precision among {', '.join(FLASH_PRECISIONS)}"
        return f"in {precision}, in which it has no kernels", allowed
    for group in cluster.groups:
        capability = group.gpu.compute_capability
        if capability is not None and capability < FLASH_CAPABILITY:
            problem = f"but group {group.name} has {group.gpu.name} of capability {capability}"
            return problem, f"GPUs of compute capability {FLASH_CAPABILITY} (Ampere) or later"
    return None


def flash_remedy(cluster: Cluster, precision: Precision) -> str:
    """What to change where plans do not have it and should."""
    obstacle = flash_obstacle(cluster, precision)
    return "workload.flash_attention: true" if obstacle is None else obstacle[1]


def resolve_flash(
    written: WorkloadFile, place: Place, cluster: Cluster, profile: WrittenProfile | None
) -> tuple[bool, bool]:
    """Whether attention keeps no scores, and whether plans decide on that, as their GPUs can.

    As written or measured; else where all GPUs can, and where some can plans decide.

    Raises InstanceError for a precision or a GPU that cannot, and for a profile measured otherwise.
    """
    place = place.at("flash_attention")
    chosen = as_measured(written.flash_attention, place, profile, "flash_attention")
    if chosen is None:
        able = [group.gpu.has_flash for group in cluster.groups]
        is_open = written.precision in FLASH_PRECISIONS and any(able) and not all(able)
        return has_flash(cluster, written.precision), is_open
    if chosen and (obstacle := flash_obstacle(cluster, written.precision)):
        raise place.error(f"true, {obstacle[0]}", f"false, or {obstacle[1]}")
    return chosen, False


def as_measured(
    written: bool | None, place: Place, profile: WrittenProfile | None, field: str
) -> bool | None:
    """What was written, or of a profile what it states; InstanceError where both differ."""
    if profile is None:
        return written
    measured: bool = getattr(profile.file, field)
    if written is not None and written != measured:
        way = "with" if measured else "without"
        allowed = f"{shown(measured)}, or a profile that states {field}: {shown(written)}"
        raise place.error(f"{shown(written)}, but the profile was measured {way} it", allowed)
    return measured
