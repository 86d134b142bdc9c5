"""The machines: node groups, their network and the links between zones; the section `cluster`."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, combinations
from operator import not_
from typing import Annotated

from pydantic import Field, model_validator

from formulations.errors import Mistakes
from formulations.instance.documents import Place
from formulations.instance.machines import (
    Efficiency,
    ZoneLink,
    ZonePair,
)
from formulations.instance.node_group import (
    NodeGroup,
    NodeGroupFile,
    check_joined,
    resolve_group,
)
from formulations.instance.record import (
    FROM_LIST,
    MOST_CHOICES,
    MOST_GPUS,
    MOST_GROUPS,
    MOST_ZONE_PAIRS,
    Count,
    Name,
    Record,
    Section,
    first_beyond,
)
from formulations.units import ceil_div

#: What is wrong with the zones of a cluster: the path of the field, what was found, what may be.
ZoneFault = tuple[tuple[str | int, ...], str, str]


def zone_faults(cluster: "Cluster | ClusterFile") -> Iterator[ZoneFault]:
    """Faults of groups' zones, and of links between them: those of pairs, one for all others."""
    zones, pairs = [g.zone for g in cluster.groups], [pair.zones for pair in cluster.zone_links]
    default = cluster.zone_link is not None
    named = list(dict.fromkeys(zone for zone in zones if zone is not None))
    if named and None in zones:
        given = next(j for j, zone in enumerate(zones) if zone is not None)
        problem = f"missing, but groups[{given}] stands in zone {named[0]!r}"
        path = "groups", zones.index(None), "zone"
        yield path, problem, "a zone for every group, or for none"
        return
    if len(named) < 2:
        if default or pairs:
            field = "zone_link" if default else "zone_links"
            where = f"all groups stand in zone {named[0]!r}" if named else "no group names a zone"
            allowed = f"no {field}, or groups in two zones or more"
            yield (field,), f"a link between zones, but {where}", allowed
        return
    first_of_pair: dict[frozenset[str], int] = {}
    for i, pair in enumerate(pairs):
        at = "zone_links", i, "zones"
        for end, zone in enumerate(pair):
            if zone not in named:
                problem = f"{zone!r}, in which no group stands"
                yield (*at, end), problem, ", ".join(named)
        if pair[0] == pair[1]:
            yield at, f"{pair[0]!r} with itself", "two different zones"
        elif (first := first_of_pair.setdefault(frozenset(pair), i)) != i:
            problem = f"{pair[0]} and {pair[1]}, as in zone_links[{first}]"
            yield at, problem, "every pair of zones once, in either order"
    apart = next((p for p in combinations(named, 2) if frozenset(p) not in first_of_pair), None)
    if apart and not default:
        problem = f"missing, but zone_links names none between {apart[0]} and {apart[1]}"
        allowed = "the link of all pairs that zone_links does not name"
        if not pairs:
            problem = f"missing, but the groups stand in the zones {', '.join(named)}"
            allowed = "bandwidth and latency of the link between zones"
        yield ("zone_link",), problem, allowed


