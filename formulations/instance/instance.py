"""One planning problem: workload, cluster, profile, the space of plans, limits, objective."""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, model_validator

from formulations.instance.calibration import Calibration
from formulations.instance.cluster import Cluster, GpuType
from formulations.instance.input_limits import (
    MOST_CHOICES,
    MOST_CHOICES_OF_TERMS,
    Bytes,
    Count,
    Name,
    Text,
)
from formulations.instance.lengths import Lengths
from formulations.instance.overlap import Overlap
from formulations.instance.preemption import Preemption
from formulations.instance.profile import Profile
from formulations.instance.record import Record
from formulations.instance.sources import Evidence, GpuEvidence
from formulations.instance.target import Target
from formulations.instance.workload import ExpertSplit, Precision, Recompute, Workload
from formulations.units import GIB

ZeroStage = Literal[0, 1, 2, 3]
#: Least time, and most memory, first.
RECOMPUTE_WAYS: tuple[Recompute, ...] = ("none", "selective", "full")
ScheduleName = Literal["1f1b", "gpipe", "interleaved", "zb-h1"]
#: What has a tensor-parallel degree, and parts of a micro-batch, of its own.
DegreesPer = Literal["uniform", "per_group", "per_stage"]
#: Schedules that templates and fleets know.
PlainSchedule = Literal["1f1b", "gpipe"]
#: How attention sees all tokens of a sequence that GPUs share, see `formulations.costs.context`.
ContextMethod = Literal["ring", "all_to_all"]
Minimize = Literal["step_time", "cost_per_step", "training_cost", "cost_per_useful_sequence"]
Counts = Annotated[tuple[Count, ...], Field(min_length=1, max_length=MOST_CHOICES)]


class SearchSpace(Record):
    """Which plans may be chosen. None means every value that fits the cluster."""

    target: Target = "any"  #: who is to run the plan
    degrees: DegreesPer = "uniform"
    tensor_parallel: Counts | None = None
    data_parallel: Counts | None = None
    pipeline_parallel: Counts | None = None
    micro_batch: Counts | None = None
    context_parallel: Counts = (1,)  #: GPUs of a node that share every sequence
    context_method: ContextMethod | None = None  #: None: the one that sends less
    expert_parallel: Counts = (1,)  #: GPUs that share the experts of a block
    expert_tensor_parallel: tuple[ExpertSplit, ...] = ("tp",)  #: GPUs that split an expert
    recompute: tuple[Recompute, ...] = ("none", "full")
    recompute_per: Literal["stage", "plan"] = "stage"  #: who chooses among them
    sequence_parallel: bool = False  #: do the GPUs of a tensor group split the sequence elsewhere?
    zero: tuple[ZeroStage, ...] = (0, 1)
    schedule: tuple[ScheduleName, ...] = ("1f1b",)
    virtual_pipeline: tuple[int, ...] = (2,)  #: chunks per GPU of the interleaved schedule
    micro_batches: Literal["even", "uneven"] = "even"
    idle_nodes: bool = True  #: may a plan leave nodes unused?
    embedding_only_stages: bool = False  #: may a stage hold no block?
    blocking_sends: bool = False  #: does a send keep the sender busy?
    scatter_gather: bool = False  #: Megatron-LM's: each of the tp lanes sends 1/tp
    overlap: Overlap = Overlap()  #: what hides behind computation

    @property
    def splits_messages(self) -> bool:
        """Whether each of the tp lanes sends 1/tp of a message between stages."""
        return self.scatter_gather or self.sequence_parallel

    @property
    def gathers_messages(self) -> bool:
        """Whether the receivers put it together; of a split sequence each needs its part alone."""
        return self.scatter_gather and not self.sequence_parallel


def plain_schedules(search: SearchSpace) -> list[PlainSchedule]:
    """Those to choose among that templates, fleets and stages of unlike degrees know."""
    return [name for name in search.schedule if name == "1f1b" or name == "gpipe"]


#: Share of a GPU's memory that plans leave free unless the instance says another one: the most that
#: the memory model is below measured peaks (`bench memory`: 22 runs on B200, SimuMax v1.2).
MEMORY_MODEL_ERROR = 0.025


class Limits(Record):
    """What a plan must respect."""

    memory_headroom: float = Field(default=0.0, ge=0, lt=1)  #: share of the memory left free
    framework_reserve_bytes: Bytes = GIB  #: context, NCCL, fragmentation
    max_step_time_s: float | None = Field(default=None, gt=0)
    max_cost_usd_per_step: float | None = Field(default=None, gt=0)
    max_price_usd_per_hour: float | None = Field(default=None, gt=0)


