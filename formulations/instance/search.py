"""The section `search`: the plans to choose among, and which share of traffic hides.

That share is an assumption, with its source. Visible time is (1 - share) times the whole, so bounds
that are linear in it carry over; what ZeRO 2 and 3 exchange with every micro-batch is a constant of
each layer, and hides no longer than the pass lasts. What is hidden still occupies its link.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from formulations.instance.documents import resource
from formulations.instance.machines import NOT_STATED, Kind
from formulations.instance.record import (
    MOST_CHOICES,
    MOST_GPUS,
    Count,
    Fraction,
    Index,
    NameOr,
    OneOrMany,
    Section,
    Text,
    refusal,
    shown,
    without_nulls,
)
from formulations.instance.targets import Target
from formulations.instance.workload import ExpertSplit, Recompute

ZeroStage = Literal[0, 1, 2, 3]
#: Least time, and most memory, first.
RECOMPUTE_WAYS: tuple[Recompute, ...] = ("none", "selective", "per_op", "full")
ScheduleName = Literal["1f1b", "gpipe", "interleaved", "zb-h1"]
#: Chunks per device, and micro-batches in a group of `interleaved`; None: as many as devices.
Chunking = tuple[int, int | None]
#: What has a tensor-parallel degree, and parts of a micro-batch, of its own.
DegreesPer = Literal["uniform", "per_group", "per_stage"]
#: Schedules that templates and fleets know.
PlainSchedule = Literal["1f1b", "gpipe"]
#: How attention sees all tokens of a sequence that GPUs share, see `formulations.costs.context`.
ContextMethod = Literal["ring", "all_to_all"]

Counts = Annotated[tuple[Count, ...], Field(max_length=MOST_CHOICES), OneOrMany()]
#: PyTorch's names, torch.distributed.fsdp.ShardingStrategy.
_FSDP = {"NO_SHARD": 0, "SHARD_GRAD_OP": 2, "FULL_SHARD": 3}


def _zero_stage(value: object) -> object:
    if isinstance(value, str | bool) and value not in _FSDP:
        raise refusal(shown(value), f"a number, or one of {', '.join(_FSDP)}")
    return _FSDP[value] if isinstance(value, str) else value


Zero = Annotated[
    ZeroStage,
    BeforeValidator(_zero_stage, json_schema_input_type=ZeroStage | Literal[tuple(_FSDP)]),
]


def _no_truth(value: object) -> object:
    if isinstance(value, bool):  # which is a number elsewhere
        raise refusal(shown(value), "1 or tp")
    return value


Split = Annotated[ExpertSplit, BeforeValidator(_no_truth)]
Chunks = Annotated[int, Field(ge=2, le=64)]


def _group_size(value: object) -> object:
    if value != "pp" and not (isinstance(value, int) and 1 < value <= MOST_GPUS):
        raise refusal(shown(value), f"pp, or a whole number from 2 to {MOST_GPUS}")
    return value


GroupSize = Annotated[int | Literal["pp"], BeforeValidator(_group_size)]
Splits = Annotated[tuple[Split, ...], OneOrMany()]
Zeros = Annotated[tuple[Zero, ...], OneOrMany()]
Recomputes = Annotated[tuple[Recompute, ...], OneOrMany()]


class Overlap(Section):
    """Which share of traffic hides behind computation."""

    tensor_parallel: Fraction = 0.0
    """Of tensor-parallel traffic behind products."""
    expert_parallel: Fraction = 0.0
    """Of what GPUs that share experts exchange, behind the computation of other tokens."""
    gradient_sync: Fraction = 0.0
    """Of the gradient sync behind backward passes, where a replica is one stage; with several, the
    last chunk of a GPU is never hidden."""
    sharding: Fraction = 0.0
    """Of what ZeRO 2 and 3 reduce and gather with every micro-batch, behind the pass it belongs to,
    as far as that lasts."""
    kind: Kind = "assumed"
    """How the shares were found."""
    source: Text = NOT_STATED
    """Where the shares come from."""

    _written = model_validator(mode="before")(without_nulls)

    def hidden_sync(self, pp: int, chunks: int) -> float:
        """Share of the gradient sync that a configuration hides.

        Gradients are sent layer by layer where a replica is one stage, and else chunk by chunk, of
        which the last is seen (NeMo user guide, "Communication Overlap").
        """
        return self.gradient_sync if pp == 1 else min(self.gradient_sync, (chunks - 1) / chunks)


@cache
def overlap_catalogue() -> Mapping[str, Overlap]:
    """Which share of traffic hides, by framework: `catalogue/overlap.yaml`."""
    entries: Any = resource("overlap.yaml").value
    return {name: Overlap.model_validate(entry) for name, entry in entries["overlap"].items()}


class SearchFile(Section):
    """The plans to choose among, as written: a list may also be one bare value.

    What is not stated depends on the target, the machines, the model and the profile.
    """

    target: Target = "megatron"
    """Who is to run the plan: what it cannot run is not chosen. megatron: Megatron-LM, all ranks
    alike but for their layers. flagscale: degrees and recomputation per stage. torchtitan: any
    schedule, ZeRO 2 and 3. any: all of it, uneven micro-batches."""
    tensor_parallel: Counts | None = None
    """GPUs per tensor-parallel group. Default: every power of two that fits a node, divides the key
    and value heads and is in the profile."""
    degrees: DegreesPer = "uniform"
    """uniform: one tensor-parallel degree for all GPUs. per_group: every node group has its own,
    and may run the sequences of each micro-batch of a stage in equal parts on several tensor groups
    of a node. per_stage: so may every stage, alike on all replicas; unlike stages may share a
    node."""
    data_parallel: Counts | None = None
    """Replicas. Default: any."""
    pipeline_parallel: Counts | None = None
    """Stages. Default: any."""
    context_parallel: Counts = (1,)
    """GPUs of a node that share every sequence, beside tensor_parallel. Twice as many divide the
    tokens of a sequence; needs flash attention."""
    context_method: ContextMethod | None = None
    """Do keys and values go round a ring of these GPUs, or are heads exchanged? Default: what sends
    less; all_to_all where tp cp divides the key and value heads."""
    expert_parallel: Counts | None = None
    """GPUs that share the experts of a block, of all replicas of a stage. Default: every power of
    two that divides the experts; 1 without experts, and with a profile."""
    expert_tensor_parallel: Splits | None = None
    """GPUs that split every expert (Megatron's name; etp). tp: all of a tensor group, as all else.
    1: each has whole experts for its own part of the sequence, so the GPUs of tensor groups share
    experts too: needs sequence_parallel. Default: both; tp without experts, and with a profile."""
    micro_batch: Counts | None = None
    """Sequences per micro-batch. Default: every power of two up to 64 that divides the global
    batch."""
    recompute: Recomputes = ("none", "selective", "full")
    """Recomputation of activations in the backward pass. selective: of scores, softmax and dropout
    of attention; none of it with flash attention, which keeps none. per_op: of all but attention
    and every second product (torchtitan), in dense blocks with flash attention. Default: all but
    per_op that the target runs."""
    recompute_per: Literal["stage", "plan"] = "stage"
    """Does every stage recompute as little as fits, of its first blocks, or all stages alike? With
    interleaved every GPU all blocks of its chunks in one way; with ZeRO 2 and 3 always all alike.
    Default: the former where the target can."""
    sequence_parallel: bool | None = None
    """Do the GPUs of a tensor-parallel group split the sequence between their products? Default:
    what the profile says, else in every group that divides its tokens."""
    zero: Zeros = (0, 1, 2, 3)
    """What replicas split (ZeRO): 1 the optimizer state, 2 gradients too, 3 parameters too. 2 and 3
    exchange gradients with every micro-batch: only with one pipeline stage (DeepSpeed refuses
    others) and even micro-batches. FSDP's names: NO_SHARD is 0, SHARD_GRAD_OP 2, FULL_SHARD 3.
    Default: all that the target runs."""
    sync_each_batch: Annotated[tuple[bool, ...], OneOrMany()] = Field((True,), exclude_if=all)
    """Are gradients reduced with every micro-batch, or kept whole until the last one? That is for
    ZeRO 3: 2 always reduces, and would be 1 if it did not. The name is Accelerate's; in PyTorch it
    is `set_requires_gradient_sync`."""
    optimizer_instances: Counts = (1,)
    """Groups of equally many replicas, in each of which ZeRO splits states anew: HSDP, Megatron's
    `num_distributed_optimizer_instances`. Groups fill nodes, or nodes hold whole groups; needs
    equal nodes in one zone, and no shared experts."""
    schedule: Annotated[tuple[ScheduleName, ...], OneOrMany()] = ("1f1b",)
    """Pipeline schedules. interleaved: 1F1B with several chunks of layers per GPU, a shorter bubble
    for more memory and transfers. zb-h1: zero bubble, 1F1B that puts weight gradients off, a
    shorter bubble for more memory on the later stages."""
    virtual_pipeline: Annotated[tuple[Chunks, ...], OneOrMany()] = (2,)
    """Chunks of layers per GPU; only with interleaved."""
    microbatch_group: Annotated[tuple[GroupSize, ...], OneOrMany()] = ("pp",)
    """Micro-batches that go through a chunk before the next has its turn; only with interleaved
    (Megatron-LM's --microbatch-group-size-per-virtual-pipeline-stage). pp: as many as stages; or
    from these to those of a replica, of which the last group has as many as stages at least."""
    micro_batches: Literal["even", "uneven"] = "even"
    """Do all replicas run equally many micro-batches?"""
    idle_nodes: bool = True
    """May a plan leave nodes unused?"""
    embedding_only_stages: bool = False
    """May a stage hold no block?"""
    blocking_sends: bool = False
    """Does a send keep the sender busy?"""
    scatter_gather: bool = False
    """Does each of the tp GPUs send 1/tp of the activations?"""
    overlap: NameOr[Overlap] | None = None
    """Traffic that hides behind computation: a framework of the catalogue (megatron, torchtitan),
    or shares. Default: none. Reports state it as an assumption."""


class SearchSpace(SearchFile):
    """Which plans may be chosen, all decided. None means every value that fits the cluster."""

    target: Target = "any"
    expert_parallel: Counts = (1,)
    expert_tensor_parallel: Splits = ("tp",)
    recompute: Recomputes = ("none", "full")
    sequence_parallel: bool = False
    #: Tensor-parallel degrees that do not divide so many tokens leave sequences whole all the same.
    split_tokens: Index = 0
    zero: Zeros = (0, 1)
    overlap: Overlap = Overlap()


def plain_schedules(search: SearchSpace) -> list[PlainSchedule]:
    """Those to choose among that templates, fleets and stages of unlike degrees know."""
    return [name for name in search.schedule if name == "1f1b" or name == "gpipe"]
