"""Instance files as people write them, and from them to an `Instance`.

Defaults, catalogues, checks across fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from formulations.errors import InstanceError, Mistakes, joined
from formulations.instance.calibration import CalibrationFile, resolve_calibration
from formulations.instance.catalogue import Catalogue
from formulations.instance.cluster import Cluster
from formulations.instance.documents import Place
from formulations.instance.input_limits import MOST_CHOICES_OF_TERMS, Name, Text
from formulations.instance.instance import Instance, Limits, LimitsFile, Objective
from formulations.instance.lengths import LengthsFile
from formulations.instance.preemption import PreemptionFile, resolve_preemption
from formulations.instance.profile import (
    Profile,
    ProfileFile,
    check_coverage,
    covered_degrees,
    resolve_profile,
)
from formulations.instance.record import (
    MAPPING,
    NAME,
    Section,
    name_or_mapping,
)
from formulations.instance.resolve_cluster import ClusterFile, resolve_cluster
from formulations.instance.resolve_lengths import (
    WrittenLengths,
    resolve_lengths,
    with_lengths,
)
from formulations.instance.resolve_search import (
    check_context,
    check_per_stage,
    check_target,
    check_trained,
    check_zero,
    leaves_flash_open,
    narrowed,
    resolve_expert_split,
    resolve_experts,
    resolve_flash,
    resolve_recompute,
    resolve_sequence_parallel,
)
from formulations.instance.resolve_workload import WorkloadFile, resolve_workload
from formulations.instance.search import Overlap, SearchFile, SearchSpace
from formulations.instance.transformer import Architecture
from formulations.instance.workload import PRECISIONS, Workload

WrittenLayerTimes = Annotated[
    Annotated[Name, Tag(NAME)] | Annotated[ProfileFile, Tag(MAPPING)],
    Discriminator(name_or_mapping),
]


class InstanceFile(Section):
    """One planning problem."""

    name: Name
    """Name of the instance."""
    source: Text = "not stated"
    """Where its figures come from."""
    workload: WorkloadFile
    """The model and its training settings."""
    cluster: ClusterFile
    """The machines."""
    profile: WrittenLayerTimes | None = None
    """Measured layer times, or the path of a file with them, relative to this file's folder.
    Default: the analytic model."""
    calibration: CalibrationFile | None = None
    """Corrections of layer times by measured steps."""
    search: SearchFile = SearchFile()
    """The plans to choose among."""
    limits: LimitsFile = Field(default_factory=LimitsFile)
    """What a plan must respect."""
    objective: Objective = Objective()
    """What is minimised."""
    preemption: PreemptionFile | None = None
    """What preemptions cost, for cost_per_useful_sequence."""
    lengths: LengthsFile | None = None
    """Sequences of many lengths in a step. Default: all are as long as the workload says."""


def instance_json_schema() -> dict[str, Any]:
    """JSON schema of instance files, for editors."""
    schema = InstanceFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


@dataclass(frozen=True)
class WrittenProfile:
    """Layer times and where they stand: in the instance file or in one of their own."""

    profile: ProfileFile
    place: Place


def resolve(
    written: InstanceFile,
    place: Place,
    profile: WrittenProfile | None,
    lengths: WrittenLengths | None,
    catalogue: Catalogue,
    folder: Path,
) -> Instance:
    """The instance. Raises InstanceError for all fields that do not fit the others."""
    search_place = place.at("search")
    search = narrowed(written.search, written.workload.optimizer_state)
    own = with_lengths(written.workload, place.at("workload"), lengths)
    written = written.but(search=search, workload=own)
    wrong, profiled = Mistakes(), profile is not None
    basis = _basis(wrong, written, place, profile, catalogue, folder)
    cluster, architecture, workload, fused, at_flash = basis
    kinds = list(dict.fromkeys(run.layer.kind for run in workload.layer_runs))
    chosen = wrong.of(_chosen, written, search_place, profile, cluster, architecture, workload)
    wrong.errors += at_flash
    parallel = search, search_place, fused or workload, cluster, profiled
    recompute = wrong.of(resolve_recompute, search, search_place, workload.flash_attention)
    experts = wrong.of(resolve_experts, *parallel)
    wrong.of(check_context, *parallel)
    factors = place.at("calibration")
    calibration = wrong.of(resolve_calibration, written.calibration, factors, kinds, cluster)
    _check_alone(wrong, written, place, catalogue)
    mixed = wrong.of(resolve_lengths, lengths, cluster, architecture, workload, profiled)
    _check_fitting(wrong, written, place, workload, cluster)
    if profile:
        wrong.of(_check_profile, profile, workload)
    if chosen is None or wrong.errors:
        raise joined(wrong.errors)
    times, strategies = chosen
    strategies |= {
        "expert_parallel": experts,
        "overlap": _overlap(written, search_place.at("overlap"), catalogue),
        "recompute": recompute,
    }
    preemption = None
    if written.preemption or written.objective.minimize == "cost_per_useful_sequence":
        preemption = resolve_preemption(written.preemption, workload.parameters)
    return Instance(
        name=written.name,
        source=written.source,
        workload=workload,
        cluster=cluster,
        profile=times,
        calibration=calibration,
        search=SearchSpace.model_validate({**dict(search), **strategies}),
        limits=_limits(written),
        objective=written.objective,
        preemption=preemption,
        lengths=mixed,
        fused=fused,
    )


def _basis(
    wrong: Mistakes,
    written: InstanceFile,
    place: Place,
    profile: WrittenProfile | None,
    catalogue: Catalogue,
    folder: Path,
) -> tuple[Cluster, Architecture, Workload, Workload | None, list[InstanceError]]:
    """What all else rests on: machines, the model, `Instance.fused`; what is wrong with the flag.

    Where attention cannot be fused, the model is read without.
    """
    at, unfit = place.at("workload"), Mistakes()
    measured, own = profile.profile if profile else None, written.workload
    cluster = wrong.of(resolve_cluster, written.cluster, place.at("cluster"), catalogue)
    flash = cluster and unfit.of(resolve_flash, own, at.at("flash_attention"), cluster, measured)
    read = partial(resolve_workload, own, at, catalogue.workloads, folder)
    model = wrong.of(read, bool(flash))
    if cluster is None or model is None:
        wrong.errors += unfit.errors
        _check_alone(wrong, written, place, catalogue)
        raise joined(wrong.errors)
    fused = read(True)[1] if leaves_flash_open(own, cluster, measured) else None
    return cluster, *model, fused, unfit.errors


def _chosen(
    written: InstanceFile,
    place: Place,
    profile: WrittenProfile | None,
    cluster: Cluster,
    architecture: Architecture,
    workload: Workload,
) -> tuple[Profile | None, dict[str, object]]:
    """Measured times, and the strategies of tensor groups, each of which rests on the one before.

    place: of `search`.
    """
    kinds = list(dict.fromkeys(run.layer.kind for run in workload.layer_runs))
    times = resolve_profile(profile.profile, profile.place, kinds) if profile else None
    degrees = _tensor_degrees(written, place, architecture, cluster, times, kinds)
    if profile and times:
        check_coverage(times, profile.place, kinds, cluster, degrees)
    split = resolve_sequence_parallel(
        written.search.sequence_parallel,
        place.at("sequence_parallel"),
        degrees,
        workload.sequence_length,
        profile.profile if profile else None,
    )
    experts = resolve_expert_split(
        written.search, place, workload, profile is not None, degrees, split
    )
    return times, {
        "tensor_parallel": degrees,
        "sequence_parallel": split,
        "expert_tensor_parallel": experts,
    }


def _check_fitting(
    wrong: Mistakes, written: InstanceFile, place: Place, workload: Workload, cluster: Cluster
) -> None:
    """Notes what of the workload, and of degrees per stage, does not fit what else is written."""
    search, at = place.at("search"), place.at("workload")
    wrong.of(check_per_stage, written.search, search, cluster)
    wrong.of(_check_precision, workload, cluster, at.at("precision"))
    wrong.of(check_trained, written.search.target, workload, at)
    wrong.of(_check_micro_batch, written, search.at("micro_batch"), workload)


def _check_alone(
    wrong: Mistakes, written: InstanceFile, place: Place, catalogue: Catalogue
) -> None:
    """Notes what is wrong with what needs no other section."""
    search = place.at("search")
    wrong.of(check_target, written.search, written.workload.optimizer_state, search)
    wrong.of(_overlap, written, search.at("overlap"), catalogue)
    wrong.of(_check_schedules, written.search, search)
    wrong.of(check_zero, written.search, search)
    wrong.of(check_objective, written, place)


def _check_precision(workload: Workload, cluster: Cluster, place: Place) -> None:
    peaks = [group.gpu.peak_flops for group in cluster.groups]
    shared = [precision for precision in PRECISIONS if all(precision in peak for peak in peaks)]
    for group, peak in zip(cluster.groups, peaks, strict=True):
        if workload.precision not in peak:
            found = f"{workload.precision}, for which {group.gpu.name} of group {group.name!r}"
            allowed = ", ".join(shared) or "GPUs that share a precision"
            raise place.error(f"{found} has no peak", allowed)


def _check_profile(profile: WrittenProfile, workload: Workload) -> None:
    """What a profile was measured with must be what it is used for, as far as it says so."""
    for name in ("precision", "hidden_size", "sequence_length"):
        measured, trained = getattr(profile.profile, name), getattr(workload, name)
        if measured not in (None, trained):
            field = name.replace("_", " ")
            found = f"times in {measured}, for a workload in {trained}"
            if name != "precision":
                found = f"times of {field} {measured}, for a workload of {trained}"
            allowed = f"times of {trained}, or a workload of {measured}"
            if name == "precision":
                allowed = f"times in {trained}, or workload.precision: {measured}"
            raise profile.place.at(name).error(found, allowed)


def _tensor_degrees(
    written: InstanceFile,
    place: Place,
    architecture: Architecture,
    cluster: Cluster,
    profile: Profile | None,
    kinds: list[str],
) -> Sequence[int]:
    """The degrees to choose from: as written, else all powers of two that can be used."""
    largest_node = max(group.gpus_per_node for group in cluster.groups)
    heads = architecture.num_kv_heads
    at = place.at("tensor_parallel")
    if written.search.tensor_parallel is not None:
        for i, tp in enumerate(written.search.tensor_parallel):
            if tp > largest_node:
                found = f"{tp} GPUs per tensor-parallel group, larger than every node"
                raise at.listed(i).error(
                    found, f"1 to {largest_node}, the GPUs of the largest node"
                )
            if heads % tp:
                kind = "attention" if heads == architecture.heads else "key and value"
                found = f"{tp} does not divide the {heads} {kind} heads"
                raise at.listed(i).error(found, f"divisors of {heads} up to {largest_node}")
            sizes = sorted({group.gpus_per_node for group in cluster.groups})
            if all(size % tp for size in sizes):
                nodes = " or ".join(map(str, sizes))
                found = f"{tp} GPUs per tensor-parallel group, which fill no node of {nodes}"
                raise at.listed(i).error(found, f"divisors of {nodes}")
        return written.search.tensor_parallel
    degrees = [1 << i for i in range(largest_node.bit_length()) if heads % (1 << i) == 0]
    return (profile and covered_degrees(profile, kinds, cluster, degrees)) or degrees


def _check_micro_batch(written: InstanceFile, place: Place, workload: Workload) -> None:
    sizes, batch = written.search.micro_batch, workload.global_batch
    if sizes and all(batch % b for b in sizes):
        text = " or ".join(map(str, sizes))
        found = f"no whole number of micro-batches of {text} makes the global batch of {batch}"
        raise place.error(found, f"at least one divisor of {batch}")


def _check_schedules(search: SearchFile, place: Place) -> None:
    """Chunks per GPU belong to the interleaved schedule, and that needs equal shares."""
    interleaves = "interleaved" in search.schedule
    if "virtual_pipeline" in search.model_fields_set and not interleaves:
        found = f"chunks per GPU with the schedule {', '.join(search.schedule)}"
        raise place.at("virtual_pipeline").error(found, "none; they are for interleaved")
    if interleaves and search.micro_batches == "uneven":
        found = "uneven, with the schedule interleaved"
        allowed = "even: it runs micro-batches in groups of as many as there are stages"
        raise place.at("micro_batches").error(found, allowed)


def _overlap(written: InstanceFile, place: Place, catalogue: Catalogue) -> Overlap:
    """Shares as written, or those of a framework."""
    overlap = written.search.overlap
    if isinstance(overlap, str):
        if overlap not in catalogue.overlap:
            raise place.unknown("framework", overlap, catalogue.overlap)
        return catalogue.overlap[overlap]
    return overlap or Overlap()


def _limits(written: InstanceFile) -> Limits:
    """As written; of the memory, what measured peaks were above the model's is left free too."""
    measured = written.calibration and written.calibration.memory_headroom
    headroom = max(written.limits.memory_headroom, measured or 0.0)
    return Limits.model_validate({**dict(written.limits), "memory_headroom": headroom})


