"""What machines are made of, as written and as read: links, GPU types, spot terms; sources.

What is written may be a name, or leave something to be looked up; the values have it all. Names are
those of `catalogue/links.yaml` and `catalogue/gpus.yaml`, with the sources of figures.
"""

from collections.abc import Mapping
from functools import cache
from math import floor
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from formulations.instance.documents import Place, resource
from formulations.instance.record import (
    FROM_LIST,
    MOST_TEXT,
    Bytes,
    Count,
    Name,
    NameOr,
    Quantity,
    Record,
    Seconds,
    Section,
    Text,
)
from formulations.instance.validation import validated
from formulations.instance.workload import NARROW, Precision

#: Source of a figure that the instance states, and says no more of.
NOT_STATED = "the instance"
Kind = Literal["measured", "published", "assumed"]


class Evidence(Record):
    """Kind and source of some figures."""

    kind: Kind
    source: Text
    assumed: tuple[Name, ...] = ()  #: figures among these that are assumed, whatever the kind


class GpuEvidence(Record):
    """Where the figures of a GPU type come from."""

    gpu: Name
    peak: Evidence  #: in the workload's precision
    memory_bandwidth: Evidence
    memory: Evidence
    intra_node: Evidence
    inter_node: Evidence
    layer_times: Evidence  #: of a profile, or of the analytic model's efficiency


Rate = Annotated[float, Field(ge=1e-12, le=1e18)]  # per second
HalfFlops = Annotated[float, Field(ge=0, le=1e18)]
Efficiency = Annotated[float, Field(ge=1e-6, le=1)]
Memory = Annotated[Bytes, Field(gt=0), Quantity("size", "1 B", "10 TiB", "39.59 GiB", floor)]
Bandwidth = Annotated[Rate, Quantity("bandwidth", "1 B/s", "100 TB/s", "40 Gbit/s")]
Latency = Annotated[Seconds, Quantity("time", "0", "1 s", "5 us")]
FlopRate = Annotated[Rate, Quantity("compute", "1 FLOP/s", "1000 PFLOP/s", "312 TFLOP/s")]
Price = Annotated[
    float, Field(ge=0, le=1e6), Quantity("price", "0", "1000000 USD/h", "16.39 USD/h")
]
Preemptions = Annotated[float, Field(ge=0, le=1e4), Quantity("rate", "0", "10000 /h", "0.05 /h")]


class LinkFile(Section):
    """One direction of a full-duplex link."""

    bandwidth_bytes_per_s: Bandwidth = Field(validation_alias="bandwidth")
    """Bandwidth of one direction, such as 40 Gbit/s."""
    latency_s: Latency | None = Field(None, validation_alias="latency")
    """Time of an empty message, such as 14 us. Default: one step of NCCL's rings, 5.7 us inside a
    node and 14 us between nodes."""
    shared: bool = False
    """Do rings inside a node share it, as on PCIe? With NVLink every GPU has links of its own. A
    node's link to others is always shared."""
    kind: Kind = "assumed"
    """How the figures were found."""
    source: Text = NOT_STATED
    """Where the figures come from."""


class Link(LinkFile):
    """One direction of a full-duplex link, or one GPU's share of the fabric inside a node."""

    latency_s: Latency = Field(validation_alias="latency")
    """Time of an empty message, such as 1 ms."""

    def of_rings(self, rings: int) -> "Link":
        """What each of so many rings in a node has at a time (FASOP, HPDC 2024, section 3.3)."""
        if not self.shared or rings <= 1:
            return self
        return self.but(bandwidth_bytes_per_s=self.bandwidth_bytes_per_s / rings)


class ZoneLink(Link):
    """The link that joins two zones, all flows from one to the other share it; none by default."""


class ZonePair(Record):
    """Two zones, in either order, with a link of their own."""

    zones: tuple[Name, Name]
    link: ZoneLink


def _bandwidth_alone(value: object) -> object:
    """400 Gbit/s stands for {bandwidth: 400 Gbit/s}; names of links start with a letter."""
    return {"bandwidth": value} if isinstance(value, str) and value[:1].isdigit() else value


WrittenLink = Annotated[NameOr[LinkFile], BeforeValidator(_bandwidth_alone)]


LEAST_FACTOR, MOST_FACTOR = 0.05, 20.0
#: What times of layers are multiplied by.
Factor = Annotated[float, Field(ge=LEAST_FACTOR, le=MOST_FACTOR)]
#: Width -> tensor-parallel degree -> tokens of a micro-batch -> factor.
Cells = dict[Count, dict[Count, dict[Count, Factor]]]


Attention = Literal["plain_attention", "fused_attention"]


