"""What of `search` fits the machines, the model, the profile and the launch target.

Memory strategies have defaults that depend on GPUs or profile, and exclude one another. Of the
target, what a user states must be what it can run, and what he does not state is narrowed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

from formulations.errors import Fault, InstanceError, Mistakes
from formulations.instance.cluster import Cluster
from formulations.instance.documents import Place
from formulations.instance.profile import (
    Profile,
    WrittenProfile,
    covered_degrees,
    missing_times,
    resolve_profile,
)
from formulations.instance.resolve_workload import WorkloadFile, as_measured, flash_remedy
from formulations.instance.search import (
    Overlap,
    PlainSchedule,
    SearchFile,
    SearchSpace,
    overlap_catalogue,
)
from formulations.instance.targets import TARGETS, Demands, listed, outside
from formulations.instance.transformer import Architecture
from formulations.instance.workload import ExpertSplit, OptimizerState, Workload

_FIRST_EXCHANGING = 2  # ZeRO stage that exchanges gradients with every micro-batch
#: Pieces of a sequence per GPU that shares it: one from each end (formulations.costs.context).
PIECES = 2
_UP_TO_A_NODE = "1 to {}, the GPUs of the largest node"


def first_broken(*rules: tuple[object, str, str]) -> Fault | None:
    """The fault of the first broken rule of (is broken, what was found, what is allowed)."""
    return next((Fault(found, allowed) for broken, found, allowed in rules if broken), None)


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
    def node_sizes(self) -> list[int]:
        """Numbers of GPUs in a node, ascending."""
        return sorted({group.gpus_per_node for group in self.cluster.groups})

    @property
    def kinds(self) -> list[str]:
        """Layer kinds in the order of the chain."""
        return list(dict.fromkeys(run.layer.kind for run in self.workload.layer_runs))

    def check(self, field: str, fault_of: Callable[[int], Fault | None]) -> None:
        """Raises InstanceError for the first entry of a field, or its bare value, with a fault."""
        for i, entry in enumerate(getattr(self.search, field) or ()):
            if fault := fault_of(entry):
                raise self.place.at(field).listed(i).error(*fault)


def errors_alone(
    search: SearchFile, state: OptimizerState, place: Place
) -> Iterator[InstanceError]:
    """What is wrong with what needs no other section."""
    stated = {field: getattr(search, field) for field in search.model_fields_set}
    for refusal in outside(TARGETS[search.target].rules(search.recompute_per, state), stated):
        entry = listed(stated[refusal.field]).index(refusal.value)
        yield place.at(refusal.field).listed(entry).error(*refusal.fault(search.target, state))
    for i, number in enumerate(search.optimizer_instances):
        if number > 1 and not max(search.zero):
            problem = f"{number} groups of replicas, of which none splits anything (zero: 0)"
            at = place.at("optimizer_instances").listed(i)
            yield at.error(problem, "1, or zero: 1 too")
    if False in search.sync_each_batch and 3 not in search.zero:
        problem = f"false, with zero: {', '.join(map(str, search.zero))}"
        at = place.at("sync_each_batch").listed(search.sync_each_batch.index(False))
        yield at.error(problem, "true, or zero: 3 too, which alone can keep gradients")
    interleaves, uneven = "interleaved" in search.schedule, search.micro_batches == "uneven"
    chunked = {"virtual_pipeline": "chunks per GPU", "microbatch_group": "groups of micro-batches"}
    misplaced = chunked.keys() & search.model_fields_set if not interleaves else set()
    for field in sorted(misplaced, reverse=True):
        problem = f"{chunked[field]} with the schedule {', '.join(search.schedule)}"
        yield place.at(field).error(problem, "none; they are for interleaved")
    if interleaves and uneven:
        allowed = "even: it runs micro-batches in groups of as many as there are stages"
        yield place.at("micro_batches").error("uneven, with the schedule interleaved", allowed)
    # ZeRO 2 and 3 exchange gradients too often where they stand alone.
    stages = " and ".join(map(str, sorted(search.zero)))
    pipelines = search.pipeline_parallel or (1,)
    if min(search.zero) >= _FIRST_EXCHANGING and (uneven or 1 not in pipelines):
        problem, remedy = "uneven micro-batches", "micro_batches: even: replicas"
        if 1 not in pipelines:
            problem = f"{', '.join(map(str, pipelines))} pipeline stages"
            remedy = "pipeline_parallel: 1: every stage would"
        allowed = f"0 or 1 too, or {remedy} exchange gradients with every micro-batch"
        yield place.at("zero").listed(0).error(f"only {stages}, with {problem}", allowed)
    if isinstance(search.overlap, str) and search.overlap not in overlap_catalogue():
        yield place.at("overlap").unknown("framework", search.overlap, overlap_catalogue())


def resolve_search(wrong: Mistakes, given: Given) -> tuple[Profile | None, SearchSpace] | None:
    """Measured times and the space of plans; notes all that does not fit, and then None."""
    search, place = given.search, given.place
    groups = wrong.of(_tensor_groups, given)
    flash = given.workload.flash_attention
    if flash and "selective" in search.recompute and "none" not in search.recompute:
        at = place.at("recompute").listed(search.recompute.index("selective"))
        problem = "selective, but flash attention keeps nothing that it would recompute"
        wrong.errors.append(at.error(problem, "none or full, or workload.flash_attention: false"))
    if "per_op" in search.recompute and (fault := given.workload.per_op_fault()):
        at = place.at("recompute").listed(search.recompute.index("per_op"))
        wrong.errors.append(at.error(*fault))
    experts = wrong.of(_experts, given)
    workload, beside = given.fused or given.workload, partial(_beside_tensor_groups, given)
    alone = partial(context_fault, workload, given.cluster, given.profile is not None)
    wrong.of(given.check, "context_parallel", lambda cp: alone(cp) or beside(cp))
    wrong.of(_check_per_stage, given)
    sizes, batch = search.micro_batch, given.workload.global_batch
    if sizes and all(batch % size for size in sizes):
        at, texts = place.at("micro_batch"), _either(sizes)
        problem = f"no whole number of micro-batches of {texts} makes the global batch of {batch}"
        wrong.errors.append(at.error(problem, f"at least one divisor of {batch}"))
    if groups is None or wrong.errors:
        return None
    times, strategies = groups
    shares = search.overlap or Overlap()
    strategies |= {
        "expert_parallel": experts,
        "recompute": [way for way in search.recompute if not (flash and way == "selective")],
        "overlap": overlap_catalogue()[shares] if isinstance(shares, str) else shares,
    }
    return times, SearchSpace.model_validate({**dict(search), **strategies})


def _tensor_groups(given: Given) -> tuple[Profile | None, dict[str, object]]:
    """Measured times, and the strategies of tensor groups, each of which rests on the last one."""
    profile, kinds, cluster = given.profile, given.kinds, given.cluster
    times = resolve_profile(profile, kinds) if profile else None
    degrees = _tensor_degrees(given, times)
    if profile and times:
        gpus = dict.fromkeys(group.gpu.name for group in cluster.groups)
        allowed = (
            f"times of every layer kind ({', '.join(kinds)}) on every GPU ({', '.join(gpus)}) at"
            " every degree to choose from; or narrow search.tensor_parallel, or"
            " missing_times: analytic"
        )
        for tp in degrees:
            for kind, gpu in missing_times(times, kinds, cluster, tp):
                problem = f"no times of {kind} on {gpu} at tensor-parallel degree {tp}"
                raise profile.place.at("times_ms", kind, gpu, tp).error(problem, allowed)
    split, tokens = _sequence_parallel(given, degrees), given.workload.sequence_length
    return times, {
        "tensor_parallel": degrees,
        "sequence_parallel": split,
        "split_tokens": tokens if split else 0,
        "expert_tensor_parallel": _expert_split(given, degrees, split),
    }


def _tensor_degrees(given: Given, profile: Profile | None) -> Sequence[int]:
    """The degrees to choose from: as written, else all powers of two that can be used."""
    heads, sizes = given.architecture.num_kv_heads, given.node_sizes
    largest = sizes[-1]
    if given.search.tensor_parallel is None:
        degrees = [1 << i for i in range(largest.bit_length()) if heads % (1 << i) == 0]
        covered = profile and covered_degrees(profile, given.kinds, given.cluster, degrees)
        return covered or degrees

    def fault(tp: int) -> Fault | None:
        kind = "attention" if heads == given.architecture.heads else "key and value"
        named, divisors = f"{tp} GPUs per tensor-parallel group", f"divisors of {heads} up to"
        indivisible = f"{tp} does not divide the {heads} {kind} heads"
        unfilled = f"{named}, which fill no node of {_either(sizes)}"
        return first_broken(
            (tp > largest, f"{named}, larger than every node", _UP_TO_A_NODE.format(largest)),
            (heads % tp, indivisible, f"{divisors} {largest}"),
            (all(n % tp for n in sizes), unfilled, f"divisors of {_either(sizes)}"),
        )

    given.check("tensor_parallel", fault)
    return given.search.tensor_parallel


def _sequence_parallel(given: Given, degrees: Sequence[int]) -> bool:
    """Whether tensor groups split the sequence outside their products: as written or measured.

    Else wherever it is possible, degree by degree (`SearchSpace.split_tokens`): it moves as many
    bytes as without, and keeps less (Korthikanti et al. 2023, section 4.2.2). Raises InstanceError
    where it is asked for and no degree, or not every one, can, and for a profile measured
    otherwise.
    """
    written, place = given.search.sequence_parallel, given.place.at("sequence_parallel")
    tokens = given.workload.sequence_length
    chosen = as_measured(written, place, given.profile, "sequence_parallel")
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


def expert_fault(workload: Workload, cluster: Cluster, profiled: bool, ep: int) -> Fault | None:
    """Why `ep` GPUs cannot share the experts of a block."""
    if ep == 1:
        return None
    experts, gpus = workload.experts, cluster.num_gpus
    indivisible = f"{ep} does not divide the {experts} experts of a block"
    return first_broken(
        (not experts, f"{ep} GPUs for the experts of a model without any", "1"),
        (cluster.has_joined_nodes, f"{ep} GPUs, on joined nodes", "1, or joined_nodes: 1"),
        (profiled, f"{ep}, of which a profile says nothing", "1, or no profile"),
        (ep > gpus, f"{ep} GPUs, of {gpus} in the cluster", f"1 to {gpus}"),
        (experts % ep, indivisible, f"divisors of {experts}"),
    )


def _experts(given: Given) -> Sequence[int]:
    """Sizes of expert-parallel groups: as written, else all powers of two that can be used."""
    workload, cluster, profiled = given.fused or given.workload, given.cluster, bool(given.profile)
    if given.search.expert_parallel is None:
        usable = 1 if profiled else max(1, min(workload.experts, cluster.num_gpus))
        return [1 << i for i in range(usable.bit_length()) if workload.experts % (1 << i) == 0]
    given.check("expert_parallel", partial(expert_fault, workload, cluster, profiled))
    return given.search.expert_parallel


def expert_split_fault(workload: Workload, profiled: bool, split: bool) -> Fault | None:
    """Why the GPUs of a tensor group cannot have experts whole."""
    alone, whole_sequences = "1 GPU per expert", "where tensor groups do not split the sequence"
    return first_broken(
        (not workload.experts, f"{alone} of a model without any", "tp"),
        (profiled, f"{alone}, of which a profile says nothing", "tp, or no profile"),
        (not split, f"{alone}, {whole_sequences}", "tp, or sequence_parallel: true"),
    )


def _expert_split(given: Given, degrees: Sequence[int], split: bool) -> Sequence[ExpertSplit]:
    """GPUs that split every expert: as written, else 1 too where it makes a difference.

    degrees: of tensor groups. split: whether these split the sequence.
    """
    written, alone = given.search.expert_tensor_parallel, max(degrees) == 1
    at = given.place.at("expert_tensor_parallel")
    fault = expert_split_fault(given.workload, given.profile is not None, split or alone)
    if written is None:
        return ["tp"] if fault or alone else [1, "tp"]
    if fault and 1 in written:
        raise at.listed(written.index(1)).error(*fault)
    target = TARGETS[given.search.target]
    alike = Demands(min(degrees), zero=1, sequence_parallel=split)
    for refusal in target.refused(given.workload, alike):
        if refusal.field == "expert_tensor_parallel" and 1 not in written:
            problem = f"tp, with the target {target.name}, {refusal.reason}"
            raise at.listed(0).error(problem, "1, or tensor_parallel: 1")
    return written


def context_fault(workload: Workload, cluster: Cluster, profiled: bool, cp: int) -> Fault | None:
    """Why `cp` GPUs of a node cannot share a sequence."""
    if cp == 1:
        return None
    largest, tokens = max(group.gpus_per_node for group in cluster.groups), workload.sequence_length
    named = f"{cp} GPUs per sequence"
    remedy = f"1, or {flash_remedy(cluster, workload.precision)}"
    encodes = any(run.layer.output_tensors > 1 for run in workload.layer_runs)
    pieces = f"{cp} GPUs take {PIECES} pieces each of a sequence of {tokens} tokens"
    return first_broken(
        (cp > largest, f"{named}, more than any node has", _UP_TO_A_NODE.format(largest)),
        (profiled, f"{cp}, of which a profile says nothing", "1, or no profile"),
        (not workload.flash_attention, f"{named} without flash attention", remedy),
        (encodes, f"{named} of an encoder-decoder", "1"),
        (tokens % (PIECES * cp), pieces, f"degrees whose double divides {tokens}"),
    )


def _beside_tensor_groups(given: Given, cp: int) -> Fault | None:
    """Why no tensor degree leaves room for `cp` GPUs per sequence."""
    degrees, sizes = given.search.tensor_parallel or [1], given.node_sizes
    tokens, heads = given.workload.sequence_length, given.workload.kv_heads
    named, nodes = f"{cp} tensor groups of {_either(degrees)} GPUs per sequence", _either(sizes)
    filling = [tp for tp in degrees if any(size % (tp * cp) == 0 for size in sizes)]
    even = [tp for tp in filling if tokens % (PIECES * cp * tp) == 0]
    exchanges = given.search.context_method == "all_to_all"
    indivisible = exchanges and all(heads % (tp * cp) for tp in even)
    divisors = f"products that divide {heads}, or context_method: ring"
    pieces = f"{named}, which cannot split {tokens} tokens into {PIECES} pieces each"
    fault = first_broken(
        (not filling, f"{named}, which fill no node of {nodes}", f"products that divide {nodes}"),
        (not even, pieces, f"products whose double divides {tokens}"),
        (indivisible, f"{named}, which exchange the {heads} key and value heads", divisors),
    )
    return fault if cp > 1 else None


def _check_per_stage(given: Given) -> None:
    search = given.search
    if search.degrees != "per_stage":
        return
    schedules, plain = f"the schedule {' or '.join(search.schedule)}", get_args(PlainSchedule)
    fault = first_broken(
        (given.cluster.has_zones, "node groups in several zones", "one zone"),
        (given.cluster.has_joined_nodes, "joined nodes", "joined_nodes: 1"),
        (not set(search.schedule) & set(plain), schedules, "1f1b or gpipe too"),
    )
    if fault:
        allowed = f"uniform or per_group, or {fault.allowed}"
        raise given.place.at("degrees").error(f"per_stage, with {fault.found}", allowed)
    needed = {"context_parallel": 1, "expert_parallel": 1, "expert_tensor_parallel": "tp"}
    for field, choice in needed.items():
        listed: tuple[object, ...] = getattr(search, field) or (choice,)
        if choice not in listed:
            at, problem = given.place.at(field).listed(0), f"{listed[0]}, with degrees: per_stage"
            raise at.error(problem, f"{choice} too, or degrees: per_group")


def _either(values: Iterable[object]) -> str:
    return " or ".join(map(str, values))


def narrowed(search: SearchFile, state: OptimizerState) -> SearchFile:
    """The choices with those defaults alone that the target can run; what is stated stays."""
    rules = TARGETS[search.target].rules(search.recompute_per, state).items()
    open_rules = {field: rule for field, rule in rules if field not in search.model_fields_set}
    kept = {field: rule.kept(getattr(search, field)) for field, rule in open_rules.items()}
    changed = {field: value for field, value in kept.items() if value != getattr(search, field)}
    return search.model_copy(update=changed)


def untrained_errors(given: Given, place: Place) -> Iterator[InstanceError]:
    """All of a workload that the target cannot train; place: of `workload`."""
    for refusal in TARGETS[given.search.target].untrained(given.workload):
        problem, allowed = refusal.fault(given.search.target)
        if refusal.field in WorkloadFile.model_fields:
            yield place.at(refusal.field).error(problem, allowed)
        else:
            yield place.error(f"{refusal.field}: {problem}", allowed)
