"""The machines: node groups, GPU types, links and prices."""

from itertools import accumulate

from pydantic import Field

from formulations.instance.record import Record


class Link(Record):
    """One direction of a full-duplex link, or one GPU's share of the fabric inside a node."""

    bandwidth_bytes_per_s: float = Field(gt=0)
    latency_s: float = Field(ge=0)


class GpuType(Record):
    """A GPU with its sourced figures. Peaks are dense, without sparsity."""

    name: str
    source: str
    peak_flops: dict[str, float]  #: FLOP/s per precision: fp32, tf32, fp16, bf16, ...
    memory_bytes: int = Field(gt=0)
    memory_bandwidth_bytes_per_s: float = Field(gt=0)
    link: Link  #: GPU to GPU inside a node, one direction, per GPU
    #: See formulations.costs.compute. Fitted once per type on published times: bench.calibrate.
    efficiency_maximum: float = Field(gt=0, le=1)
    efficiency_half_flops: float = Field(ge=0)  #: FLOPs per kernel at half the maximum, in 16 bit
    launch_overhead_s: float = Field(ge=0)  #: host time per kernel, hidden by longer kernels
    efficiency_source: str


class NodeGroup(Record):
    """`nodes` equal machines; any two of them may change places in a plan."""

    name: str
    gpu: GpuType
    gpus_per_node: int = Field(ge=1)
    nodes: int = Field(ge=1)
    price_usd_per_hour: float = Field(ge=0)  #: per node
    intra_node: Link
    inter_node: Link  #: out of the node, shared by its GPUs


class Cluster(Record):
    """Node groups and the efficiency of the network between nodes."""

    groups: tuple[NodeGroup, ...] = Field(min_length=1)
    #: (number of nodes, efficiency): the entry with the largest number <= n holds for n nodes
    network_efficiency: tuple[tuple[int, float], ...] = ((1, 1.0),)

    def efficiency(self, num_nodes: int) -> float:
        """Share of the nominal bandwidth that a collective over `num_nodes` nodes reaches."""
        return [value for least, value in self.network_efficiency if least <= num_nodes][-1]

    @property
    def node_names(self) -> tuple[str, ...]:
        """All nodes, group by group: NAME-0, NAME-1, ..."""
        return tuple(f"{g.name}-{i}" for g in self.groups for i in range(g.nodes))

    @property
    def node_groups(self) -> tuple[int, ...]:
        """Group index of every node, in the order of `node_names`."""
        return tuple(j for j, group in enumerate(self.groups) for _ in range(group.nodes))

    @property
    def first_node(self) -> tuple[int, ...]:
        """Index of each group's first node in `node_names`."""
        return tuple(accumulate((g.nodes for g in self.groups[:-1]), initial=0))
