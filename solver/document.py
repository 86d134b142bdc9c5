"""The plan file: one JSON object with the plan, its figures, its proof and its instance.

`solve --out` writes it; `solve --json` prints it, and without `--proof` leaves out the log of the
proof. `verify` derives every figure again, except those of RECORDED, which only the digest
protects. Layers are counted along the whole chain: 0 is the embedding, 1 the first block.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from formulations.instance import Instance
from formulations.instance.machines import GpuEvidence
from formulations.instance.record import (
    TOO_LONG,
    Batch,
    Bytes,
    Index,
    Name,
    Record,
    Seconds,
    Text,
    can_be_simulated,
)
from formulations.instance.targets import Target
from formulations.plan import Configuration, Degrees, Group, Recomputed, Replica, Stage
from solver.files import Envelope
from solver.result import ConfigRecord, Moment, Proof, SecondBest, Status, Termination

#: Fields that describe the run, and cannot be derived from the plan.
RECORDED = (
    "history",
    "hetplan_version",
    "method",
    "runtime_s",
    "termination",
    "requested_gap",
    "seed",
    "second_best",
)


class MemoryDocument(Record):
    """What the memory of one GPU holds; the parts add up to `memory_bytes`.

    Activations are those of all micro-batches in flight and what one layer at a time needs besides:
    the block that is being recomputed, and with ZeRO 2 and 3 a layer's whole gradients and
    parameters. Buffers hold messages between stages; the reserve is the framework's.
    """

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    buffers_bytes: int
    reserve_bytes: int


class StageDocument(Record):
    """One virtual stage of one replica. Times per micro-batch down to the transfers, then per step.

    Stage s of a replica is chunk s div pp of the layers on the GPUs of s mod pp, which have only
    one unless the schedule interleaves. Times per micro-batch are the chunk's; times per step and
    memory are those of the GPU with all its chunks, and stand with each of them.
    `gradient_sync_s` is the reduction before and, with ZeRO 1 and 2, the gather after the
    optimizer; what ZeRO 2 and 3 exchange with every micro-batch stands in its passes.
    `embedding_sync_s` the all-reduce of tied embeddings, which first and last GPU share.
    """

    layers: tuple[Index, Index]
    node: Name
    gpus: tuple[Index, ...]
    gpu_type: Name
    degrees: Degrees
    forward_s: Seconds
    backward_s: Seconds  #: with what is recomputed in it
    recomputed: Recomputed
    weight_gradient_s: Seconds  #: of `backward_s`, what the schedule may put off; 0 if nothing
    send_forward_s: Seconds  #: to the next stage; 0 on the last
    send_backward_s: Seconds  #: to the previous stage; 0 on the first
    gradient_sync_s: Seconds
    embedding_sync_s: Seconds
    optimizer_s: Seconds
    memory_bytes: Bytes
    memory_limit_bytes: Bytes
    memory: MemoryDocument


class ReplicaDocument(Record):
    """One pipeline: its virtual stages in the order of the layers."""

    micro_batches: Batch
    stages: tuple[StageDocument, ...]

    def replica(self, number: Mapping[str, int]) -> Replica:
        """The replica; number: of every node by its name."""
        return Replica(
            micro_batches=self.micro_batches,
            stages=tuple(
                Stage(
                    layers=stage.layers,
                    group=Group(node=number[stage.node], gpus=stage.gpus),
                    degrees=stage.degrees,
                    recomputed=stage.recomputed,
                )
                for stage in self.stages
            ),
        )


class StepDocument(Record):
    """Where the time of a step goes, along one longest path; the parts add up to `step_time_s`.

    The path leads through forwards, backwards and the transfers between them to the last backward
    of a stage, then through gradient sync, embedding sync and optimizer to the end of the step.
    Where sends block, transfers are part of the operation that sends, and so of the compute.
    """

    compute_s: float
    transfers_s: float
    gradient_sync_s: float
    embedding_sync_s: float
    optimizer_s: float


class RentingDocument(Record):
    """How the nodes of a plan are rented, and what that comes to with preemptions.

    See `formulations.costs.renting`; only where the objective is money per useful sequence.
    """

    on_spot: tuple[Name, ...]  #: groups; the others are rented on demand
    preemptions_per_hour: float  #: of all nodes used
    availability: float  #: share of the time that goes into steps that are kept
    checkpoint_every_s: Seconds | None  #: of training between two checkpoints; None: there are none
    useful_sequences_per_s: float
    cost_usd_per_useful_sequence: float


class ConfigCounts(Record):
    """Degrees and strategies in the log: all, those still open, and what closed the others.

    `closed_by` counts by `ConfigRecord.proof`, in that order, without those that closed none.
    """

    total: int
    open: int
    closed_by: dict[Proof, int]


class ErrorDocument(Record):
    """How far measured steps may be from the plan's step time."""

    bar: Annotated[float, Field(ge=0)]  #: four of five lie within this share of it
    evidence: tuple[Text, ...]  #: what was measured near its layers, by GPU type; or its steps


