"""Named workloads: the entries of `catalogue/workloads.yaml`."""

from collections.abc import Mapping

from pydantic import Field

from formulations.errors import InstanceError
from formulations.instance.positions import suggestion
from formulations.instance.record import Record
from formulations.instance.transformer import TransformerSizes, build_workload
from formulations.instance.workload import Workload


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
