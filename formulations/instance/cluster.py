"""The machines: node groups, GPU types, links, zones and prices."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, combinations
from typing import NamedTuple

from pydantic import Field, model_validator

from formulations.instance.input_limits import (
    MOST_GPUS,
    MOST_GROUPS,
    MOST_ZONE_PAIRS,
    Count,
    GpusPerNode,
    Name,
    first_beyond,
)
from formulations.instance.machines import (
    FLASH_CAPABILITY,
    Efficiency,
    GpuType,
    Link,
    Price,
    Spot,
    ZoneLink,
    ZonePair,
)
from formulations.instance.record import Record
from formulations.instance.workload import FLASH_PRECISIONS, Precision

ZoneNames = tuple[str, str]


class ZoneFault(NamedTuple):
    """What is wrong with the zones of a cluster: the field's path, what was found, what may be."""

    path: tuple[str | int, ...]
    found: str
    allowed: str


def zone_faults(
    zones: Sequence[str | None], default: bool, pairs: Sequence[ZoneNames]
) -> Iterator[ZoneFault]:
    """The faults of the groups' zones, and of their links.

    default: there is a link for all pairs of zones that are not named; pairs: those that are.
    """
    named = list(dict.fromkeys(zone for zone in zones if zone is not None))
    if named and None in zones:
        given = next(j for j, zone in enumerate(zones) if zone is not None)
        found = f"missing, but groups[{given}] stands in zone {named[0]!r}"
        path = "groups", zones.index(None), "zone"
        yield ZoneFault(path, found, "a zone for every group, or for none")
    elif len(named) < 2 and (default or pairs):
        field = "zone_link" if default else "zone_links"
        where = f"all groups stand in zone {named[0]!r}" if named else "no group names a zone"
        allowed = f"no {field}, or groups in two zones or more"
        yield ZoneFault((field,), f"a link between zones, but {where}", allowed)
    else:
        yield from _pair_faults(named, pairs)
        if not default:
            yield from _missing(named, pairs)


def _pair_faults(named: Sequence[str], pairs: Sequence[ZoneNames]) -> Iterator[ZoneFault]:
    first_of_pair: dict[frozenset[str], int] = {}
    for i, pair in enumerate(pairs):
        path = "zone_links", i, "zones"
        for end, zone in enumerate(pair):
            if zone not in named:
                found = f"{zone!r}, in which no group stands"
                yield ZoneFault((*path, end), found, ", ".join(named))
        if pair[0] == pair[1]:
            yield ZoneFault(path, f"{pair[0]!r} with itself", "two different zones")
        elif (first := first_of_pair.setdefault(frozenset(pair), i)) != i:
            found = f"{pair[0]} and {pair[1]}, as in zone_links[{first}]"
            yield ZoneFault(path, found, "every pair of zones once, in either order")


def _missing(named: Sequence[str], pairs: Sequence[ZoneNames]) -> Iterator[ZoneFault]:
    if not pairs and len(named) > 1:
        found = f"missing, but the groups stand in the zones {', '.join(named)}"
        yield ZoneFault(("zone_link",), found, "bandwidth and latency of the link between zones")
        return
    joined = set(map(frozenset, pairs))
    apart = next((pair for pair in combinations(named, 2) if frozenset(pair) not in joined), None)
    if apart:
        found = f"missing, but zone_links names none between {apart[0]} and {apart[1]}"
        yield ZoneFault(
            ("zone_link",), found, "the link of all pairs that zone_links does not name"
        )


class NodeGroup(Record):
    """`nodes` equal machines; any two of them may change places in a plan."""

    name: Name
    gpu: GpuType
    gpus_per_node: GpusPerNode
    nodes: Count
    price_usd_per_hour: Price  #: per node, on demand
    intra_node: Link
    inter_node: Link  #: out of the node, shared by its GPUs
    zone: Name | None = None  #: where the nodes stand; of all groups or of none
    spot: Spot | None = None  #: other terms, see `formulations.costs.renting`


