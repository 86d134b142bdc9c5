"""What instance files may refer to by name: `catalogue/*.yaml`, with the sources of figures."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import Field

from formulations.errors import InstanceError
from formulations.instance.documents import Document, Place, resource, suggestion
from formulations.instance.machines import (
    NETWORK_LATENCY_S,
    GpuFile,
    GpuType,
    Link,
    LinkFile,
    find_link,
    gpu_type,
)
from formulations.instance.record import Name, Record
from formulations.instance.search import Overlap
from formulations.instance.sizes import TransformerSizes
from formulations.instance.transformer import build_workload
from formulations.instance.validation import validated
from formulations.instance.workload import Workload


@cache
def link_catalogue() -> Mapping[str, Link]:
    """Links by name."""
    return links_of(resource("links.yaml"))


@cache
def gpu_catalogue() -> Mapping[str, GpuType]:
    """GPU types with sourced figures, by name."""
    return gpus_of(resource("gpus.yaml"), link_catalogue())


@cache
def overlap_catalogue() -> Mapping[str, Overlap]:
    """Which share of traffic hides, by framework."""
    entries: Any = resource("overlap.yaml").value
    return {name: Overlap.model_validate(entry) for name, entry in entries["overlap"].items()}


@cache
def workload_catalogue() -> "Mapping[str, CatalogueEntry]":
    """Published architectures, by name."""
    entries: Any = resource("workloads.yaml").value
    return {name: CatalogueEntry.model_validate(entry) for name, entry in entries.items()}


class LinksFile(Record):
    """The file links.yaml."""

    links: dict[Name, LinkFile]


class GpusFile(Record):
    """The file gpus.yaml: what the vendor states, and what was fitted on measurements."""

    gpus: list[GpuFile] = Field(min_length=1)


def links_of(document: Document) -> dict[str, Link]:
    """Links of a parsed links.yaml, by name."""
    written, place = validated(LinksFile, document).links, Place(document)
    return {name: find_link(at, place, {}, NETWORK_LATENCY_S) for name, at in written.items()}


def gpus_of(document: Document, links: Mapping[str, Link]) -> dict[str, GpuType]:
    """GPU types of a parsed gpus.yaml, by name."""
    written, place = validated(GpusFile, document).gpus, Place(document)
    return {gpu.name: gpu_type(gpu, place.at("gpus", i), links) for i, gpu in enumerate(written)}


class CatalogueEntry(Record):
    """A published architecture with the sequence length and batch it is usually trained with."""

    source: str = Field(min_length=1)
    sequence_length: int = Field(ge=1)
    global_batch: int = Field(ge=1)  #: sequences
    sizes: TransformerSizes

    def workload(self, name: str) -> Workload:
        """The entry as a workload."""
        return build_workload(self.sizes, name=name, **self.model_dump(exclude={"sizes"}))


def catalogue_entry(name: str, where: str) -> CatalogueEntry:
    """The published architecture of that name; InstanceError, with close names, without one."""
    entries = workload_catalogue()
    if name not in entries:
        raise InstanceError(where, repr(name) + suggestion(name, list(entries)), ", ".join(entries))
    return entries[name]
