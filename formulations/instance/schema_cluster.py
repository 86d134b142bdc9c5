"""What a user may write about machines: links, GPU types, groups of nodes, preemptions.

Texts with units are plain numbers in base units here (B, B/s, s, FLOP/s, USD/h, /h).
"""

from typing import Annotated

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from formulations.instance.cluster import Efficiency, HalfFlops
from formulations.instance.input_limits import (
    MOST_CHOICES,
    MOST_GROUPS,
    MOST_ZONE_PAIRS,
    Count,
    GpusPerNode,
    Index,
    Name,
    Text,
)
from formulations.instance.record import (
    MAPPING,
    NAME,
    NUMBER,
    Quantity,
    Record,
    name_or_mapping,
    number_or_mapping,
    refusal,
)
from formulations.instance.sources import NOT_STATED, Kind
from formulations.instance.workload import Precision

Memory = Annotated[float, Quantity("size", least="1 B", most="10 TiB", example="39.59 GiB")]
Bandwidth = Annotated[
    float, Quantity("bandwidth", least="1 B/s", most="100 TB/s", example="40 Gbit/s")
]
Latency = Annotated[float, Quantity("time", most="1 s", example="5 us")]
FlopRate = Annotated[
    float, Quantity("compute", least="1 FLOP/s", most="1000 PFLOP/s", example="312 TFLOP/s")
]
Price = Annotated[float, Quantity("price", most="1000000 USD/h", example="16.39 USD/h")]
Preemptions = Annotated[float, Quantity("rate", most="10000 /h", example="0.05 /h")]


class LinkFile(Record):
    """One direction of a full-duplex link."""

    bandwidth: Bandwidth = Field(description="Bandwidth of one direction, such as 40 Gbit/s.")
    latency: Latency | None = Field(
        default=None,
        description="Time of an empty message, such as 14 us. Default: one step of NCCL's rings,"
        " 5.7 us inside a node and 14 us between nodes.",
    )
    kind: Kind = Field(default="assumed", description="How the figures were found.")
    source: Text = Field(default=NOT_STATED, description="Where the figures come from.")


class ZoneLinkFile(LinkFile):
    """The same between zones, whose distance nobody can guess."""

    latency: Latency = Field(description="Time of an empty message, such as 1 ms.")


class ZonePairFile(ZoneLinkFile):
    """The link that joins two zones."""

    zones: list[Name] = Field(
        min_length=2, max_length=2, description="The two zones, in either order."
    )


def _bandwidth_alone(value: object) -> object:
    """400 Gbit/s stands for {bandwidth: 400 Gbit/s}; names of links start with a letter."""
    return {"bandwidth": value} if isinstance(value, str) and value[:1].isdigit() else value


Link = Annotated[
    Annotated[Name, Tag(NAME)] | Annotated[LinkFile, Tag(MAPPING)],
    Discriminator(name_or_mapping),
    BeforeValidator(_bandwidth_alone),
]


class EfficiencyFile(Record):
    """How much of its peak a GPU reaches; see `formulations.costs.compute`."""

    efficiency_maximum: Efficiency = Field(
        default=0.6, description="Share of the peak that an endless kernel reaches."
    )
    efficiency_half_flops: HalfFlops = Field(
        default=1e9, description="FLOPs of a kernel that reaches half of that share, in 16 bit."
    )
    attention_maximum: Efficiency | None = Field(
        default=None,
        description="The same share for fused attention, of the FLOPs that it works out; default:"
        " as other products.",
    )
    attention_half_flops: HalfFlops = Field(
        default=0, description="FLOPs of an attention kernel that reaches half of its share."
    )
    grouped_maximum: Efficiency | None = Field(
        default=None,
        description="The same share for grouped products of experts; default: as other products.",
    )
    grouped_bandwidth: Efficiency = Field(
        default=1.0, description="Share of the memory bandwidth that reads and updates experts."
    )
    permute_bandwidth: Efficiency = Field(
        default=1.0,
        description="Share of the memory bandwidth that puts tokens into the order of experts.",
    )
    memory_latency_s: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Seconds that a kernel bound by memory takes to start. Default: as products.",
    )
    launch_overhead_s: float = Field(
        default=5e-6, ge=0, le=1, description="Seconds per kernel launch."
    )
    efficiency_source: Text = Field(
        default="assumed, not fitted", description="Where these figures come from."
    )
    measured_in: list[Precision] = Field(
        default=[], description="Precisions of the times that they were fitted to."
    )
    assumed_efficiency: list[Name] = Field(
        default=[], description="Which of them were not fitted all the same, such as launches."
    )


