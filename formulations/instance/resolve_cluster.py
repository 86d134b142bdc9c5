"""The section `cluster` as people write it, and the cluster in which all is looked up."""

from typing import Annotated

from pydantic import Discriminator, Field, Tag, model_validator

from formulations.errors import Mistakes, joined
from formulations.instance.catalogue import gpu_catalogue, link_catalogue
from formulations.instance.cluster import Cluster, NodeGroup, zone_faults
from formulations.instance.documents import Place
from formulations.instance.input_limits import (
    MOST_CHOICES,
    MOST_GPUS,
    MOST_GROUPS,
    MOST_ZONE_PAIRS,
    Count,
    GpusPerNode,
    Index,
    Name,
    first_beyond,
)
from formulations.instance.machines import (
    NETWORK_LATENCY_S,
    Efficiency,
    GpuFile,
    GpuType,
    Memory,
    Price,
    Spot,
    SpotFile,
    WrittenLink,
    ZoneLink,
    ZonePair,
    find_link,
    gpu_type,
)
from formulations.instance.record import (
    FROM_LIST,
    MAPPING,
    NAME,
    NUMBER,
    Section,
    name_or_mapping,
    number_or_mapping,
    refusal,
)
from formulations.instance.sources import NOT_STATED

Gpu = Annotated[
    Annotated[Name, Tag(NAME)] | Annotated[GpuFile, Tag(MAPPING)], Discriminator(name_or_mapping)
]


class CountRange(Section):
    """How many nodes may be rented, both ends among them: `pareto` decides."""

    min: Index = 0
    """The least number of nodes."""
    max: Count
    """The largest number of nodes."""

    @model_validator(mode="after")
    def _check_order(self) -> "CountRange":
        if self.min > self.max:
            raise refusal(f"min {self.min} above max {self.max}", "min up to max")
        return self


NumNodes = Annotated[
    Annotated[Count, Tag(NUMBER)] | Annotated[CountRange, Tag(MAPPING)],
    Discriminator(number_or_mapping),
]


class NodeGroupFile(Section):
    """Equal machines."""

    name: Name
    """Name of the group; its nodes are NAME-0, NAME-1, ..."""
    gpu: Gpu
    """A name of the GPU catalogue, or the figures of a GPU."""
    gpus_per_node: GpusPerNode
    """GPUs in each node."""
    nodes: NumNodes
    """Number of nodes; for pareto also a range such as {min: 0, max: 8}."""
    price_usd_per_hour: Price | None = Field(None, validation_alias="price")
    """Price of one node, such as 16.39 USD/h; default 0."""
    spot: SpotFile | None = None
    """Other terms, for cost_per_useful_sequence: a choice, or without `price` the only ones."""
    memory_bytes: Memory | None = Field(None, validation_alias="memory")
    """Memory per GPU, where it differs from the catalogue's."""
    intra_node: WrittenLink | None = None
    """One GPU's link inside the node, one direction; default: the GPU type's."""
    inter_node: WrittenLink | None = None
    """The node's link to the others, one direction, shared by its GPUs. Needed where there are
    several nodes."""
    zone: Name | None = None
    """Where the nodes stand, such as an availability zone; of all groups or none."""

    @property
    def most_nodes(self) -> int:
        """The number of nodes, or its upper end."""
        return self.nodes.max if isinstance(self.nodes, CountRange) else self.nodes

    @property
    def fewest_nodes(self) -> int:
        """The number of nodes, or its lower end."""
        return self.nodes.min if isinstance(self.nodes, CountRange) else self.nodes


class ZonePairFile(ZoneLink):
    """The link that joins two zones."""

    zones: Annotated[tuple[Name, Name], FROM_LIST]
    """The two zones, in either order."""


