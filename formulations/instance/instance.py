"""One planning problem: workload, cluster, profile, the space of plans, limits, objective.

And what preemptions cost, by checkpoints and restarts; and families of problems, which differ in
how many nodes of each group they have.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from math import ceil, prod
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from formulations.instance.cluster import Cluster
from formulations.instance.lengths import Lengths
from formulations.instance.machines import NOT_STATED, Evidence, GpuEvidence, Kind
from formulations.instance.profile import Calibration, Profile
from formulations.instance.record import (
    MOST_CHOICES_OF_TERMS,
    Bytes,
    Fraction,
    Index,
    Name,
    Quantity,
    Record,
    Seconds,
    Section,
    Text,
    without_nulls,
)
from formulations.instance.search import SearchSpace
from formulations.instance.workload import Workload
from formulations.units import GIB

Pause = Annotated[Seconds, Quantity("time", "0", "100 h", "2 min")]
CheckpointEvery = Annotated[
    float, Field(ge=1e-6, le=1e9), Quantity("time", "1 ms", "10000 h", "10 min")
]


class PreemptionFile(Section):
    """What preemptions cost: restarts from checkpoints, see `formulations.costs.renting`."""

    restart_s: Pause | None = Field(None, validation_alias="restart")
    """From a preemption to the next step, with another node in its place, such as 2 min. Default:
    Varuna's for a model of this size, as measured for Oobleck."""
    checkpoint_s: Pause | None = Field(None, validation_alias="checkpoint")
    """Time of a checkpoint, such as 15 s. Default: as `restart`."""
    checkpoint_every_s: CheckpointEvery | None = Field(None, validation_alias="checkpoint_every")
    """Training between two checkpoints, such as 10 min. Default: what costs least."""
    kind: Kind = "assumed"
    """How the figures were found."""
    source: Text = NOT_STATED
    """Where the figures come from."""


class Preemption(PreemptionFile):
    """What a preemption costs where checkpoints are all that is left, as in Varuna."""

    restart_s: Seconds
    checkpoint_s: Seconds  #: during which nothing is trained


#: What was measured of preemptions, with which Oobleck's Table 2 was made, by the model's size:
#: on A40 nodes (SymbioticLab/Oobleck, tools/simulator, commit 103c477). Varuna's restart of
#: BERT-large varies there with the number of nodes, from 49.1 to 112 s; 76 s is its default.
RECOVERY_SOURCE = "public simulator of Oobleck (SOSP 2023)"
NODE_READY_S = 45.0  #: from joining until a node can be used


class RecoveryCosts(NamedTuple):
    """Seconds that a model takes to recover; `parameters` of it, as hetplan counts them."""

    model: str
    parameters: int
    oobleck_s: float
    varuna_restart_s: float
    varuna_checkpoint_s: float
    bamboo_rebalance_s: float


RECOVERIES = (
    RecoveryCosts("BERT-large", 335_141_888, 2, 76, 15.8, 76),
    RecoveryCosts("GPT-2", 354_823_168, 2, 83, 11.5, 80),
    RecoveryCosts("GPT-3 medium", 355_871_744, 3, 78.7, 11.2, 100),
    RecoveryCosts("GPT-3 2.7B", 2_651_553_280, 6, 515, 50, 230),
    RecoveryCosts("GPT-3 6.7B", 6_658_404_352, 10, 701, 120, 450),
)


def measured_recovery(parameters: int) -> tuple[RecoveryCosts, str]:
    """Costs of the smallest measured model of at least this size, and whose they are.

    Above the largest model they are its own, in proportion to the size.
    """
    costs = next((costs for costs in RECOVERIES if parameters <= costs.parameters), RECOVERIES[-1])
    factor = max(1.0, parameters / costs.parameters)
    scaled = f", times {factor:.3g} for the size" if factor > 1 else ""
    seconds = (factor * measured_s for measured_s in costs[2:])
    source = f"as {costs.model}{scaled}, {RECOVERY_SOURCE}"
    return RecoveryCosts(costs.model, costs.parameters, *seconds), source


