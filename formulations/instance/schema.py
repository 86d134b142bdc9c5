"""What a user may write in an instance file. `formulations.instance.resolve` fills in the rest.

Texts with units are plain numbers in base units here (B, B/s, s, FLOP/s, USD/h, /h, USD).
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Discriminator, Field, Tag

from formulations.instance.calibration import Factor, MeanError
from formulations.instance.input_limits import MOST_CHOICES, Batch, Count, Name, Text
from formulations.instance.instance import (
    ContextMethod,
    DegreesPer,
    Minimize,
    ScheduleName,
    ZeroStage,
)
from formulations.instance.record import (
    LIST,
    MAPPING,
    NAME,
    NUMBER,
    Named,
    OneOrMany,
    Quantity,
    Record,
    Share,
    name_or_mapping,
    number_or_list,
    refusal,
    shown,
)
from formulations.instance.schema_cluster import ClusterFile, PreemptionFile
from formulations.instance.schema_lengths import LengthsFile
from formulations.instance.sizes import TransformerSizes
from formulations.instance.sources import NOT_STATED, Kind
from formulations.instance.target import Target
from formulations.instance.workload import ExpertSplit, OptimizerState, Precision, Recompute

Key = TypeVar("Key")
Entry = TypeVar("Entry")
Table = Annotated[dict[Key, Entry], Field(min_length=1)]
Counts = Annotated[list[Count], Field(max_length=MOST_CHOICES), OneOrMany()]
Reserve = Annotated[float, Quantity("size", most="10 TiB", example="1 GiB")]
LongestTime = Annotated[float, Quantity("time", least="1 ns", most="100000 h", example="2 s")]
HighestCost = Annotated[
    float, Quantity("money", least="1e-12 USD", most="1000000000 USD", example="0.01 USD")
]
HighestPrice = Annotated[
    float, Quantity("price", least="1e-6 USD/h", most="1000000000 USD/h", example="100 USD/h")
]
Headroom = Annotated[float, Share()]
#: PyTorch's names, torch.distributed.fsdp.ShardingStrategy.
_FSDP = {"NO_SHARD": 0, "SHARD_GRAD_OP": 2, "FULL_SHARD": 3}
Zero = Annotated[ZeroStage, Named(_FSDP)]


def _no_truth(value: object) -> object:
    if isinstance(value, bool):  # which is a number elsewhere
        raise refusal(shown(value), "1 or tp")
    return value


Split = Annotated[ExpertSplit, BeforeValidator(_no_truth)]
Chunks = Annotated[int, Field(ge=2, le=64)]


class WorkloadFile(Record):
    """The model to train: exactly one of catalogue, huggingface, sizes; and how it is trained."""

    catalogue: Name | None = Field(default=None, description="Name in the workload catalogue.")
    huggingface: Name | None = Field(
        default=None,
        description="Path of a Hugging Face config.json, relative to this file's folder.",
    )
    sizes: TransformerSizes | None = Field(default=None, description="Sizes of a transformer.")
    name: Name | None = Field(default=None, description="Name in reports.")
    source: Text | None = Field(default=None, description="Where the sizes come from.")
    sequence_length: Batch | None = Field(
        default=None, description="Tokens per sequence; default: the catalogue's."
    )
    global_batch: Batch | None = Field(
        default=None, description="Sequences per step; default: the catalogue's."
    )
    precision: Precision = Field(
        default="bf16",
        description="Of products, parameters and activations. fp8: products of blocks alone, all"
        " else is kept in 16 bit.",
    )
    gradient_precision: Literal["fp32", "fp16", "bf16"] = Field(
        default="fp32", description="Of gradients, in memory and on the wire."
    )
    optimizer_state: OptimizerState = Field(
        default="fp32",
        description="Of Adam's moments; the master copy of the parameters stays in fp32. 8bit:"
        " with a scale per block of 2048 (Dettmers et al. 2022).",
    )
    flash_attention: bool | None = Field(
        default=None,
        description="Are attention scores recomputed instead of stored? Default: what the profile"
        " says, else in fp16, bf16 and fp8 in plans whose GPUs are all Ampere or later.",
    )


PeakMemory = Annotated[float, Quantity("size", most="10 TiB", example="1.5 GiB")]
Milliseconds = Annotated[float, Field(ge=1e-6, le=1e7)]  # a nanosecond at least
Times = Annotated[
    Annotated[Milliseconds, Tag(NUMBER)]
    | Annotated[list[Milliseconds], Field(min_length=2, max_length=3), Tag(LIST)],
    Discriminator(number_or_list),
]


class ProfileFile(Record):
    """Measured layer times. They replace the analytic model, all of it by default."""

    source: Text = Field(description="Where the measurements come from.")
    precision: Precision | None = Field(
        default=None, description="What they were measured in; of another one they say nothing."
    )
    hidden_size: Count | None = Field(
        default=None, description="Width of the model that they are of; of others they say nothing."
    )
    sequence_length: Batch | None = Field(
        default=None, description="Tokens per sequence; of other lengths they say nothing."
    )
    includes_tensor_parallel_traffic: bool = Field(
        description="Do the times contain the all-reduces among the tp GPUs?"
    )
    sequence_parallel: bool = Field(
        default=False, description="Was it measured with sequence parallelism?"
    )
    flash_attention: bool = Field(
        default=False, description="Was it measured with flash attention?"
    )
    backward_over_forward: float | None = Field(
        default=None,
        ge=1e-6,
        le=100,
        description="Backward time as a multiple of the forward time, where only the latter was"
        " measured.",
    )
    missing_times: Literal["refuse", "analytic"] = Field(
        default="refuse",
        description="What if there is no time of a layer kind on a GPU at a degree to choose from?"
        " analytic: the analytic model's, which was not measured.",
    )
    hardware: Text | None = Field(default=None, description="What they were measured on.")
    versions: Text | None = Field(default=None, description="Of the software they are of.")
    peak_memory: dict[Name, dict[Name, dict[Count, dict[Count, PeakMemory]]]] | None = Field(
        default=None,
        description="Layer kind -> GPU name -> tp -> micro-batch size -> peak memory of one layer,"
        " such as 1.5 GiB. For people: plans take their memory from the memory model.",
    )
    times_ms: dict[Name, dict[Name, dict[Count, dict[Count, Times]]]] = Field(
        min_length=1,
        description="Layer kind -> GPU name -> tp -> micro-batch size -> forward milliseconds, or"
        " [forward, backward], or [forward, backward, of that for weight gradients].",
    )


Profile = Annotated[
    Annotated[Name, Tag(NAME)] | Annotated[ProfileFile, Tag(MAPPING)],
    Discriminator(name_or_mapping),
]


class CalibrationFile(Record):
    """Corrections of layer times by measured steps; `hetplan calibrate` writes them."""

    source: Text = Field(description="The measured steps.")
    expected_error: MeanError | None = Field(
        default=None,
        description="Mean error of measured steps, each predicted by the others, with a factor for"
        " their GPU, degree and micro-batch size among them.",
    )
    expected_error_elsewhere: MeanError | None = Field(
        default=None, description="The same without one."
    )
    memory_headroom: Headroom | None = Field(
        default=None,
        description="Share of the memory to leave free at least: measured peaks were above the"
        " memory model's by as much.",
    )
    factors: Table[Name, Table[Name, Table[Count, Table[Count, Factor]]]] = Field(
        description="Layer kind -> GPU name -> tp -> micro-batch size -> what the layer's times are"
        " multiplied by, tensor-parallel traffic included. Where there is none: the mean of a kind"
        " on a GPU.",
    )


class OverlapFile(Record):
    """Which share of traffic hides behind computation."""

    tensor_parallel: Headroom | None = Field(
        default=None, description="Of tensor-parallel traffic behind products. Default: 0."
    )
    gradient_sync: Headroom | None = Field(
        default=None,
        description="Of the gradient sync behind backward passes, where a replica is one stage;"
        " with several, the last chunk of a GPU is never hidden. Default: 0.",
    )
    sharding: Headroom | None = Field(
        default=None,
        description="Of what ZeRO 2 and 3 reduce and gather with every micro-batch, behind the pass"
        " it belongs to, as far as that lasts. Default: 0.",
    )
    kind: Kind = Field(default="assumed", description="How the shares were found.")
    source: Text = Field(default=NOT_STATED, description="Where the shares come from.")


Framework = Annotated[
    Annotated[Name, Tag(NAME)] | Annotated[OverlapFile, Tag(MAPPING)],
    Discriminator(name_or_mapping),
]


class SearchFile(Record):
    """The plans to choose among. Each list may also be written as one bare value."""

    target: Target = Field(
        default="megatron",
        description="Who is to run the plan: what it cannot run is not chosen. megatron:"
        " Megatron-LM, all ranks alike but for their layers. flagscale: degrees and recomputation"
        " per stage. torchtitan: any schedule, ZeRO 2 and 3. any: all of it, uneven micro-batches.",
    )
    tensor_parallel: Counts | None = Field(
        default=None,
        description="GPUs per tensor-parallel group. Default: every power of two that fits a node,"
        " divides the key and value heads and is in the profile.",
    )
    degrees: DegreesPer = Field(
        default="uniform",
        description="uniform: one tensor-parallel degree for all GPUs. per_group: every node group"
        " has its own, and may run the sequences of each micro-batch of a stage in equal parts on"
        " several tensor groups of a node. per_stage: so may every stage, alike on all replicas;"
        " unlike stages may share a node.",
    )
    data_parallel: Counts | None = Field(default=None, description="Replicas. Default: any.")
    pipeline_parallel: Counts | None = Field(default=None, description="Stages. Default: any.")
    context_parallel: Counts = Field(
        default=[1],
        description="GPUs of a node that share every sequence, beside tensor_parallel. Twice as"
        " many divide the tokens of a sequence; needs flash attention.",
    )
    context_method: ContextMethod | None = Field(
        default=None,
        description="Do keys and values go round a ring of these GPUs, or are heads exchanged?"
        " Default: what sends less; all_to_all where tp cp divides the key and value heads.",
    )
    expert_parallel: Counts | None = Field(
        default=None,
        description="GPUs that share the experts of a block, of all replicas of a stage. Default:"
        " every power of two that divides the experts; 1 without experts, and with a profile.",
    )
    expert_tensor_parallel: Annotated[list[Split], OneOrMany()] | None = Field(
        default=None,
        description="GPUs that split every expert (Megatron's name; etp). tp: all of a tensor"
        " group, as all else. 1: each has whole experts for its own part of the sequence, so the"
        " GPUs of tensor groups share experts too: needs sequence_parallel. Default: both; tp"
        " without experts, and with a profile.",
    )
    micro_batch: Counts | None = Field(
        default=None,
        description="Sequences per micro-batch. Default: every power of two up to 64 that divides"
        " the global batch.",
    )
    recompute: Annotated[list[Recompute], OneOrMany()] = Field(
        default=["none", "selective", "full"],
        description="Recomputation of activations in the backward pass. selective: of scores,"
        " softmax and dropout of attention; none of it with flash attention, which keeps none."
        " Default: all that the target runs.",
    )
    recompute_per: Literal["stage", "plan"] = Field(
        default="stage",
        description="Does every stage recompute as little as fits, of its first blocks, or all"
        " stages alike? With interleaved every GPU all blocks of its chunks in one way; with ZeRO 2"
        " and 3 always all alike. Default: the former where the target can.",
    )
    sequence_parallel: bool | None = Field(
        default=None,
        description="Do the GPUs of a tensor-parallel group split the sequence between their"
        " products? Default: what the profile says, else where tensor_parallel is above 1.",
    )
    zero: Annotated[list[Zero], OneOrMany()] = Field(
        default=[0, 1, 2, 3],
        description="What replicas split (ZeRO): 1 the optimizer state, 2 gradients too, 3"
        " parameters too. 2 and 3 exchange gradients with every micro-batch: only with one pipeline"
        " stage (DeepSpeed refuses others) and even micro-batches. FSDP's names: NO_SHARD is 0,"
        " SHARD_GRAD_OP 2, FULL_SHARD 3. Default: all that the target runs.",
    )
    schedule: Annotated[list[ScheduleName], OneOrMany()] = Field(
        default=["1f1b"],
        description="Pipeline schedules. interleaved: 1F1B with several chunks of layers per GPU, a"
        " shorter bubble for more memory and transfers. zb-h1: zero bubble, 1F1B that puts weight"
        " gradients off, a shorter bubble for more memory on the later stages.",
    )
    virtual_pipeline: Annotated[list[Chunks], OneOrMany()] = Field(
        default=[2], description="Chunks of layers per GPU; only with interleaved."
    )
    micro_batches: Literal["even", "uneven"] = Field(
        default="even", description="Do all replicas run equally many micro-batches?"
    )
    idle_nodes: bool = Field(default=True, description="May a plan leave nodes unused?")
    embedding_only_stages: bool = Field(default=False, description="May a stage hold no block?")
    blocking_sends: bool = Field(default=False, description="Does a send keep the sender busy?")
    scatter_gather: bool = Field(
        default=False, description="Does each of the tp GPUs send 1/tp of the activations?"
    )
    overlap: Framework | None = Field(
        default=None,
        description="Traffic that hides behind computation: a framework of the catalogue (megatron,"
        " torchtitan), or shares. Default: none. Reports state it as an assumption.",
    )


class LimitsFile(Record):
    """What a plan must respect."""

    memory_headroom: Headroom | None = Field(
        default=None,
        description="Share of the memory to leave free, 0.05 or 5 %. Default: 2.5 %, the error of"
        " the memory model on measured peaks.",
    )
    framework_reserve: Reserve | None = Field(
        default=None, description="Memory for context, NCCL, fragmentation. Default: 1 GiB."
    )
    max_step_time: LongestTime | None = Field(
        default=None, description="Longest step, such as 2 s."
    )
    max_cost_per_step: HighestCost | None = Field(
        default=None, description="Highest price of one step, such as 0.01 USD."
    )
    max_price_per_hour: HighestPrice | None = Field(
        default=None, description="Highest price of all nodes used, such as 100 USD/h."
    )


class ObjectiveFile(Record):
    """What is minimised."""

    minimize: Minimize = Field(
        default="step_time",
        description="training_cost is the price of `steps` steps; cost_per_useful_sequence chooses"
        " between on demand and spot too, and counts what preemptions cost.",
    )
    steps: int | None = Field(
        default=None, ge=1, le=10**12, description="Steps of the training, for training_cost."
    )


class InstanceFile(Record):
    """One planning problem."""

    name: Name = Field(description="Name of the instance.")
    source: Text = Field(default="not stated", description="Where its figures come from.")
    workload: WorkloadFile = Field(description="The model and its training settings.")
    cluster: ClusterFile = Field(description="The machines.")
    profile: Profile | None = Field(
        default=None,
        description="Measured layer times, or the path of a file with them, relative to this"
        " file's folder. Default: the analytic model.",
    )
    calibration: CalibrationFile | None = Field(
        default=None, description="Corrections of layer times by measured steps."
    )
    search: SearchFile = Field(default=SearchFile(), description="The plans to choose among.")
    limits: LimitsFile = Field(default=LimitsFile(), description="What a plan must respect.")
    objective: ObjectiveFile = Field(default=ObjectiveFile(), description="What is minimised.")
    preemption: PreemptionFile | None = Field(
        default=None, description="What preemptions cost, for cost_per_useful_sequence."
    )
    lengths: LengthsFile | None = Field(
        default=None,
        description="Sequences of many lengths in a step. Default: all are as long as the workload"
        " says.",
    )


def instance_json_schema() -> dict[str, Any]:
    """JSON schema of instance files, for editors."""
    schema = InstanceFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