class MarginDocument(Record):
    """The share of a GPU's memory that plans leave free, and the measured peaks it rests on."""

    share: Annotated[float, Field(ge=0, le=1)]
    evidence: tuple[Text, ...]


class PlanDocument(Envelope):
    """Everything that `verify` and `show` need; see the module's text."""

    written_by = "a plan file written by solve --out"
    renewed_by = "solve again"
    #: The log of the proof: a record for each of what may be thousands of configurations.
    proof = {"closed_configs": True}  # noqa: RUF012

    schema_version: Literal[14] = 14
    status: Status
    termination: Termination
    method: Name
    requested_gap: float
    seed: int
    minimize: Name
    target: Target  #: of whose plans the status speaks
    step_time_s: Seconds | None
    lower_bound_s: Seconds | None  #: of the step time, in the integer cost model
    gap: float | None
    critical_path: StepDocument | None
    rounding_error_s: Seconds | None  #: the cost model without rounding may be lower by this
    runtime_s: Seconds
    throughput_sequences_per_s: float | None
    #: 3 x forward FLOPs (Narayanan et al. 2021) per step time and GPU, recomputation not counted
    model_flop_per_s_per_gpu: float | None
    #: the same of all GPUs over the sum of their peaks (Chowdhery et al. 2022, appendix B)
    mfu: float | None
    price_usd_per_hour: float | None
    cost_usd_per_step: float | None
    training_cost_usd: float | None
    renting: RentingDocument | None
    evidence: tuple[GpuEvidence, ...]  #: of the GPU types used
    time_sources: tuple[Name, ...]  #: measured, interpolated, scaled, analytic
    expected_error: ErrorDocument | None  #: None where no error is known
    memory_margin: MarginDocument | None
    config: Configuration | None
    node_order: tuple[Name, ...]
    idle_nodes: tuple[Name, ...]
    replicas: tuple[ReplicaDocument, ...]
    second_best: SecondBest | None = None
    history: tuple[Moment, ...]  #: what the search knew when; not part of the proof
    configs: ConfigCounts
    closed_configs: tuple[ConfigRecord, ...]
    instance: Instance

    @property
    def planned(self) -> Configuration:
        """The configuration of its plan, of a document that has one."""
        assert self.config is not None
        return self.config

    @model_validator(mode="after")
    def _check_extent(self) -> "PlanDocument":
        counts = [replica.micro_batches for replica in self.replicas]
        stages = max((len(replica.stages) for replica in self.replicas), default=0)
        if not can_be_simulated(stages, sum(counts), max(counts, default=0)):
            raise ValueError(TOO_LONG)
        return self


def config_counts(log: Sequence[ConfigRecord]) -> ConfigCounts:
    """What a log of configurations adds up to."""
    closed = Counter(record.proof for record in log if record.reason != "open")
    closed_by = {proof: closed[proof] for proof in get_args(Proof) if closed[proof]}
    return ConfigCounts(total=len(log), open=len(log) - closed.total(), closed_by=closed_by)