def resolve_preemption(written: PreemptionFile | None, parameters: int) -> Preemption:
    """As written, else Varuna's for a model of this size; checkpoints as often as costs least."""
    costs, whose = measured_recovery(parameters)
    restart_s = NODE_READY_S + costs.varuna_restart_s
    usual = {"restart": restart_s, "checkpoint": costs.varuna_checkpoint_s}
    fields: dict[str, object] = dict(written or PreemptionFile())
    missing = [name for name in usual if fields[f"{name}_s"] is None]
    if missing:
        source = f"Varuna's, {whose}"
        if written is not None:
            source = f"{written.source}; {' and '.join(missing)} {source}"
        fields |= {f"{name}_s": usual[name] for name in missing}
        fields |= {"kind": "assumed", "source": source}
    return Preemption.model_validate(fields)


Minimize = Literal["step_time", "cost_per_step", "training_cost", "cost_per_useful_sequence"]
Reserve = Annotated[Bytes, Quantity("size", "0", "10 TiB", "1 GiB", ceil)]
Most = Annotated[float, Field(gt=0)]
LongestTime = Annotated[Most, Quantity("time", "1 ns", "100000 h", "2 s")]
HighestCost = Annotated[Most, Quantity("money", "1e-12 USD", "1000000000 USD", "0.01 USD")]
HighestPrice = Annotated[Most, Quantity("price", "1e-6 USD/h", "1000000000 USD/h", "100 USD/h")]

#: Share of a GPU's memory that plans leave free unless the instance says another one: no measured
#: peak is further above the model (`MEASURED_PEAKS`: at most 0.1 %, rounded up).
MARGIN_OF_MEASURED_PEAKS = 0.01
#: By GPU type, the lowest and the highest error of the memory model against measured peaks:
#: SimuMax v1.2, allocated bytes (`python -m bench memory`).
MEASURED_PEAKS = {"B200": "22 peaks measured on B200: -0.1 to +0.7 %"}


class LimitsFile(Section):
    """What a plan must respect."""

    memory_headroom: Fraction = MARGIN_OF_MEASURED_PEAKS
    """Share of the memory to leave free, 0.05 or 5 %. Default: 1 %, the margin that measured peaks
    ask for."""
    framework_reserve_bytes: Reserve = Field(
        default_factory=lambda: GIB, validation_alias="framework_reserve"
    )
    """Memory for context, NCCL, fragmentation. Default: 1 GiB."""
    max_step_time_s: LongestTime | None = Field(None, validation_alias="max_step_time")
    """Longest step, such as 2 s."""
    max_cost_usd_per_step: HighestCost | None = Field(None, validation_alias="max_cost_per_step")
    """Highest price of one step, such as 0.01 USD."""
    max_price_usd_per_hour: HighestPrice | None = Field(None, validation_alias="max_price_per_hour")
    """Highest price of all nodes used, such as 100 USD/h."""

    _written = model_validator(mode="before")(without_nulls)


class Limits(LimitsFile):
    """What a plan must respect; the share to leave free is what was decided."""

    memory_headroom: Fraction = 0.0