def check_objective(written: InstanceFile, place: Place) -> None:
    """Raises InstanceError for steps or prices that are missing, and limits that do not fit."""
    objective, limits = written.objective, written.limits
    if objective.minimize == "training_cost" and objective.steps is None:
        allowed = "steps of the training, which training_cost needs"
        raise place.at("objective", "steps").error("missing", allowed)
    chooses = objective.minimize == "cost_per_useful_sequence"
    if chooses:
        _check_terms(written, place)
    wants_prices = (
        objective.minimize != "step_time"
        or limits.max_cost_usd_per_step is not None
        or limits.max_price_usd_per_hour is not None
    )
    for j, group in enumerate(written.cluster.groups):
        if wants_prices and group.price_usd_per_hour is None and not (chooses and group.spot):
            allowed = "the price of one node, as objective or limits ask for money"
            raise place.at("cluster", "groups", j, "price").error("missing", allowed)


def _check_terms(written: InstanceFile, place: Place) -> None:
    """What the choice between on demand and spot cannot do."""
    if written.limits.max_cost_usd_per_step is not None:
        found = "a limit, with the objective cost_per_useful_sequence"
        allowed = "max_step_time or max_price_per_hour"
        raise place.at("limits", "max_cost_per_step").error(found, allowed)
    groups = written.cluster.groups
    both = [
        j for j, group in enumerate(groups) if group.spot and group.price_usd_per_hour is not None
    ]
    if len(both) > MOST_CHOICES_OF_TERMS:
        found = f"a price on demand and on spot, as of {len(both) - 1} other groups"
        allowed = f"at most {MOST_CHOICES_OF_TERMS} groups with both; leave out one of the two"
        raise place.at("cluster", "groups", both[MOST_CHOICES_OF_TERMS], "spot").error(
            found, allowed
        )