class MeasuredLayers(Section):
    """Measured over modelled times of layers, without traffic; of dense models."""

    source: Text
    """What was measured, by whom, with which software."""
    evidence: Text
    """How much of what, such as 726 steps."""
    precisions: Annotated[tuple[Precision, ...], FROM_LIST] = Field(min_length=1)
    """Precisions that they hold in."""
    blocks: Cells = Field(min_length=1)
    """Width -> tp -> tokens of a micro-batch -> factor of a block's times."""
    ends: Cells = Field({})
    """The same of embedding and head."""


class GpuFile(Section):
    """A GPU type: what it can do at most, and how much of that it reaches, with the sources.

    Of the latter see `formulations.costs.compute`.
    """

    source: Text = NOT_STATED
    """Where the figures come from."""
    kind: Kind = "assumed"
    """How peak, memory_bandwidth and link were found."""
    peak_flops: dict[Precision, FlopRate] = Field(min_length=1, validation_alias="peak")
    """Peak per precision, dense (without sparsity), such as {bf16: 312 TFLOP/s}."""
    assumed_peaks: dict[Precision, Text] = Field({})
    """Peaks that the source does not state, and what they come from."""
    compute_capability: float | None = Field(None, ge=1, le=100)
    """Version of the architecture, such as 8.0: flash attention needs 8.0 or more. Default: 8.0
    with a peak in bf16 or tf32, 8.9 in fp8, 10.0 in fp4, else not known."""
    memory_bytes: Memory = Field(validation_alias="memory")
    """Memory that CUDA can allocate, such as 79.1 GiB."""
    memory_source: Text | None = None
    """Source of `memory`, if another."""
    memory_kind: Kind = "assumed"
    """How `memory` was found."""
    memory_bandwidth_bytes_per_s: Bandwidth = Field(validation_alias="memory_bandwidth")
    """Of the GPU's memory, such as 2039 GB/s."""
    link: WrittenLink
    """One GPU's link to the others in its node, one direction: a name of the link catalogue, a
    bandwidth, or bandwidth and latency."""
    efficiency_maximum: Efficiency = 0.6
    """Share of the peak that an endless kernel reaches."""
    efficiency_half_flops: HalfFlops = 1e9
    """FLOPs of a kernel that reaches half of that share, in 16 bit."""
    attention_maximum: Efficiency | None = None
    """The same share for fused attention, of the FLOPs that it works out; default: as other
    products."""
    attention_half_flops: HalfFlops = 0
    """FLOPs of an attention kernel that reaches half of its share."""
    grouped_maximum: Efficiency | None = None
    """The same share for grouped products of experts; default: as other products."""
    grouped_bandwidth: Efficiency = 1.0
    """Share of the memory bandwidth that reads and updates experts."""
    permute_bandwidth: Efficiency = 1.0
    """Share of the memory bandwidth that puts tokens into the order of experts."""
    memory_latency_s: float | None = Field(None, ge=0, le=1)
    """Seconds that a kernel bound by memory takes to start. Default: as products."""
    launch_overhead_s: float = Field(5e-6, ge=0, le=1)
    """Seconds per kernel launch."""
    efficiency_source: Text = "assumed, not fitted"
    """Where these figures come from."""
    measured_in: Annotated[tuple[Precision, ...], FROM_LIST] = ()
    """Precisions of the times that they were fitted to."""
    assumed_efficiency: Annotated[tuple[Name, ...], FROM_LIST] = ()
    """Which of them were not fitted all the same, such as launches."""
    measured_layers: dict[Attention, MeasuredLayers] = Field({})
    """Layers measured with plain or fused attention: they correct what follows from the figures."""
    name: Name
    """Name in reports and in the profile."""


#: Peaks that half-sizes hold for, the first that a GPU has.
_HALF_PEAKS: tuple[Precision, ...] = ("fp16", "bf16", "tf32", "fp32", *NARROW)

#: Compute capability from which on there is flash attention: Ampere (Dao, FlashAttention-2,
#: ICLR 2024, and its README).
FLASH_CAPABILITY = 8.0