class PeakFile(Record):
    """What a GPU can do at most, with the sources."""

    source: Text = Field(default=NOT_STATED, description="Where the figures come from.")
    kind: Kind = Field(
        default="assumed", description="How peak, memory_bandwidth and link were found."
    )
    peak: dict[Precision, FlopRate] = Field(
        min_length=1,
        description="Peak per precision, dense (without sparsity), such as {bf16: 312 TFLOP/s}.",
    )
    assumed_peaks: dict[Precision, Text] = Field(
        default={}, description="Peaks that the source does not state, and what they come from."
    )
    compute_capability: float | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Version of the architecture, such as 8.0: flash attention needs 8.0 or more."
        " Default: 8.0 with a peak in bf16 or tf32, 8.9 in fp8, else not known.",
    )
    memory: Memory = Field(description="Memory that CUDA can allocate, such as 79.1 GiB.")
    memory_source: Text | None = Field(default=None, description="Source of `memory`, if another.")
    memory_kind: Kind = Field(default="assumed", description="How `memory` was found.")
    memory_bandwidth: Bandwidth = Field(description="Of the GPU's memory, such as 2039 GB/s.")
    link: Link = Field(
        description="One GPU's link to the others in its node, one direction: a name of the link"
        " catalogue, a bandwidth, or bandwidth and latency."
    )


class GpuFile(EfficiencyFile, PeakFile):
    """A GPU type that the catalogue does not list."""

    name: Name = Field(description="Name in reports and in the profile.")


Gpu = Annotated[
    Annotated[Name, Tag(NAME)] | Annotated[GpuFile, Tag(MAPPING)], Discriminator(name_or_mapping)
]


class SpotFile(Record):
    """Terms on which the provider may take nodes back."""

    price: Price = Field(description="Price of one node on spot, such as 5.2 USD/h.")
    preemptions: Preemptions = Field(
        description="How often one node is taken back on average, such as 0.05 /h."
    )
    kind: Kind = Field(default="assumed", description="How the figures were found.")
    source: Text = Field(default=NOT_STATED, description="Where the figures come from.")


class CountRange(Record):
    """How many nodes may be rented, both ends among them: `pareto` decides."""

    min: Index = Field(default=0, description="The least number of nodes.")
    max: Count = Field(description="The largest number of nodes.")

    @model_validator(mode="after")
    def _check_order(self) -> "CountRange":
        if self.min > self.max:
            raise refusal(f"min {self.min} above max {self.max}", "min up to max")
        return self


NumNodes = Annotated[
    Annotated[Count, Tag(NUMBER)] | Annotated[CountRange, Tag(MAPPING)],
    Discriminator(number_or_mapping),
]


class NodeGroupFile(Record):
    """Equal machines."""

    name: Name = Field(description="Name of the group; its nodes are NAME-0, NAME-1, ...")
    gpu: Gpu = Field(description="A name of the GPU catalogue, or the figures of a GPU.")
    gpus_per_node: GpusPerNode = Field(description="GPUs in each node.")
    nodes: NumNodes = Field(
        description="Number of nodes; for pareto also a range such as {min: 0, max: 8}."
    )
    price: Price | None = Field(
        default=None, description="Price of one node, such as 16.39 USD/h; default 0."
    )
    spot: SpotFile | None = Field(
        default=None,
        description="Other terms, for cost_per_useful_sequence: a choice, or without `price` the"
        " only ones.",
    )
    memory: Memory | None = Field(
        default=None, description="Memory per GPU, where it differs from the catalogue's."
    )
    intra_node: Link | None = Field(
        default=None,
        description="One GPU's link inside the node, one direction; default: the GPU type's.",
    )
    inter_node: Link | None = Field(
        default=None,
        description="The node's link to the others, one direction, shared by its GPUs. Needed where"
        " there are several nodes.",
    )
    zone: Name | None = Field(
        default=None,
        description="Where the nodes stand, such as an availability zone; of all groups or none.",
    )

    @property
    def most_nodes(self) -> int:
        """The number of nodes, or its upper end."""
        return self.nodes.max if isinstance(self.nodes, CountRange) else self.nodes

    @property
    def fewest_nodes(self) -> int:
        """The number of nodes, or its lower end."""
        return self.nodes.min if isinstance(self.nodes, CountRange) else self.nodes


class ClusterFile(Record):
    """The machines."""

    groups: list[NodeGroupFile] = Field(
        min_length=1, max_length=MOST_GROUPS, description="Groups of equal nodes."
    )
    zone_link: ZoneLinkFile | None = Field(
        default=None,
        description="The link, one direction, that joins each pair of zones and that all flows from"
        " one to the other share. Needed where there are several zones, for all pairs of them that"
        " zone_links does not name.",
    )
    zone_links: list[ZonePairFile] = Field(
        default=[],
        max_length=MOST_ZONE_PAIRS,
        description="Links of pairs of zones that zone_link does not hold for, such as {zones:"
        " [east, west], bandwidth: 5 Gbit/s, latency: 30 ms}.",
    )
    network_efficiency: dict[Count, Efficiency] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_CHOICES,
        description="Number of nodes -> share of the nominal bandwidth that a collective over so"
        " many nodes, or more, reaches. Default: 1.0 for all.",
    )
