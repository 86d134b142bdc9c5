"""From written node groups to a cluster in which nothing has to be looked up any more."""

from collections.abc import Mapping

from formulations.errors import Mistakes, joined
from formulations.instance.catalogue import (
    NETWORK_LATENCY_S,
    Catalogue,
    as_link,
    find_link,
    gpu_type,
)
from formulations.instance.cluster import (
    Cluster,
    GpuType,
    Link,
    NodeGroup,
    Spot,
    ZoneLink,
    ZonePair,
    zone_faults,
)
from formulations.instance.documents import Place
from formulations.instance.input_limits import MOST_GPUS, first_beyond
from formulations.instance.schema_cluster import (
    ClusterFile,
    GpuFile,
    NodeGroupFile,
    SpotFile,
    ZoneLinkFile,
)
from formulations.instance.sources import NOT_STATED


def resolve_cluster(written: ClusterFile, place: Place, catalogue: Catalogue) -> Cluster:
    """The cluster. InstanceError for repeated names, too many GPUs, zones that do not fit."""
    wrong, alone = Mistakes(), sum(group.most_nodes for group in written.groups) == 1
    wrong.of(_check_groups, written.groups, place)
    groups = [
        wrong.of(_group, group, place.at("groups", j), catalogue, alone=alone)
        for j, group in enumerate(written.groups)
    ]
    wrong.tell()
    _check_zones(written, place)
    pairs = ((pair.zones, pair) for pair in written.zone_links)
    table = {1: 1.0} | (written.network_efficiency or {})
    return Cluster(
        groups=tuple(filter(None, groups)),
        zone_link=None if written.zone_link is None else _zone_link(written.zone_link),
        zone_links=tuple(ZonePair(zones=(a, b), link=_zone_link(one)) for (a, b), one in pairs),
        network_efficiency=tuple(sorted(table.items())),
    )


def _check_zones(written: ClusterFile, place: Place) -> None:
    zones = [group.zone for group in written.groups]
    pairs = [(pair.zones[0], pair.zones[1]) for pair in written.zone_links]
    faults = zone_faults(zones, written.zone_link is not None, pairs)
    if errors := [place.at(*fault.path).error(fault.found, fault.allowed) for fault in faults]:
        raise joined(errors)


def _zone_link(written: ZoneLinkFile) -> ZoneLink:
    return ZoneLink(**as_link(written, NETWORK_LATENCY_S).model_dump())


def _check_groups(groups: list[NodeGroupFile], place: Place) -> None:
    names = [group.name for group in groups]
    for j, group in enumerate(groups):
        if group.name in names[:j]:
            found = f"{group.name!r} is also the name of groups[{names.index(group.name)}]"
            raise place.at("groups", j, "name").error(found, "every group its own name")
    beyond = first_beyond((group.most_nodes * group.gpus_per_node for group in groups), MOST_GPUS)
    if beyond is not None:
        found = f"more than {MOST_GPUS} GPUs up to this group"
        raise place.at("groups", beyond, "nodes").error(found, f"at most {MOST_GPUS} in all")


def _group(written: NodeGroupFile, place: Place, catalogue: Catalogue, *, alone: bool) -> NodeGroup:
    """One group; `alone`: the cluster is a single node and needs no network."""
    wrong, links = Mistakes(), catalogue.links
    gpu = wrong.of(_gpu, written.gpu, place.at("gpu"), catalogue)
    own = written.intra_node
    inside = None if own is None else wrong.of(find_link, own, place.at("intra_node"), links)
    outside = wrong.of(_network, written, place.at("inter_node"), links, alone=alone)
    if gpu is None or wrong.errors:
        raise joined(wrong.errors)
    if written.memory is not None:
        source = {"memory_source": NOT_STATED, "memory_kind": "assumed"}
        gpu = gpu.model_copy(update={"memory_bytes": int(written.memory)} | source)
    intra_node = inside or gpu.link
    return NodeGroup(
        name=written.name,
        gpu=gpu,
        gpus_per_node=written.gpus_per_node,
        nodes=written.most_nodes,
        price_usd_per_hour=written.price or 0.0,
        spot=_spot(written.spot, only=written.price is None),
        intra_node=intra_node,
        inter_node=outside or intra_node,
        zone=written.zone,
    )


def _network(
    written: NodeGroupFile, place: Place, links: Mapping[str, Link], *, alone: bool
) -> Link | None:
    if written.inter_node is not None:
        return find_link(written.inter_node, place, links, NETWORK_LATENCY_S)
    if alone:
        return None
    allowed = "a bandwidth such as 400 Gbit/s, or one of " + ", ".join(links)
    raise place.error("missing", allowed)


def _spot(written: SpotFile | None, *, only: bool) -> Spot | None:
    if written is None:
        return None
    return Spot(
        price_usd_per_hour=written.price,
        preemptions_per_hour=written.preemptions,
        only=only,
        kind=written.kind,
        source=written.source,
    )


def _gpu(written: GpuFile | str, place: Place, catalogue: Catalogue) -> GpuType:
    if isinstance(written, GpuFile):
        return gpu_type(written.name, written, written, place, catalogue.links)
    if written not in catalogue.gpus:
        raise place.unknown("GPU", written, catalogue.gpus)
    return catalogue.gpus[written]
