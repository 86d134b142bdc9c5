"""From written node groups to a cluster in which nothing has to be looked up any more."""

from collections.abc import Mapping
from dataclasses import dataclass

from formulations.instance.cluster import Cluster, GpuType, Link, NodeGroup, ZoneLink, zone_fault
from formulations.instance.evidence import NOT_STATED
from formulations.instance.extent import MOST_GPUS, first_beyond
from formulations.instance.gpu_catalogue import (
    NETWORK_LATENCY_S,
    as_link,
    find_link,
    gpu_type,
)
from formulations.instance.overlap import Overlap
from formulations.instance.positions import Place
from formulations.instance.schema_cluster import ClusterFile, GpuFile, NodeGroupFile


@dataclass(frozen=True)
class Catalogue:
    """All that instance files may refer to by name."""

    gpus: Mapping[str, GpuType]
    links: Mapping[str, Link]
    workloads: Mapping[str, object]  #: parsed workloads.yaml
    overlap: Mapping[str, Overlap]  #: by framework


def resolve_cluster(written: ClusterFile, place: Place, catalogue: Catalogue) -> Cluster:
    """The cluster. InstanceError for repeated names, too many GPUs, zones that do not fit."""
    _check_groups(written.groups, place)
    num_nodes = sum(group.nodes for group in written.groups)
    groups = tuple(
        _group(group, place.at("groups", j), catalogue, alone=num_nodes == 1)
        for j, group in enumerate(written.groups)
    )
    table = {1: 1.0} | (written.network_efficiency or {})
    return Cluster(
        groups=groups,
        zone_link=_zone_link(written, place),
        network_efficiency=tuple(sorted(table.items())),
    )


def _zone_link(written: ClusterFile, place: Place) -> ZoneLink | None:
    link = written.zone_link
    fault = zone_fault([group.zone for group in written.groups], link is not None)
    if fault:
        raise place.at(*fault.path).error(fault.found, fault.allowed)
    if link is None:
        return None
    return ZoneLink(**as_link(link, NETWORK_LATENCY_S).model_dump())


def _check_groups(groups: list[NodeGroupFile], place: Place) -> None:
    names = [group.name for group in groups]
    for j, group in enumerate(groups):
        if group.name in names[:j]:
            found = f"{group.name!r} is also the name of groups[{names.index(group.name)}]"
            raise place.at("groups", j, "name").error(found, "every group its own name")
    beyond = first_beyond((group.nodes * group.gpus_per_node for group in groups), MOST_GPUS)
    if beyond is not None:
        found = f"more than {MOST_GPUS} GPUs up to this group"
        raise place.at("groups", beyond, "nodes").error(found, f"at most {MOST_GPUS} in all")


def _group(written: NodeGroupFile, place: Place, catalogue: Catalogue, *, alone: bool) -> NodeGroup:
    """One group; `alone`: the cluster is a single node and needs no network."""
    gpu = _gpu(written.gpu, place.at("gpu"), catalogue)
    if written.memory is not None:
        source = {"memory_source": NOT_STATED, "memory_kind": "assumed"}
        gpu = gpu.model_copy(update={"memory_bytes": int(written.memory)} | source)
    intra_node = gpu.link
    if written.intra_node is not None:
        intra_node = find_link(written.intra_node, place.at("intra_node"), catalogue.links)
    if written.inter_node is not None:
        where = place.at("inter_node")
        inter_node = find_link(written.inter_node, where, catalogue.links, NETWORK_LATENCY_S)
    elif alone:
        inter_node = intra_node
    else:
        allowed = "a bandwidth such as 400 Gbit/s, or one of " + ", ".join(catalogue.links)
        raise place.at("inter_node").error("missing", allowed)
    return NodeGroup(
        name=written.name,
        gpu=gpu,
        gpus_per_node=written.gpus_per_node,
        nodes=written.nodes,
        price_usd_per_hour=written.price or 0.0,
        intra_node=intra_node,
        inter_node=inter_node,
        zone=written.zone,
    )


def _gpu(written: GpuFile | str, place: Place, catalogue: Catalogue) -> GpuType:
    if isinstance(written, GpuFile):
        return gpu_type(written.name, written, written, place, catalogue.links)
    if written not in catalogue.gpus:
        raise place.unknown("GPU", written, catalogue.gpus)
    return catalogue.gpus[written]
