"""What of `search` fits the machines, the model, the profile and the launch target.

Memory strategies have defaults that depend on GPUs or profile, and exclude one another. Of the
target, what a user states must be what it can run, and what he does not state is narrowed.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, get_args

from formulations.errors import InstanceError, joined
from formulations.instance.cluster import Cluster, flash_obstacle, flash_remedy, has_flash
from formulations.instance.documents import Place
from formulations.instance.profile import ProfileFile
from formulations.instance.record import shown
from formulations.instance.resolve_workload import WorkloadFile
from formulations.instance.search import PlainSchedule, SearchFile
from formulations.instance.target import (
    RULES,
    TARGET_NAMES,
    Rule,
    Sharing,
    Target,
    launchers,
    least_zero,
    shares,
    trainers,
    untrained,
)
from formulations.instance.workload import (
    FLASH_PRECISIONS,
    ExpertSplit,
    OptimizerState,
    Recompute,
    Workload,
)

_FIRST_EXCHANGING = 2  # ZeRO stage that exchanges gradients with every micro-batch


def resolve_flash(
    written: WorkloadFile, place: Place, cluster: Cluster, profile: ProfileFile | None
) -> bool:
    """Whether attention keeps no scores: as written or measured, else where all GPUs can.

    Where some can it is left to plans, see `leaves_flash_open`.

    Raises InstanceError for a precision or a GPU that cannot, and for a profile measured otherwise.
    """
    chosen = _as_measured(written.flash_attention, place, profile, "flash_attention")
    if chosen is None:
        return has_flash(cluster, written.precision)
    if chosen and (obstacle := flash_obstacle(cluster, written.precision)):
        raise place.error(f"true, {obstacle[0]}", f"false, or {obstacle[1]}")
    return chosen


def leaves_flash_open(written: WorkloadFile, cluster: Cluster, profile: ProfileFile | None) -> bool:
    """Whether plans have flash attention or not as the GPUs do that they use."""
    chosen = written.flash_attention is not None or profile is not None
    able = [group.gpu.has_flash for group in cluster.groups]
    return not chosen and written.precision in FLASH_PRECISIONS and any(able) and not all(able)


def resolve_sequence_parallel(
    written: bool | None,
    place: Place,
    degrees: Sequence[int],
    sequence_length: int,
    profile: ProfileFile | None,
) -> bool:
    """Whether tensor groups split the sequence outside their products: as written or measured.

    Else wherever it is possible: it moves as many bytes as without, and keeps less (Korthikanti et
    al. 2023, section 4.2.2). Raises InstanceError where no degree, or not every one, can, and for a
    profile measured otherwise.
    """
    chosen = _as_measured(written, place, profile, "sequence_parallel")
    several = [tp for tp in degrees if tp > 1]
    uneven = [tp for tp in several if sequence_length % tp]
    if chosen is None:
        return bool(several) and not uneven
    if chosen and written and not several:
        allowed = "false, or degrees above 1 in search.tensor_parallel"
        raise place.error("true, with tensor-parallel degree 1 alone", allowed)
    if chosen and uneven:
        found = f"true, but {uneven[0]} does not divide the {sequence_length} tokens of a sequence"
        raise place.error(found, "false, or tensor-parallel degrees that divide it")
    return chosen and bool(several)


def _as_measured(
    written: bool | None, place: Place, profile: ProfileFile | None, field: str
) -> bool | None:
    """What was written, or of a profile what it states; InstanceError where both differ."""
    if profile is None:
        return written
    measured: bool = getattr(profile, field)
    if written is not None and written != measured:
        found = (
            f"{shown(written)}, but the profile was measured {'with' if measured else 'without'} it"
        )
        allowed = f"{shown(measured)}, or a profile that states {field}: {shown(written)}"
        raise place.error(found, allowed)
    return measured


def resolve_recompute(written: SearchFile, place: Place, flash: bool) -> list[Recompute]:
    """Choices of recomputation; selective is none where flash attention keeps no scores.

    Raises InstanceError where it is the only way left to keep activations.
    """
    if flash and "selective" in written.recompute and "none" not in written.recompute:
        at = place.at("recompute").listed(written.recompute.index("selective"))
        found = "selective, but flash attention keeps nothing that it would recompute"
        raise at.error(found, "none or full, or workload.flash_attention: false")
    return [way for way in written.recompute if not (flash and way == "selective")]


def check_zero(written: SearchFile, place: Place) -> None:
    """Raises InstanceError where ZeRO 2 and 3, which exchange gradients too often, stand alone."""
    if min(written.zero) < _FIRST_EXCHANGING:
        return
    at = place.at("zero").listed(0)
    stages = " and ".join(map(str, sorted(written.zero)))
    if written.pipeline_parallel is not None and 1 not in written.pipeline_parallel:
        several = ", ".join(map(str, written.pipeline_parallel))
        found = f"only {stages}, with {several} pipeline stages"
        raise at.error(
            found,
            "0 or 1 too, or pipeline_parallel: 1: every stage would exchange"
            " gradients with every micro-batch",
        )
    if written.micro_batches == "uneven":
        found = f"only {stages}, with uneven micro-batches"
        raise at.error(
            found,
            "0 or 1 too, or micro_batches: even: replicas exchange gradients"
            " with every micro-batch",
        )


#: Pieces of a sequence per GPU that shares it: one from each end (formulations.costs.context).
PIECES = 2


class Fault(NamedTuple):
    """What is wrong with a degree, and which ones may be."""

    found: str
    allowed: str


def expert_fault(workload: Workload, cluster: Cluster, profiled: bool, ep: int) -> Fault | None:
    """Why `ep` GPUs cannot share the experts of a block."""
    experts, gpus = workload.experts, sum(g.nodes * g.gpus_per_node for g in cluster.groups)
    if ep > 1 and not experts:
        return Fault(f"{ep} GPUs for the experts of a model without any", "1")
    if ep > 1 and profiled:
        return Fault(f"{ep}, of which a profile says nothing", "1, or no profile")
    if ep > gpus:
        return Fault(f"{ep} GPUs, of {gpus} in the cluster", f"1 to {gpus}")
    if experts and experts % ep:
        return Fault(
            f"{ep} does not divide the {experts} experts of a block", f"divisors of {experts}"
        )
    return None


def context_fault(workload: Workload, cluster: Cluster, profiled: bool, cp: int) -> Fault | None:
    """Why `cp` GPUs of a node cannot share a sequence."""
    largest_node, tokens = (
        max(group.gpus_per_node for group in cluster.groups),
        workload.sequence_length,
    )
    if cp == 1:
        return None
    if cp > largest_node:
        found = f"{cp} GPUs per sequence, more than any node has"
        return Fault(found, f"1 to {largest_node}, the GPUs of the largest node")
    if profiled:
        return Fault(f"{cp}, of which a profile says nothing", "1, or no profile")
    if not workload.flash_attention:
        allowed = f"1, or {flash_remedy(cluster, workload.precision)}"
        return Fault(f"{cp} GPUs per sequence without flash attention", allowed)
    if any(run.layer.output_tensors > 1 for run in workload.layer_runs):
        return Fault(f"{cp} GPUs per sequence of an encoder-decoder", "1")
    if tokens % (PIECES * cp):
        found = f"{cp} GPUs take {PIECES} pieces each of a sequence of {tokens} tokens"
        return Fault(found, f"degrees whose double divides {tokens}")
    return None


def resolve_experts(
    written: SearchFile, search: Place, workload: Workload, cluster: Cluster, profiled: bool
) -> Sequence[int]:
    """Sizes of expert-parallel groups: as written, else all powers of two that can be used."""
    experts, gpus = workload.experts, sum(g.nodes * g.gpus_per_node for g in cluster.groups)
    if written.expert_parallel is None:
        largest_group = 1 if not experts or profiled else min(experts, gpus)
        return [1 << i for i in range(largest_group.bit_length()) if experts % (1 << i) == 0]
    for i, ep in enumerate(written.expert_parallel):
        if fault := expert_fault(workload, cluster, profiled, ep):
            raise search.at("expert_parallel").listed(i).error(*fault)
    return written.expert_parallel


def resolve_expert_split(
    written: SearchFile,
    search: Place,
    workload: Workload,
    profiled: bool,
    degrees: Sequence[int],
    split: bool,
) -> Sequence[ExpertSplit]:
    """GPUs that split every expert: as written, else 1 too where it makes a difference.

    degrees: of tensor groups. split: whether these split the sequence.
    """
    alone = max(degrees) == 1
    fault = expert_split_fault(workload, profiled, split or alone)
    if written.expert_tensor_parallel is None:
        return ["tp"] if fault or alone else [1, "tp"]
    if fault and 1 in written.expert_tensor_parallel:
        at = search.at("expert_tensor_parallel")
        raise at.listed(written.expert_tensor_parallel.index(1)).error(*fault)
    alike = Sharing(min(degrees), cp=1, ep=1, sharded=True, sequence_parallel=split)
    field, reason = shares(written.target, workload, alike) or (None, None)
    if field == "expert_tensor_parallel" and 1 not in written.expert_tensor_parallel:
        found = f"tp, with the target {TARGET_NAMES[written.target]}, {reason}"
        at = search.at("expert_tensor_parallel").listed(0)
        raise at.error(found, "1, or tensor_parallel: 1")
    return written.expert_tensor_parallel


def expert_split_fault(workload: Workload, profiled: bool, split: bool) -> Fault | None:
    """Why the GPUs of a tensor group cannot have experts whole."""
    if not workload.experts:
        return Fault("1 GPU per expert of a model without any", "tp")
    if profiled:
        return Fault("1 GPU per expert, of which a profile says nothing", "tp, or no profile")
    if not split:
        found = "1 GPU per expert, where tensor groups do not split the sequence"
        return Fault(found, "tp, or sequence_parallel: true")
    return None


def check_context(
    written: SearchFile, search: Place, workload: Workload, cluster: Cluster, profiled: bool
) -> None:
    """Raises InstanceError for the first degree that cannot be used."""
    for i, cp in enumerate(written.context_parallel):
        fault = context_fault(workload, cluster, profiled, cp)
        if fault := fault or _beside_tensor_groups(written, workload, cluster, cp):
            raise search.at("context_parallel").listed(i).error(*fault)


def _beside_tensor_groups(
    written: SearchFile, workload: Workload, cluster: Cluster, cp: int
) -> Fault | None:
    """Why no tensor degree leaves room for `cp` GPUs per sequence."""
    if cp == 1:
        return None
    degrees = written.tensor_parallel or [1]
    sizes = sorted({group.gpus_per_node for group in cluster.groups})
    named = f"{cp} tensor groups of {_either(degrees)} GPUs per sequence"
    filling = [tp for tp in degrees if any(size % (tp * cp) == 0 for size in sizes)]
    if not filling:
        nodes = _either(sizes)
        return Fault(f"{named}, which fill no node of {nodes}", f"products that divide {nodes}")
    tokens, heads = workload.sequence_length, workload.kv_heads
    pieces = [tp for tp in filling if tokens % (PIECES * cp * tp) == 0]
    if not pieces:
        found = f"{named}, which cannot split {tokens} tokens into {PIECES} pieces each"
        return Fault(found, f"products whose double divides {tokens}")
    if written.context_method == "all_to_all" and all(heads % (tp * cp) for tp in pieces):
        found = f"{named}, which exchange the {heads} key and value heads"
        return Fault(found, f"products that divide {heads}, or context_method: ring")
    return None


def _either(values: Sequence[int]) -> str:
    return " or ".join(map(str, values))


def check_per_stage(written: SearchFile, search: Place, cluster: Cluster) -> None:
    """Raises InstanceError where no stage could have degrees of its own."""
    if written.degrees != "per_stage":
        return
    if cluster.has_zones:
        found = "per_stage, with node groups in several zones"
        raise search.at("degrees").error(found, "uniform or per_group, or one zone")
    if not set(written.schedule) & set(get_args(PlainSchedule)):
        found = f"per_stage, with the schedule {' or '.join(written.schedule)}"
        raise search.at("degrees").error(found, "uniform or per_group, or 1f1b or gpipe too")
    for field in ("context_parallel", "expert_parallel"):
        sizes: tuple[int, ...] | None = getattr(written, field)
        if sizes is not None and 1 not in sizes:
            found = f"{sizes[0]}, with degrees: per_stage"
            raise search.at(field).listed(0).error(found, "1 too, or degrees: per_group")
    if written.expert_tensor_parallel == (1,):
        at = search.at("expert_tensor_parallel").listed(0)
        raise at.error("1, with degrees: per_stage", "tp too, or degrees: per_group")


#: In place of a rule for `zero`, see `least_zero`.
_DISTRIBUTED = Rule((1,), "whose optimizer with states in bf16 is distributed")


def narrowed(written: SearchFile, state: OptimizerState) -> SearchFile:
    """The choices with those defaults alone that the target can run; what is stated stays."""
    found = {
        field: rule.kept(getattr(written, field))
        for field, rule in _rules(written, state)
        if field not in written.model_fields_set
    }
    return written.model_copy(update=found)


def check_target(written: SearchFile, state: OptimizerState, place: Place) -> None:
    """Raises InstanceError for all stated values that the target cannot run."""
    errors = [
        error
        for field, rule in _rules(written, state)
        if field in written.model_fields_set
        for error in _refused(written, field, rule, place.at(field))
    ]
    if errors:
        raise joined(errors)


def check_trained(target: Target, workload: Workload, place: Place) -> None:
    """Raises InstanceError for all of a workload that the target cannot train."""
    errors = []
    for field, value, rule in untrained(target, workload):
        words = " or ".join(map(str, rule.allowed))
        others = " or ".join(trainers(field, value))
        written = field in WorkloadFile.model_fields
        at, found = (place.at(field), value) if written else (place, f"{field}: {value}")
        text = f"{found}, with the target {TARGET_NAMES[target]}, {rule.reason}"
        errors.append(at.error(text, f"{words}, or search.target: {others}"))
    if errors:
        raise joined(errors)


def _rules(written: SearchFile, state: OptimizerState) -> Iterator[tuple[str, Rule]]:
    """The fields of `search` that the target has rules for.

    FlagScale recomputes as Megatron-LM does where all stages are alike.
    """
    target, alike = written.target, written.recompute_per == "plan"
    for field, rule in RULES[target].items():
        free = target == "flagscale" and field == "recompute" and alike
        if field in SearchFile.model_fields and not free:
            odd = field == "zero" and least_zero(target, state)
            yield field, _DISTRIBUTED if odd else rule


def _refused(written: SearchFile, field: str, rule: Rule, place: Place) -> Iterator[InstanceError]:
    value, target = getattr(written, field), written.target
    for i, choice in enumerate(value if isinstance(value, tuple) else [value]):
        if choice not in rule.allowed:
            name = TARGET_NAMES[target]
            found = f"{_text(choice)}, with the target {name}, {rule.reason}"
            allowed = " or ".join(map(_text, rule.allowed))
            able = launchers(field, choice)
            if rule is _DISTRIBUTED:
                able = [launcher for launcher in able if not least_zero(launcher, "bf16")]
            others = " or ".join(able)
            yield place.listed(i).error(found, f"{allowed}, or search.target: {others}")


def _text(value: object) -> str:
    return value if isinstance(value, str) else shown(value)
