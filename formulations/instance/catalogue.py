"""What instance files may refer to by name: `catalogue/*.yaml`, with the sources of figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import cast

from pydantic import Field

from formulations.errors import InstanceError
from formulations.instance.documents import (
    Document,
    Place,
    resource,
    suggestion,
)
from formulations.instance.input_limits import Name
from formulations.instance.machines import (
    NETWORK_LATENCY_S,
    EfficiencyFile,
    GpuFile,
    GpuType,
    Link,
    LinkFile,
    PeakFile,
    as_link,
    gpu_type,
)
from formulations.instance.record import Record
from formulations.instance.search import FrameworksFile, Overlap
from formulations.instance.sizes import TransformerSizes
from formulations.instance.transformer import build_workload
from formulations.instance.validation import validated
from formulations.instance.workload import Workload


@dataclass(frozen=True)
class Catalogue:
    """All that instance files may refer to by name."""

    gpus: Mapping[str, GpuType]
    links: Mapping[str, Link]
    workloads: Mapping[str, object]  #: parsed workloads.yaml
    overlap: Mapping[str, Overlap]  #: by framework


def gpu_catalogue() -> Mapping[str, GpuType]:
    """GPU types with sourced figures, by name."""
    return catalogue().gpus


@cache
def catalogue() -> Catalogue:
    """Everything that instance files may refer to by name."""
    links = links_of(resource("links.yaml"))
    gpus = gpus_of(resource("gpus.yaml"), links)
    workloads = cast("Mapping[str, object]", resource("workloads.yaml").value)
    overlap = validated(FrameworksFile, resource("overlap.yaml")).overlap
    return Catalogue(gpus=gpus, links=links, workloads=workloads, overlap=overlap)


class LinksFile(Record):
    """The file links.yaml."""

    links: dict[Name, LinkFile]


class GpusFile(Record):
    """The file gpus.yaml: what the vendor states, and what was fitted on measurements."""

    gpus: dict[Name, PeakFile] = Field(min_length=1)
    efficiency: dict[Name, EfficiencyFile]


def links_of(document: Document) -> dict[str, Link]:
    """Links of a parsed links.yaml, by name."""
    written = validated(LinksFile, document).links
    return {name: as_link(link, NETWORK_LATENCY_S) for name, link in written.items()}


def gpus_of(document: Document, links: Mapping[str, Link]) -> dict[str, GpuType]:
    """GPU types of a parsed gpus.yaml, by name. Each needs an entry under `efficiency`."""
    written = validated(GpusFile, document)
    place = Place(document)
    for name in sorted(written.gpus.keys() ^ written.efficiency.keys()):
        found = f"{name!r} in only one of gpus and efficiency"
        raise place.at("efficiency").error(found, "the same names in both")
    return {
        name: gpu_type(
            GpuFile.model_validate({**dict(peak), **dict(written.efficiency[name]), "name": name}),
            place.at("gpus", name),
            links,
        )
        for name, peak in written.gpus.items()
    }


class CatalogueEntry(Record):
    """A published architecture with the sequence length and batch it is usually trained with."""

    source: str = Field(min_length=1)
    sequence_length: int = Field(ge=1)
    global_batch: int = Field(ge=1)  #: sequences
    sizes: TransformerSizes


def catalogue_entry(catalogue: Mapping[str, object], name: str, where: str) -> CatalogueEntry:
    """Entry `name` of the parsed `workloads.yaml`; InstanceError, with close names, without one."""
    if name not in catalogue:
        found = repr(name) + suggestion(name, list(catalogue))
        raise InstanceError(where, found, ", ".join(catalogue))
    return CatalogueEntry.model_validate(catalogue[name])


def workload_from_catalogue(
    catalogue: Mapping[str, object],
    name: str,
    *,
    where: str = "workload.name",
    sequence_length: int | None = None,
    global_batch: int | None = None,
) -> Workload:
    """Workload `name` of the parsed `workloads.yaml`; None takes the entry's own figure.

    Raises InstanceError for an unknown name, naming close matches and all known ones, and as
    `build_workload` does.
    """
    entry = catalogue_entry(catalogue, name, where)
    return build_workload(
        entry.sizes,
        name=name,
        source=entry.source,
        sequence_length=entry.sequence_length if sequence_length is None else sequence_length,
        global_batch=entry.global_batch if global_batch is None else global_batch,
    )