class Cluster(Record):
    """Node groups, the efficiency of the network between nodes, the links between zones.

    Of one zone there are no links, of several one for every pair: its own or else `zone_link`.
    """

    groups: tuple[NodeGroup, ...] = Field(min_length=1, max_length=MOST_GROUPS)
    zone_link: ZoneLink | None = None
    zone_links: tuple[ZonePair, ...] = Field((), max_length=MOST_ZONE_PAIRS)
    #: (number of nodes, efficiency): the entry with the largest number <= n holds for n nodes
    network_efficiency: tuple[tuple[Count, Efficiency], ...] = Field(((1, 1.0),), min_length=1)

    @model_validator(mode="after")
    def _check_zones(self) -> "Cluster":
        zones, pairs = [g.zone for g in self.groups], [pair.zones for pair in self.zone_links]
        for fault in zone_faults(zones, self.zone_link is not None, pairs):
            path = ".".join(map(str, fault.path))
            raise ValueError(f"{path}: {fault.found}; allowed: {fault.allowed}")
        return self

    @model_validator(mode="after")
    def _check_extent(self) -> "Cluster":
        if first_beyond((g.nodes * g.gpus_per_node for g in self.groups), MOST_GPUS) is not None:
            raise ValueError(f"more than {MOST_GPUS} GPUs")
        if self.network_efficiency[0][0] != 1:
            raise ValueError("network_efficiency without an entry for 1 node")
        return self

    def efficiency(self, num_nodes: int) -> float:
        """Share of the nominal bandwidth that a collective over `num_nodes` nodes reaches."""
        return [value for least, value in self.network_efficiency if least <= num_nodes][-1]

    @property
    def num_gpus(self) -> int:
        """Of all nodes."""
        return sum(group.nodes * group.gpus_per_node for group in self.groups)

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """All nodes, group by group: NAME-0, NAME-1, ..."""
        return tuple(f"{g.name}-{i}" for g in self.groups for i in range(g.nodes))

    @cached_property
    def node_groups(self) -> tuple[int, ...]:
        """Group index of every node, in the order of `node_names`."""
        return tuple(j for j, group in enumerate(self.groups) for _ in range(group.nodes))

    @property
    def first_node(self) -> tuple[int, ...]:
        """Index of each group's first node in `node_names`."""
        return tuple(accumulate((g.nodes for g in self.groups[:-1]), initial=0))

    @cached_property
    def zones(self) -> tuple[str | None, ...]:
        """The zones in order of first mention; None for all without zones."""
        return tuple(dict.fromkeys(group.zone for group in self.groups))

    @property
    def has_zones(self) -> bool:
        """Whether there are several."""
        return len(self.zones) > 1

    @property
    def zone_of_group(self) -> tuple[int, ...]:
        """Number of every group's zone, as in `zones`."""
        numbers = {zone: number for number, zone in enumerate(self.zones)}
        return tuple(numbers[group.zone] for group in self.groups)

    @cached_property
    def _own_links(self) -> dict[frozenset[str | None], ZoneLink]:
        return {frozenset(pair.zones): pair.link for pair in self.zone_links}

    def link_between(self, zone: str | None, other: str | None) -> ZoneLink:
        """The link that joins two zones."""
        link = self._own_links.get(frozenset((zone, other)), self.zone_link)
        assert link is not None  # validated: two zones have one
        return link

    def links_among(self, groups: Iterable[int]) -> tuple[ZoneLink, ...]:
        """The links, each once, between the zones of these groups."""
        zones = dict.fromkeys(self.groups[j].zone for j in groups)
        pairs = combinations(zones, 2)
        return tuple(dict.fromkeys(self.link_between(*pair) for pair in pairs))

    def with_groups(self, groups: Sequence[NodeGroup]) -> "Cluster":
        """The same with other groups, in some of the zones; links to others are left out."""
        zones = {group.zone for group in groups}
        links = tuple(pair for pair in self.zone_links if zones.issuperset(pair.zones))
        default = self.zone_link if len(zones) > 1 else None
        update = {"groups": tuple(groups), "zone_link": default, "zone_links": links}
        return self.model_copy(update=update)


def has_flash(cluster: Cluster, precision: Precision) -> bool:
    """Whether every GPU is known to have flash attention in this precision."""
    return precision in FLASH_PRECISIONS and all(group.gpu.has_flash for group in cluster.groups)


def flash_obstacle(cluster: Cluster, precision: Precision) -> tuple[str, str] | None:
    """What keeps GPUs from flash attention, and what would not; None: nothing that is known."""
    if precision not in FLASH_PRECISIONS:
        allowed = f"workload.precision among {', '.join(FLASH_PRECISIONS)}"
        return f"in {precision}, in which it has no kernels", allowed
    for group in cluster.groups:
        capability = group.gpu.compute_capability
        if capability is not None and capability < FLASH_CAPABILITY:
            found = f"but group {group.name} has {group.gpu.name} of capability {capability}"
            return found, f"GPUs of compute capability {FLASH_CAPABILITY} (Ampere) or later"
    return None


def flash_remedy(cluster: Cluster, precision: Precision) -> str:
    """What to change where plans have no flash attention and should."""
    obstacle = flash_obstacle(cluster, precision)
    return "workload.flash_attention: true" if obstacle is None else obstacle[1]
