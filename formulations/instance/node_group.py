"""Equal machines: node groups, as written and as read; the entries of `cluster.groups`."""

from typing import Annotated

from pydantic import Field, Tag, model_validator

from formulations.errors import Mistakes, joined
from formulations.instance.documents import Place
from formulations.instance.machines import (
    NETWORK_LATENCY_S,
    NOT_STATED,
    GpuFile,
    GpuType,
    Link,
    Memory,
    Price,
    Spot,
    SpotFile,
    WrittenLink,
    find_link,
    gpu_type,
    link_catalogue,
)
from formulations.instance.record import (
    MAPPING,
    MOST_GPUS_PER_NODE,
    NUMBER,
    NUMBER_OR_MAPPING,
    Count,
    GpusPerNode,
    Index,
    Name,
    NameOr,
    Record,
    Section,
    refusal,
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
    machines: Count = 1  #: of a node, joined by the network; several are filled by one slot

    @property
    def gpus_per_machine(self) -> int:
        """GPUs with links of their own between them."""
        return self.gpus_per_node // self.machines

    def may_hold(self, tp: int, width: int) -> bool:
        """Whether a node may have slots of so many GPUs, in tensor groups of tp."""
        if self.machines == 1:
            return self.gpus_per_node % width == 0
        each = self.gpus_per_machine
        return width == self.gpus_per_node and 0 in (tp % each, each % tp)

    def tensor_link(self, tp: int) -> Link:
        """What a ring over a tensor group has: the GPUs' links, or the network between machines.

        Its GPUs are neighbours, whose links no other ring passes, shared or not: with them shared
        the error of AMP's 47 steps on 16 T4 (PCIe) is 9.2 to 14.6 %, else 7.1 %.
        """
        return self.intra_node if tp <= self.gpus_per_machine else self._between_machines(1)

    def ring_link(self, members: int) -> Link:
        """What each of the rings of so many GPUs has that fill a node."""
        return self.intra_node.of_rings(self.gpus_per_node // members)

    def copies_link(self, tp: int, rings: int) -> Link:
        """What each of so many rings over GPUs of a node with the same tensors has.

        From machine to machine there is one for each GPU whose tensors are not those of another.
        """
        if self.machines == 1:
            return self.intra_node.of_rings(rings)
        return self._between_machines(min(tp, self.gpus_per_machine))

    def joined(self, number: int) -> "NodeGroup":
        """The group whose nodes are so many of its own, with their links to others side by side."""
        speed = number * self.inter_node.bandwidth_bytes_per_s
        return self.but(
            nodes=self.nodes // number,
            gpus_per_node=number * self.gpus_per_node,
            price_usd_per_hour=number * self.price_usd_per_hour,
            inter_node={"bandwidth_bytes_per_s": speed},
            machines=number,
        )

    def _between_machines(self, rings: int) -> Link:
        """The slower of the links that a ring passes, of so many that leave a machine at a time."""
        near, far, share = self.intra_node.of_rings(rings), self.inter_node, rings * self.machines
        slower = min(near.bandwidth_bytes_per_s, far.bandwidth_bytes_per_s / share)
        latency_s = max(near.latency_s, far.latency_s)
        return Link(bandwidth_bytes_per_s=slower, latency_s=latency_s)


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
    Annotated[Count, Tag(NUMBER)] | Annotated[CountRange, Tag(MAPPING)], NUMBER_OR_MAPPING
]


class NodeGroupFile(Section):
    """Equal machines."""

    name: Name
    """Name of the group; its nodes are NAME-0, NAME-1, ..."""
    gpu: NameOr[GpuFile]
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


def check_joined(written: NodeGroupFile, place: Place, joined_nodes: int) -> None:
    """Raises InstanceError for a group whose nodes cannot be joined by so many."""
    if isinstance(written.nodes, CountRange) or written.nodes % joined_nodes:
        number = "a range" if isinstance(written.nodes, CountRange) else str(written.nodes)
        problem = f"{number}, with joined_nodes: {joined_nodes}"
        raise place.at("nodes").error(problem, f"a multiple of {joined_nodes}")
    if joined_nodes * written.gpus_per_node > MOST_GPUS_PER_NODE:
        problem = f"{written.gpus_per_node}, with joined_nodes: {joined_nodes}"
        most = f"{MOST_GPUS_PER_NODE // joined_nodes} or fewer"
        raise place.at("gpus_per_node").error(problem, most)
    if written.spot:
        allowed = "no spot terms, which are those of single nodes, or joined_nodes: 1"
        raise place.at("spot").error(f"with joined_nodes: {joined_nodes}", allowed)


def resolve_group(written: NodeGroupFile, place: Place, *, alone: bool) -> NodeGroup:
    """One group; `alone`: the cluster is a single node and needs no network."""
    wrong = Mistakes()
    gpu, inside, outside = wrong.of(gpu_type, written.gpu, place.at("gpu")), None, None
    if written.intra_node is not None:
        inside = wrong.of(find_link, written.intra_node, place.at("intra_node"))
    at = place.at("inter_node")
    if written.inter_node is not None:
        outside = wrong.of(find_link, written.inter_node, at, NETWORK_LATENCY_S)
    elif not alone:
        allowed = "a bandwidth such as 400 Gbit/s, or one of " + ", ".join(link_catalogue())
        wrong.errors.append(at.error("missing", allowed))
    if gpu is None or wrong.errors:
        raise joined(wrong.errors)
    if (memory := written.memory_bytes) is not None:
        gpu = gpu.but(memory_bytes=memory, memory_source=NOT_STATED, memory_kind="assumed")
    price, terms = written.price_usd_per_hour, written.spot
    return NodeGroup(
        name=written.name,
        gpu=gpu,
        gpus_per_node=written.gpus_per_node,
        nodes=written.most_nodes,
        price_usd_per_hour=price or 0.0,
        spot=Spot.model_validate({**dict(terms), "only": price is None}) if terms else None,
        intra_node=inside or gpu.link,
        inter_node=outside or inside or gpu.link,
        zone=written.zone,
    )