class Cluster(Record):
    """Node groups, the efficiency of the network between nodes, the links between zones.

    Of one zone there are no links, of several one for every pair: its own or else `zone_link`.
    """

    groups: tuple[NodeGroup, ...] = Field(min_length=1, max_length=MOST_GROUPS)
    zone_link: ZoneLink | None = None
    zone_links: tuple[ZonePair, ...] = Field((), max_length=MOST_ZONE_PAIRS)
    #: (number of nodes, efficiency): the entry with the largest number <= n holds for n nodes
    network_efficiency: tuple[tuple[Count, Efficiency], ...] = Field(((1, 1.0),), min_length=1)
    #: The same of what ZeRO 2 reduces; none: as of all else
    reduce_efficiency: tuple[tuple[Count, Efficiency], ...] = Field((), exclude_if=not_)

    @model_validator(mode="after")
    def _fit(self) -> "Cluster":
        for path, found, allowed in zone_faults(self):
            raise ValueError(f"{'.'.join(map(str, path))}: {found}; allowed: {allowed}")
        if first_beyond((g.nodes * g.gpus_per_node for g in self.groups), MOST_GPUS) is not None:
            raise ValueError(f"more than {MOST_GPUS} GPUs")
        if self.network_efficiency[0][0] != 1:
            raise ValueError("network_efficiency without an entry for 1 node")
        return self

    def with_network_factor(self, factor: float) -> "Cluster":
        """What passes between nodes takes so many times as long."""
        groups = []
        for group in self.groups:
            speed = group.inter_node.bandwidth_bytes_per_s / factor
            latency_s = min(1.0, group.inter_node.latency_s * factor)
            slower = {"bandwidth_bytes_per_s": speed, "latency_s": latency_s}
            groups.append(group.but(inter_node=slower))
        return self.with_groups(groups)

    def efficiency(self, num_nodes: int) -> float:
        """Share of the nominal bandwidth that a collective over `num_nodes` nodes reaches."""
        shares = (share for fewest, share in self.network_efficiency if fewest <= num_nodes)
        return [1.0, *shares][-1]

    @property
    def num_gpus(self) -> int:
        """Of all nodes."""
        return sum(group.nodes * group.gpus_per_node for group in self.groups)

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """All nodes, group by group: NAME-0, NAME-1, ...; joined ones as the first of theirs."""
        return tuple(f"{g.name}-{i * g.machines}" for g in self.groups for i in range(g.nodes))

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
    def has_joined_nodes(self) -> bool:
        """Whether nodes are several machines each."""
        return any(group.machines > 1 for group in self.groups)

    @property
    def has_zones(self) -> bool:
        """Whether there are several."""
        return len(self.zones) > 1

    @property
    def zone_of_group(self) -> tuple[int, ...]:
        """Number of every group's zone, as in `zones`."""
        numbers = {zone: number for number, zone in enumerate(self.zones)}
        return tuple(numbers[group.zone] for group in self.groups)

    def link_between(self, first: str | None, second: str | None) -> ZoneLink:
        """The link that joins two zones."""
        named = (pair.link for pair in self.zone_links if {*pair.zones} == {first, second})
        link = next(named, self.zone_link)
        assert link is not None  # validated: two zones have one
        return link

    def links_among(self, groups: Iterable[int]) -> tuple[ZoneLink, ...]:
        """The links, each once, between the zones of these groups."""
        zones = dict.fromkeys(self.groups[j].zone for j in groups)
        pairs = combinations(zones, 2)
        return tuple(dict.fromkeys(self.link_between(*pair) for pair in pairs))

    def joined(self, number: int) -> "Cluster":
        """The cluster whose nodes are so many of these, with their links to others side by side.

        Every group's nodes are a multiple of the number; none has terms on spot.
        """
        groups = tuple(group.joined(number) for group in self.groups)
        shares = self.network_efficiency, self.reduce_efficiency
        network, reduces = (tuple({ceil_div(n, number): e for n, e in by}.items()) for by in shares)
        return self.but(groups=groups, network_efficiency=network, reduce_efficiency=reduces)

    def with_groups(self, groups: Sequence[NodeGroup]) -> "Cluster":
        """The same with other groups, in some of the zones; links to others are left out."""
        zones = {group.zone for group in groups}
        links = tuple(pair for pair in self.zone_links if zones.issuperset(pair.zones))
        default = self.zone_link if len(zones) > 1 else None
        return self.but(groups=tuple(groups), zone_link=default, zone_links=links)


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
    joined_nodes: Count = 1
    """So many nodes of a group, side by side, are one of the plan, which one group of tensor and
    context parallelism fills: tp x cp GPUs. Default: groups stay inside nodes."""
    network_efficiency: dict[Count, Efficiency] | None = Field(
        None, min_length=1, max_length=MOST_CHOICES
    )
    """Number of nodes -> share of the nominal bandwidth that a collective over so many nodes, or
    more, reaches. Default: 1.0 for all."""
    reduce_efficiency: dict[Count, Efficiency] | None = Field(
        None, min_length=1, max_length=MOST_CHOICES
    )
    """The same of ZeRO 2's reductions of gradients alone, where a framework makes them of one
    Reduce per GPU (DeepSpeed without use_multi_rank_bucket_allreduce). Default: as all else."""


def resolve_cluster(written: ClusterFile, place: Place) -> Cluster:
    """The cluster. InstanceError for repeated names, too many GPUs, zones that do not fit."""
    wrong, alone = Mistakes(), sum(group.most_nodes for group in written.groups) == 1
    names = [group.name for group in written.groups]
    for j, name in enumerate(names):
        if name in names[:j]:
            problem = f"{name!r} is also the name of groups[{names.index(name)}]"
            at = place.at("groups", j, "name")
            wrong.errors.append(at.error(problem, "every group its own name"))
    numbers = (group.most_nodes * group.gpus_per_node for group in written.groups)
    if (beyond := first_beyond(numbers, MOST_GPUS)) is not None:
        problem = f"more than {MOST_GPUS} GPUs up to this group"
        at = place.at("groups", beyond, "nodes")
        wrong.errors.append(at.error(problem, f"at most {MOST_GPUS} in all"))
    joined_nodes = written.joined_nodes
    places = [(group, place.at("groups", j)) for j, group in enumerate(written.groups)]
    for group, at in places if joined_nodes > 1 else ():
        wrong.of(check_joined, group, at, joined_nodes)
    groups = [wrong.of(resolve_group, group, at, alone=alone) for group, at in places]
    wrong.tell()
    for path, found, allowed in zone_faults(written):
        wrong.errors.append(place.at(*path).error(found, allowed))
    wrong.tell()
    efficiency = {1: 1.0} | (written.network_efficiency or {})
    cluster = Cluster(
        groups=tuple(group for group in groups if group),
        zone_link=written.zone_link,
        zone_links=tuple(
            ZonePair(zones=pair.zones, link=ZoneLink(**pair.model_dump(exclude={"zones"})))
            for pair in written.zone_links
        ),
        network_efficiency=tuple(sorted(efficiency.items())),
        reduce_efficiency=tuple(sorted((written.reduce_efficiency or {}).items())),
    )
    return cluster.joined(joined_nodes)