class Objective(Section):
    """What is minimised.

    cost_per_useful_sequence: with preemptions, see `formulations.costs.renting`.
    """

    minimize: Minimize = "step_time"
    """training_cost is the price of `steps` steps; cost_per_useful_sequence chooses between on
    demand and spot too, and counts what preemptions cost."""
    steps: int | None = Field(None, ge=1, le=10**12)
    """Steps of the training, for training_cost."""


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
        """For plans without flash attention, whose GPUs share no sequence, and with; or itself."""
        return (self,) if self.fused is None else self._sides

    @cached_property
    def _sides(self) -> tuple["Instance", ...]:
        undivided = tuple(cp for cp in self.search.context_parallel if cp == 1)
        return (
            self.but(fused=None, search={"context_parallel": undivided}),
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

    def splits_sequence(self, tp: int) -> bool:
        """Whether tensor groups of tp GPUs split the sequence between their products."""
        return self.search.sequence_parallel and self.search.split_tokens % tp == 0

    def splits_messages(self, tp: int) -> bool:
        """Whether each of the tp GPUs sends 1/tp of a message between stages."""
        return self.search.scatter_gather or self.splits_sequence(tp)

    def gathers_messages(self, tp: int) -> bool:
        """Whether the receivers put it together; of a split sequence each needs its part alone."""
        return self.search.scatter_gather and not self.splits_sequence(tp)

    def with_batch(self, global_batch: int) -> "Instance":
        """The instance with so many sequences per step."""
        fused = self.fused and self.fused.but(global_batch=global_batch)
        return self.but(workload={"global_batch": global_batch}, fused=fused)

    def with_nodes(self, counts: Sequence[int]) -> "Instance":
        """The instance with so many nodes in each group; groups without nodes are left out."""
        sized = zip(self.cluster.groups, counts, strict=True)
        groups = [group.but(nodes=count) for group, count in sized if count]
        return self.but(cluster=self.cluster.with_groups(groups))


def gpu_evidence(instance: Instance, nodes_used: Sequence[int]) -> tuple[GpuEvidence, ...]:
    """One entry per GPU type and links of the nodes used, in the cluster's order."""
    precision, profile, entries = instance.workload.precision, instance.profile, []
    for group, used in zip(instance.cluster.groups, nodes_used, strict=True):
        if not used:
            continue
        gpu, inside, outside = group.gpu, group.intra_node, group.inter_node
        # What was measured, or else what the analytic model rests on.
        layer_times = gpu.efficiency_evidence(precision)
        if profile and (profile.measures(gpu.name) or not profile.completed):
            layer_times = Evidence(kind="measured", source=profile.source)
        entries.append(
            GpuEvidence(
                gpu=gpu.name,
                peak=gpu.peak_evidence(precision),
                memory_bandwidth=Evidence(kind=gpu.kind, source=gpu.source),
                memory=Evidence(kind=gpu.memory_kind, source=gpu.memory_source),
                intra_node=Evidence(kind=inside.kind, source=inside.source),
                inter_node=Evidence(kind=outside.kind, source=outside.source),
                layer_times=layer_times,
            )
        )
    return tuple(dict.fromkeys(entries))


def margin_evidence(instance: Instance, nodes_used: Sequence[int]) -> tuple[str, ...]:
    """What measured peaks the memory to leave free rests on, and of which GPUs there are none."""
    calibration = instance.calibration
    if calibration is not None and calibration.memory_headroom is not None:
        return (f"peaks of {calibration.source}",)
    groups = zip(instance.cluster.groups, nodes_used, strict=True)
    names = dict.fromkeys(group.gpu.name for group, used in groups if used)
    lacking = [name for name in names if name not in MEASURED_PEAKS]
    none = [f"none on {', '.join(lacking)}"] if lacking else []
    return (*MEASURED_PEAKS.values(), *none)


#: More clusters than these are no question that is answered one by one.
MOST_MEMBERS = 100_000

Counts = tuple[int, ...]  #: nodes per node group


class Family(Record):
    """Clusters to choose among: of every node group `fewest` nodes up to those of `instance`.

    All else is as in the instance. Plans of a cluster have flash attention where all GPUs that they
    use do, as everywhere: `Instance.on`.
    """

    instance: Instance
    fewest: tuple[Index, ...]

    @model_validator(mode="after")
    def _check_extent(self) -> "Family":
        if len(self.fewest) != len(self.most):
            raise ValueError("not one least number per node group")
        if any(low > high for low, high in zip(self.fewest, self.most, strict=True)):
            raise ValueError("a least number of nodes above the largest")
        if (count := prod(map(len, self._ranges))) > MOST_MEMBERS:
            raise ValueError(f"{count:,} clusters")
        return self

    @property
    def most(self) -> Counts:
        """Largest number of nodes per group."""
        return tuple(group.nodes for group in self.instance.cluster.groups)

    @property
    def _ranges(self) -> list[range]:
        ends = zip(self.fewest, self.most, strict=True)
        return [range(lower, upper + 1) for lower, upper in ends]

    def members(self) -> Iterator[Counts]:
        """Nodes per group of every cluster, the empty one left out."""
        return (counts for counts in product(*self._ranges) if any(counts))

    def uses(self, counts: Counts) -> Iterator[Counts]:
        """Nodes that plans of a cluster may use so that no smaller cluster has these plans too.

        Nodes may idle where the instance lets them: of a smaller cluster, if there is one.
        """
        idle = self.instance.search.idle_nodes
        ranges = [
            range(0 if idle and count == lowest else count, count + 1)
            for count, lowest in zip(counts, self.fewest, strict=True)
        ]
        return (used for used in product(*ranges) if any(used))

    def member(self, counts: Counts) -> Instance:
        """The instance of one cluster, on which plans use all nodes; empty groups are left out."""
        instance = self.instance.on(counts).with_nodes(counts)
        return instance.but(search={"idle_nodes": False})