class GpuType(GpuFile):
    """A GPU with its sourced figures, all looked up. Peaks are dense, without sparsity.

    Efficiency: `formulations.costs.compute`, fitted per type on published times (bench.calibrate).
    """

    memory_source: Text = NOT_STATED
    link: Link  #: GPU to GPU inside a node, one direction, per GPU

    def peak_evidence(self, precision: Precision) -> Evidence:
        """As the type's source, unless a peak that the precision uses is assumed."""
        used = (precision, *(_HALF_PEAKS[:2] if precision in NARROW else ()))
        for peak in used:
            if peak in self.assumed_peaks:
                return Evidence(kind="assumed", source=self.assumed_peaks[peak])
        return Evidence(kind=self.kind, source=self.source)

    def efficiency_evidence(self, precision: Precision) -> Evidence:
        """Measured in the precisions that were fitted, assumed in all others."""
        kind: Kind = "measured" if precision in self.measured_in else "assumed"
        if self.measured_in and kind == "assumed":
            source = f"measured in {', '.join(self.measured_in)}: {self.efficiency_source}"
            return Evidence(kind=kind, source=source[:MOST_TEXT])
        assumed = self.assumed_efficiency if self.measured_in else ()
        return Evidence(kind=kind, source=self.efficiency_source, assumed=assumed)

    @property
    def has_flash(self) -> bool:
        """Whether it is known to have flash attention, in the precisions that this has."""
        return (self.compute_capability or 0) >= FLASH_CAPABILITY

    @property
    def half_peak(self) -> float:
        """FLOP/s in 16 bit, for which the half-sizes hold; of what comes next where it has none."""
        return next(self.peak_flops[name] for name in _HALF_PEAKS if name in self.peak_flops)

    def peak_outside_blocks(self, precision: Precision) -> float:
        """FLOP/s of attention and head, which fp8 and fp4 leave in 16 bit."""
        return self.half_peak if precision in NARROW else self.peak_flops[precision]


class SpotFile(Section):
    """Terms on which the provider may take nodes back."""

    price_usd_per_hour: Price = Field(validation_alias="price")
    """Price of one node on spot, such as 5.2 USD/h."""
    preemptions_per_hour: Preemptions = Field(validation_alias="preemptions")
    """How often one node is taken back on average, such as 0.05 /h."""
    kind: Kind = "assumed"
    """How the figures were found."""
    source: Text = NOT_STATED
    """Where the figures come from."""


class Spot(SpotFile):
    """Terms on which the provider may take a node back at any moment, each at its own time."""

    only: bool = False  #: may the nodes not be rented on demand?


#: Of one step of a ring inside a node, over PCIe, and between nodes, by NCCL's own model
#: (NVIDIA/nccl 2.19, src/graph/tuning.cc, hwLat), for links that are written without.
NODE_LATENCY_S, NETWORK_LATENCY_S = 5.7e-6, 14e-6

#: Compute capability from which on GPUs have a precision (NVIDIA, Transformer Engine, datatype and
#: hardware support matrix; of tf32 PTX ISA, wmma, sm_80). fp16 and fp32 are on older ones, too.
CAPABILITIES: Mapping[Precision, float] = {"bf16": 8.0, "tf32": 8.0, "fp8": 8.9, "fp4": 10.0}


def gpu_type(written: GpuFile | str, place: Place) -> GpuType:
    """The GPU type of a written name or of written figures."""
    if isinstance(written, str):
        return place.pick("GPU", written, gpu_catalogue())
    needed = [CAPABILITIES[name] for name in written.peak_flops if name in CAPABILITIES]
    decided = {
        "memory_source": written.memory_source or written.source,
        "link": find_link(written.link, place.at("link")),
        # what the precisions that have a peak need at least; None where older GPUs have them
        "compute_capability": written.compute_capability or max(needed, default=None),
    }
    return GpuType.model_validate({**dict(written), **decided})


def find_link(written: LinkFile | str, place: Place, latency_s: float = NODE_LATENCY_S) -> Link:
    """The link of a written name or of written figures; `latency_s`: where none is written."""
    if isinstance(written, str):
        return place.pick("link", written, link_catalogue())
    fields = dict(written)
    if written.latency_s is None:
        source = f"{written.source}; latency of {latency_s * 1e6:g} us: NCCL 2.19"
        fields |= {"latency_s": latency_s, "source": source}
    return Link(**fields)


class MachinesFile(Record):
    """What links.yaml and gpus.yaml hold: figures of vendors, and those fitted on measurements."""

    links: dict[Name, LinkFile] = Field({})
    gpus: list[GpuFile] = Field([])


@cache
def link_catalogue() -> Mapping[str, Link]:
    """Links by name."""
    document = resource("links.yaml")
    written, place = validated(MachinesFile, document).links, Place(document)
    return {name: find_link(link, place, NETWORK_LATENCY_S) for name, link in written.items()}


@cache
def gpu_catalogue() -> Mapping[str, GpuType]:
    """GPU types with sourced figures, by name."""
    document = resource("gpus.yaml")
    written, place = validated(MachinesFile, document).gpus, Place(document)
    return {gpu.name: gpu_type(gpu, place.at("gpus", i)) for i, gpu in enumerate(written)}
