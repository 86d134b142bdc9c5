"""What of `search` fits the machines, the model, the profile and the launch target.

Memory strategies have defaults that depend on GPUs or profile, and exclude one another. Of the
target, what a user states must be what it can run, and what he does not state is narrowed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, get_args

from formulations.errors import InstanceError, joined
from formulations.instance.cluster import Cluster, flash_obstacle, flash_remedy, has_flash
from formulations.instance.documents import Place
from formulations.instance.profile import Profile, WrittenProfile, covered_degrees
from formulations.instance.record import shown
from formulations.instance.resolve_workload import WorkloadFile
from formulations.instance.search import PlainSchedule, SearchFile
from formulations.instance.targets import TARGETS, Target, launchers, trainers
from formulations.instance.targets.launcher import Demands, Rule
from formulations.instance.transformer import Architecture
from formulations.instance.workload import (
    FLASH_PRECISIONS,
    ExpertSplit,
    OptimizerState,
    Recompute,
    Workload,
)

_FIRST_EXCHANGING = 2  # ZeRO stage that exchanges gradients with every micro-batch
#: Pieces of a sequence per GPU that shares it: one from each end (formulations.costs.context).
PIECES = 2


class Fault(NamedTuple):
    """What is wrong with a value, and which ones may be."""

    found: str
    allowed: str


@dataclass(frozen=True)
class Given:
    """The section `search`, where it stands, and what its choices rest on."""

    search: SearchFile
    place: Place
    architecture: Architecture
    workload: Workload
    fused: Workload | None  #: see `Instance.fused`
    cluster: Cluster
    profile: WrittenProfile | None

    @property
    def largest_node(self) -> int:
        """GPUs of the largest node."""
        return max(group.gpus_per_node for group in self.cluster.groups)

    @property
    def node_sizes(self) -> list[int]:
        """Numbers of GPUs in a node, ascending."""
        return sorted({group.gpus_per_node for group in self.cluster.groups})

    def error(self, field: str, entry: int, found: str, allowed: str) -> InstanceError:
        """The error to raise for an entry of a field, or for its one bare value."""
        return self.place.at(field).listed(entry).error(found, allowed)

    def check(self, field: str, fault_of: Callable[[int], Fault | None]) -> None:
        """Raises InstanceError for the first entry of a field that has a fault."""
        for i, entry in enumerate(getattr(self.search, field) or ()):
            if fault := fault_of(entry):
                raise self.error(field, i, *fault)


def resolve_flash(
    written: WorkloadFile, place: Place, cluster: Cluster, profile: WrittenProfile | None
) -> bool:
    """Whether attention keeps no scores: as written or measured, else where all GPUs can.

    Where some can it is left to plans, see `leaves_flash_open`.

    Raises InstanceError for a precision or a GPU that cannot, and for a profile measured otherwise.
    """
    place = place.at("flash_attention")
    chosen = _as_measured(written.flash_attention, place, profile, "flash_attention")
    if chosen is None:
        return has_flash(cluster, written.precision)
    if chosen and (obstacle := flash_obstacle(cluster, written.precision)):
        raise place.error(f"true, {obstacle[0]}", f"false, or {obstacle[1]}")
    return chosen


def leaves_flash_open(
    written: WorkloadFile, cluster: Cluster, profile: WrittenProfile | None
) -> bool:
    """Whether plans have flash attention or not as the GPUs do that they use."""
    chosen = written.flash_attention is not None or profile is not None
    able = [group.gpu.has_flash for group in cluster.groups]
    return not chosen and written.precision in FLASH_PRECISIONS and any(able) and not all(able)


def _as_measured(
    written: bool | None, place: Place, profile: WrittenProfile | None, field: str
) -> bool | None:
    """What was written, or of a profile what it states; InstanceError where both differ."""
    if profile is None:
        return written
    measured: bool = getattr(profile.file, field)
    if written is not None and written != measured:
        way = "with" if measured else "without"
        raise place.error(
            f"{shown(written)}, but the profile was measured {way} it",
            f"{shown(measured)}, or a profile that states {field}: {shown(written)}",
        )
    return measured


def resolve_tensor_degrees(
    given: Given, profile: Profile | None, kinds: list[str]
) -> Sequence[int]:
    """The degrees to choose from: as written, else all powers of two that can be used."""
    heads, largest_node = given.architecture.num_kv_heads, given.largest_node
    if given.search.tensor_parallel is None:
        degrees = [1 << i for i in range(largest_node.bit_length()) if heads % (1 << i) == 0]
        return (profile and covered_degrees(profile, kinds, given.cluster, degrees)) or degrees

    def fault(tp: int) -> Fault | None:
        if tp > largest_node:
            problem = f"{tp} GPUs per tensor-parallel group, larger than every node"
            return Fault(problem, f"1 to {largest_node}, the GPUs of the largest node")
        if heads % tp:
            kind = "attention" if heads == given.architecture.heads else "key and value"
            problem = f"{tp} does not divide the {heads} {kind} heads"
            return Fault(problem, f"divisors of {heads} up to {largest_node}")
        if all(size % tp for size in given.node_sizes):
            nodes = _either(given.node_sizes)
            problem = f"{tp} GPUs per tensor-parallel group, which fill no node of {nodes}"
            return Fault(problem, f"divisors of {nodes}")
        return None

    given.check("tensor_parallel", fault)
    return given.search.tensor_parallel


def resolve_sequence_parallel(given: Given, degrees: Sequence[int]) -> bool:
    """Whether tensor groups split the sequence outside their products: as written or measured.

    Else wherever it is possible, degree by degree (`SearchSpace.unsplit_degrees`): it moves as many
    bytes as without, and keeps less (Korthikanti et al. 2023, section 4.2.2). Raises InstanceError
    where it is asked for and no degree, or not every one, can, and for a profile measured
    otherwise.
    """
    written, place = given.search.sequence_parallel, given.place.at("sequence_parallel")
    tokens = given.workload.sequence_length
    chosen = _as_measured(written, place, given.profile, "sequence_parallel")
    several = [tp for tp in degrees if tp > 1]
    uneven = [tp for tp in several if tokens % tp]
    if chosen is None:
        return len(uneven) < len(several)
    if chosen and written and not several:
        allowed = "false, or degrees above 1 in search.tensor_parallel"
        raise place.error("true, with tensor-parallel degree 1 alone", allowed)
    if chosen and uneven:
        problem = f"true, but {uneven[0]} does not divide the {tokens} tokens of a sequence"
        raise place.error(problem, "false, or tensor-parallel degrees that divide it")
    return chosen and bool(several)


def resolve_recompute(search: SearchFile, place: Place, flash: bool) -> list[Recompute]:
    """Choices of recomputation; selective is none where flash attention keeps no scores.

    Raises InstanceError where it is the only way left to keep activations.
    """
    if flash and "selective" in search.recompute and "none" not in search.recompute:
        at = place.at("recompute").listed(search.recompute.index("selective"))
        problem = "selective, but flash attention keeps nothing that it would recompute"
        raise at.error(problem, "none or full, or workload.flash_attention: false")
    return [way for way in search.recompute if not (flash and way == "selective")]


def check_zero(search: SearchFile, place: Place) -> None:
    """Raises InstanceError where ZeRO 2 and 3, which exchange gradients too often, stand alone."""
    if min(search.zero) < _FIRST_EXCHANGING:
        return
    at = place.at("zero").listed(0)
    stages = " and ".join(map(str, sorted(search.zero)))
    if search.pipeline_parallel is not None and 1 not in search.pipeline_parallel:
        several = ", ".join(map(str, search.pipeline_parallel))
        raise at.error(
            f"only {stages}, with {several} pipeline stages",
            "0 or 1 too, or pipeline_parallel: 1: every stage would exchange"
            " gradients with every micro-batch",
        )
    if search.micro_batches == "uneven":
        raise at.error(
            f"only {stages}, with uneven micro-batches",
            "0 or 1 too, or micro_batches: even: replicas exchange gradients"
            " with every micro-batch",
        )


def check_schedules(search: SearchFile, place: Place) -> None:
    """Chunks per GPU belong to the interleaved schedule, and that needs equal shares."""
    interleaves = "interleaved" in search.schedule
    if "virtual_pipeline" in search.model_fields_set and not interleaves:
        problem = f"chunks per GPU with the schedule {', '.join(search.schedule)}"
        raise place.at("virtual_pipeline").error(problem, "none; they are for interleaved")
    if interleaves and search.micro_batches == "uneven":
        allowed = "even: it runs micro-batches in groups of as many as there are stages"
        raise place.at("micro_batches").error("uneven, with the schedule interleaved", allowed)


def check_micro_batch(given: Given) -> None:
    """Raises InstanceError where no size divides the batch."""
    sizes, batch = given.search.micro_batch, given.workload.global_batch
    if sizes and all(batch % size for size in sizes):
        problem = f"no whole number of micro-batches of {_either(sizes)} makes the global batch of"
        at = given.place.at("micro_batch")
        raise at.error(f"{problem} {batch}", f"at least one divisor of {batch}")


def expert_fault(workload: Workload, cluster: Cluster, profiled: bool, ep: int) -> Fault | None:
    """Why `ep` GPUs cannot share the experts of a block."""
    experts, gpus = workload.experts, cluster.num_gpus
    if ep > 1 and not experts:
        return Fault(f"{ep} GPUs for the experts of a model without any", "1")
    if ep > 1 and profiled:
        return Fault(f"{ep}, of which a profile says nothing", "1, or no profile")
    if ep > gpus:
        return Fault(f"{ep} GPUs, of {gpus} in the cluster", f"1 to {gpus}")
    if experts and experts % ep:
        problem = f"{ep} does not divide the {experts} experts of a block"
        return Fault(problem, f"divisors of {experts}")
    return None


def resolve_experts(given: Given) -> Sequence[int]:
    """Sizes of expert-parallel groups: as written, else all powers of two that can be used."""
    workload, profiled = given.fused or given.workload, given.profile is not None
    experts = workload.experts
    if given.search.expert_parallel is None:
        largest_group = 1 if not experts or profiled else min(experts, given.cluster.num_gpus)
        return [1 << i for i in range(largest_group.bit_length()) if experts % (1 << i) == 0]
    fault_of = partial(expert_fault, workload, given.cluster, profiled)
    given.check("expert_parallel", fault_of)
    return given.search.expert_parallel


def expert_split_fault(workload: Workload, profiled: bool, split: bool) -> Fault | None:
    """Why the GPUs of a tensor group cannot have experts whole."""
    if not workload.experts:
        return Fault("1 GPU per expert of a model without any", "tp")
    if profiled:
        return Fault("1 GPU per expert, of which a profile says nothing", "tp, or no profile")
    if not split:
        problem = "1 GPU per expert, where tensor groups do not split the sequence"
        return Fault(problem, "tp, or sequence_parallel: true")
    return None


def resolve_expert_split(
    given: Given, degrees: Sequence[int], split: bool
) -> Sequence[ExpertSplit]:
    """GPUs that split every expert: as written, else 1 too where it makes a difference.

    degrees: of tensor groups. split: whether these split the sequence.
    """
    written, alone = given.search.expert_tensor_parallel, max(degrees) == 1
    fault = expert_split_fault(given.workload, given.profile is not None, split or alone)
    if written is None:
        return ["tp"] if fault or alone else [1, "tp"]
    if fault and 1 in written:
        raise given.error("expert_tensor_parallel", written.index(1), *fault)
    target = TARGETS[given.search.target]
    alike = Demands(min(degrees), zero=1, splits_sequence=split)
    for refusal in target.together(given.workload, alike):
        if refusal.field == "expert_tensor_parallel" and 1 not in written:
            problem = f"tp, with the target {target.name}, {refusal.reason}"
            raise given.error(refusal.field, 0, problem, "1, or tensor_parallel: 1")
    return written


def context_fault(workload: Workload, cluster: Cluster, profiled: bool, cp: int) -> Fault | None:
    """Why `cp` GPUs of a node cannot share a sequence."""
    largest_node = max(group.gpus_per_node for group in cluster.groups)
    tokens = workload.sequence_length
    if cp == 1:
        return None
    if cp > largest_node:
        problem = f"{cp} GPUs per sequence, more than any node has"
        return Fault(problem, f"1 to {largest_node}, the GPUs of the largest node")
    if profiled:
        return Fault(f"{cp}, of which a profile says nothing", "1, or no profile")
    if not workload.flash_attention:
        allowed = f"1, or {flash_remedy(cluster, workload.precision)}"
        return Fault(f"{cp} GPUs per sequence without flash attention", allowed)
    if any(run.layer.output_tensors > 1 for run in workload.layer_runs):
        return Fault(f"{cp} GPUs per sequence of an encoder-decoder", "1")
    if tokens % (PIECES * cp):
        problem = f"{cp} GPUs take {PIECES} pieces each of a sequence of {tokens} tokens"
        return Fault(problem, f"degrees whose double divides {tokens}")
    return None


def check_context(given: Given) -> None:
    """Raises InstanceError for the first degree that cannot be used."""
    workload, profiled = given.fused or given.workload, given.profile is not None
    fault_of = partial(context_fault, workload, given.cluster, profiled)
    given.check("context_parallel", lambda cp: fault_of(cp) or _beside_tensor_groups(given, cp))


def _beside_tensor_groups(given: Given, cp: int) -> Fault | None:
    """Why no tensor degree leaves room for `cp` GPUs per sequence."""
    if cp == 1:
        return None
    degrees, sizes = given.search.tensor_parallel or [1], given.node_sizes
    tokens, heads = given.workload.sequence_length, given.workload.kv_heads
    named = f"{cp} tensor groups of {_either(degrees)} GPUs per sequence"
    filling = [tp for tp in degrees if any(size % (tp * cp) == 0 for size in sizes)]
    pieces = [tp for tp in filling if tokens % (PIECES * cp * tp) == 0]
    if not filling:
        nodes = _either(sizes)
        return Fault(f"{named}, which fill no node of {nodes}", f"products that divide {nodes}")
    if not pieces:
        problem = f"{named}, which cannot split {tokens} tokens into {PIECES} pieces each"
        return Fault(problem, f"products whose double divides {tokens}")
    if given.search.context_method == "all_to_all" and all(heads % (tp * cp) for tp in pieces):
        problem = f"{named}, which exchange the {heads} key and value heads"
        return Fault(problem, f"products that divide {heads}, or context_method: ring")
    return None


def _either(values: Sequence[int]) -> str:
    return " or ".join(map(str, values))


def check_per_stage(given: Given) -> None:
    """Raises InstanceError where no stage could have degrees of its own."""
    search = given.search
    if search.degrees != "per_stage":
        return
    if given.cluster.has_zones:
        problem = "per_stage, with node groups in several zones"
        raise given.error("degrees", 0, problem, "uniform or per_group, or one zone")
    if not set(search.schedule) & set(get_args(PlainSchedule)):
        problem = f"per_stage, with the schedule {' or '.join(search.schedule)}"
        raise given.error("degrees", 0, problem, "uniform or per_group, or 1f1b or gpipe too")
    for field in ("context_parallel", "expert_parallel"):
        sizes: tuple[int, ...] | None = getattr(search, field)
        if sizes is not None and 1 not in sizes:
            problem = f"{sizes[0]}, with degrees: per_stage"
            raise given.error(field, 0, problem, "1 too, or degrees: per_group")
    if search.expert_tensor_parallel == (1,):
        problem, allowed = "1, with degrees: per_stage", "tp too, or degrees: per_group"
        raise given.error("expert_tensor_parallel", 0, problem, allowed)


#: In place of a rule for `zero`, see `Launcher.distributed`.
_DISTRIBUTED = Rule((1,), "whose optimizer with states in bf16 is distributed")


def _rules(
    search: SearchFile, state: OptimizerState, *, stated: bool
) -> Iterator[tuple[str, Rule]]:
    """The fields of `search` that the target has rules for, and that a user states or does not."""
    target = TARGETS[search.target]
    for field, rule in target.rules(search.recompute_per).items():
        if stated == (field in search.model_fields_set):
            distributed = field == "zero" and state in target.distributed
            yield field, _DISTRIBUTED if distributed else rule


def narrowed(search: SearchFile, state: OptimizerState) -> SearchFile:
    """The choices with those defaults alone that the target can run; what is stated stays."""
    rules = _rules(search, state, stated=False)
    kept = {field: rule.kept(getattr(search, field)) for field, rule in rules}
    return search.model_copy(update=kept)


def check_target(search: SearchFile, state: OptimizerState, place: Place) -> None:
    """Raises InstanceError for all stated values that the target cannot run."""
    errors = []
    for field, rule in _rules(search, state, stated=True):
        value = getattr(search, field)
        for i, choice in enumerate(value if isinstance(value, tuple) else [value]):
            if choice not in rule.allowed:
                able = launchers(field, choice)
                if rule is _DISTRIBUTED:
                    able = [other for other in able if "bf16" not in TARGETS[other].distributed]
                problem = f"{_text(choice)}, with the target {TARGETS[search.target].name}"
                allowed = " or ".join(map(_text, rule.allowed))
                remedy = f"{allowed}, or search.target: {' or '.join(able)}"
                at = place.at(field).listed(i)
                errors.append(at.error(f"{problem}, {rule.reason}", remedy))
    if errors:
        raise joined(errors)


def _text(value: object) -> str:
    return value if isinstance(value, str) else shown(value)


def check_trained(target: Target, workload: Workload, place: Place) -> None:
    """Raises InstanceError for all of a workload that the target cannot train."""
    errors = []
    for field, value, reason, allowed in TARGETS[target].untrained(workload):
        words = " or ".join(map(str, allowed))
        able = " or ".join(trainers(field, value))
        written = field in WorkloadFile.model_fields
        at, problem = (place.at(field), value) if written else (place, f"{field}: {value}")
        text = f"{problem}, with the target {TARGETS[target].name}, {reason}"
        errors.append(at.error(text, f"{words}, or search.target: {able}"))
    if errors:
        raise joined(errors)