class ClusterFile(Section):
    """The machines."""

    groups: list[NodeGroupFile] = Field(min_length=1, max_length=MOST_GROUPS)
    """Groups of equal nodes."""
    zone_link: ZoneLink | None = None
    """The link, one direction, that joins each pair of zones and that all flows from one to the
    other share. Needed where there are several zones, for all pairs of them that zone_links does
    not name."""
    zone_links: list[ZonePairFile] = Field([], max_length=MOST_ZONE_PAIRS)
    """Links of pairs of zones that zone_link does not hold for, such as {zones: [east, west],
    bandwidth: 5 Gbit/s, latency: 30 ms}."""
    network_efficiency: dict[Count, Efficiency] | None = Field(
        None, min_length=1, max_length=MOST_CHOICES
    )
    """Number of nodes -> share of the nominal bandwidth that a collective over so many nodes, or
    more, reaches. Default: 1.0 for all."""


def resolve_cluster(written: ClusterFile, place: Place) -> Cluster:
    """The cluster. InstanceError for repeated names, too many GPUs, zones that do not fit."""
    wrong, alone = Mistakes(), sum(group.most_nodes for group in written.groups) == 1
    wrong.of(_check_groups, written.groups, place)
    groups = [
        wrong.of(_group, group, place.at("groups", j), alone=alone)
        for j, group in enumerate(written.groups)
    ]
    wrong.tell()
    zones = [group.zone for group in written.groups]
    pairs = [pair.zones for pair in written.zone_links]
    for fault in zone_faults(zones, written.zone_link is not None, pairs):
        wrong.errors.append(place.at(*fault.path).error(fault.found, fault.allowed))
    wrong.tell()
    return Cluster(
        groups=tuple(filter(None, groups)),
        zone_link=written.zone_link,
        zone_links=tuple(
            ZonePair(zones=pair.zones, link=ZoneLink(**pair.model_dump(exclude={"zones"})))
            for pair in written.zone_links
        ),
        network_efficiency=tuple(sorted(({1: 1.0} | (written.network_efficiency or {})).items())),
    )


def _check_groups(groups: list[NodeGroupFile], place: Place) -> None:
    names = [group.name for group in groups]
    for j, name in enumerate(names):
        if name in names[:j]:
            problem = f"{name!r} is also the name of groups[{names.index(name)}]"
            raise place.at("groups", j, "name").error(problem, "every group its own name")
    beyond = first_beyond((group.most_nodes * group.gpus_per_node for group in groups), MOST_GPUS)
    if beyond is not None:
        problem = f"more than {MOST_GPUS} GPUs up to this group"
        raise place.at("groups", beyond, "nodes").error(problem, f"at most {MOST_GPUS} in all")


def _group(written: NodeGroupFile, place: Place, *, alone: bool) -> NodeGroup:
    """One group; `alone`: the cluster is a single node and needs no network."""
    wrong, links = Mistakes(), link_catalogue()
    gpu: GpuType | None = None
    at = place.at("gpu")
    if isinstance(written.gpu, GpuFile):
        gpu = wrong.of(gpu_type, written.gpu, at, links)
    elif written.gpu in gpu_catalogue():
        gpu = gpu_catalogue()[written.gpu]
    else:
        wrong.errors.append(at.unknown("GPU", written.gpu, gpu_catalogue()))
    inside = outside = None
    if written.intra_node is not None:
        inside = wrong.of(find_link, written.intra_node, place.at("intra_node"), links)
    at = place.at("inter_node")
    if written.inter_node is not None:
        outside = wrong.of(find_link, written.inter_node, at, links, NETWORK_LATENCY_S)
    elif not alone:
        allowed = "a bandwidth such as 400 Gbit/s, or one of " + ", ".join(links)
        wrong.errors.append(at.error("missing", allowed))
    if gpu is None or wrong.errors:
        raise joined(wrong.errors)
    if written.memory_bytes is not None:
        memory = {"memory_bytes": written.memory_bytes, "memory_source": NOT_STATED}
        gpu = gpu.model_copy(update={**memory, "memory_kind": "assumed"})
    price, spot = written.price_usd_per_hour, None
    if written.spot is not None:
        spot = Spot.model_validate({**dict(written.spot), "only": price is None})
    return NodeGroup(
        name=written.name,
        gpu=gpu,
        gpus_per_node=written.gpus_per_node,
        nodes=written.most_nodes,
        price_usd_per_hour=price or 0.0,
        spot=spot,
        intra_node=inside or gpu.link,
        inter_node=outside or inside or gpu.link,
        zone=written.zone,
    )