class Objective(Record):
    """What is minimised. `training_cost` is the cost of `steps` steps.

    cost_per_useful_sequence: with preemptions, see `formulations.costs.renting`.
    """

    minimize: Minimize = "step_time"
    steps: int | None = Field(default=None, ge=1, le=10**12)


class Instance(Record):
    """Validated once, frozen, complete: nothing is looked up elsewhere any more."""

    name: Name
    source: Text
    workload: Workload
    cluster: Cluster
    profile: Profile | None = None
    calibration: Calibration | None = None
    search: SearchSpace = SearchSpace()
    limits: Limits = Limits()
    objective: Objective = Objective()
    preemption: Preemption | None = None  #: None: neither written nor asked for by the objective
    lengths: Lengths | None = None  #: None: all sequences are of the workload's length
    #: The workload with flash attention, of plans whose GPUs all have it where some of the
    #: cluster's have none: one flag for all GPUs of a launch. None: `workload`, of all plans.
    fused: Workload | None = None

    @model_validator(mode="after")
    def _check_terms(self) -> "Instance":
        if self.objective.minimize != "cost_per_useful_sequence":
            return self
        if self.preemption is None:
            raise ValueError("cost_per_useful_sequence without what preemptions cost")
        both = [group for group in self.cluster.groups if group.spot and not group.spot.only]
        if len(both) > MOST_CHOICES_OF_TERMS:
            raise ValueError(f"more than {MOST_CHOICES_OF_TERMS} groups on demand and on spot")
        return self

    @property
    def sides(self) -> tuple["Instance", ...]:
        """The instance for plans without flash attention and for those with; else itself alone.

        Without it no GPUs share a sequence.
        """
        return (self,) if self.fused is None else self._sides

    @cached_property
    def _sides(self) -> tuple["Instance", ...]:
        whole = tuple(cp for cp in self.search.context_parallel if cp == 1)
        search = self.search.model_copy(update={"context_parallel": whole})
        return (
            self.model_copy(update={"fused": None, "search": search}),
            self.model_copy(update={"fused": None, "workload": self.fused}),
        )

    def side(self, nodes_used: Sequence[int]) -> int:
        """Which of `sides` plans on so many nodes of every group belong to."""
        if self.fused is None:
            return 0
        pairs = zip(self.cluster.groups, nodes_used, strict=True)
        return int(all(group.gpu.has_flash for group, count in pairs if count))

    def on(self, nodes_used: Sequence[int]) -> "Instance":
        """The instance for plans on so many nodes of every group: one of `sides`."""
        return self.sides[self.side(nodes_used)]

    def with_batch(self, global_batch: int) -> "Instance":
        """The instance with so many sequences per step."""
        update = {
            name: workload.model_copy(update={"global_batch": global_batch})
            for name, workload in (("workload", self.workload), ("fused", self.fused))
            if workload is not None
        }
        return self.model_copy(update=update)


def _layer_times(profile: Profile | None, gpu: GpuType, precision: Precision) -> Evidence:
    """What was measured, or else what the analytic model rests on."""
    if profile is None or (profile.completed and not profile.measures(gpu.name)):
        return gpu.efficiency_evidence(precision)
    return Evidence(kind="measured", source=profile.source)


def gpu_evidence(instance: Instance, nodes_used: Sequence[int]) -> tuple[GpuEvidence, ...]:
    """One entry per GPU type and links of the nodes used, in the cluster's order."""
    precision = instance.workload.precision
    found = []
    for group, used in zip(instance.cluster.groups, nodes_used, strict=True):
        if not used:
            continue
        gpu, inside, outside = group.gpu, group.intra_node, group.inter_node
        found.append(
            GpuEvidence(
                gpu=gpu.name,
                peak=gpu.peak_evidence(precision),
                memory_bandwidth=Evidence(kind=gpu.kind, source=gpu.source),
                memory=Evidence(kind=gpu.memory_kind, source=gpu.memory_source),
                intra_node=Evidence(kind=inside.kind, source=inside.source),
                inter_node=Evidence(kind=outside.kind, source=outside.source),
                layer_times=_layer_times(instance.profile, gpu, precision),
            )
        )
    return tuple(dict.fromkeys(found))
