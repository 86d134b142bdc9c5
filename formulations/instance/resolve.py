"""Instance files as people write them, and from them to an `Instance`.

Defaults, catalogues, checks across fields.
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from formulations.errors import Mistakes, joined
from formulations.instance.calibration import CalibrationFile, resolve_calibration
from formulations.instance.catalogue import overlap_catalogue
from formulations.instance.cluster import Cluster
from formulations.instance.documents import Place
from formulations.instance.input_limits import MOST_CHOICES_OF_TERMS, Name, Text
from formulations.instance.instance import Instance, Limits, LimitsFile, Objective
from formulations.instance.lengths import LengthsFile
from formulations.instance.preemption import PreemptionFile, resolve_preemption
from formulations.instance.profile import (
    Profile,
    ProfileFile,
    WrittenProfile,
    check_coverage,
    resolve_profile,
)
from formulations.instance.record import MAPPING, NAME, Section, name_or_mapping
from formulations.instance.resolve_cluster import ClusterFile, resolve_cluster
from formulations.instance.resolve_lengths import WrittenLengths, resolve_lengths, with_lengths
from formulations.instance.resolve_search import (
    Given,
    check_context,
    check_micro_batch,
    check_per_stage,
    check_schedules,
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
    resolve_tensor_degrees,
)
from formulations.instance.resolve_workload import WorkloadFile, resolve_workload
from formulations.instance.search import Overlap, SearchFile, SearchSpace
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


def resolve(
    written: InstanceFile,
    place: Place,
    profile: WrittenProfile | None,
    lengths: WrittenLengths | None,
    folder: Path,
) -> Instance:
    """The instance. Raises InstanceError for all fields that do not fit the others."""
    wrong = Mistakes()
    training = with_lengths(written.workload, place.at("workload"), lengths)
    search = narrowed(written.search, training.optimizer_state)
    written = written.but(workload=training, search=search)
    overlap = _check_alone(wrong, written, place)
    given = _given(wrong, written, place, profile, folder)
    workload, cluster = given.workload, given.cluster

    # Choices of the search that rest on machines and model, and what else does.
    kinds = list(dict.fromkeys(run.layer.kind for run in workload.layer_runs))
    chosen = wrong.of(_tensor_groups, given, kinds)
    recompute = wrong.of(resolve_recompute, search, given.place, workload.flash_attention)
    experts = wrong.of(resolve_experts, given)
    for check in (check_context, check_per_stage, check_micro_batch):
        wrong.of(check, given)
    wrong.of(check_trained, search.target, workload, place.at("workload"))
    wrong.of(_check_precision, workload, cluster, place.at("workload", "precision"))
    factors = place.at("calibration")
    calibration = wrong.of(resolve_calibration, written.calibration, factors, kinds, cluster)
    model = given.architecture, workload, profile is not None
    mixed = wrong.of(resolve_lengths, lengths, cluster, *model)
    if profile:
        wrong.of(_check_profile, profile, workload)
    if chosen is None or wrong.errors:
        raise joined(wrong.errors)

    times, strategies = chosen
    strategies |= {"expert_parallel": experts, "overlap": overlap, "recompute": recompute}
    preemption = None
    if written.preemption or written.objective.minimize == "cost_per_useful_sequence":
        preemption = resolve_preemption(written.preemption, workload.parameters)
    # Of the memory, what measured peaks were above the model's is left free too.
    measured = (written.calibration and written.calibration.memory_headroom) or 0.0
    headroom = max(written.limits.memory_headroom, measured)
    return Instance(
        name=written.name,
        source=written.source,
        workload=workload,
        cluster=cluster,
        profile=times,
        calibration=calibration,
        search=SearchSpace.model_validate({**dict(search), **strategies}),
        limits=Limits.model_validate({**dict(written.limits), "memory_headroom": headroom}),
        objective=written.objective,
        preemption=preemption,
        lengths=mixed,
        fused=given.fused,
    )


def _check_alone(wrong: Mistakes, written: InstanceFile, place: Place) -> Overlap | None:
    """Notes what is wrong with what needs no other section. The shares of traffic that hide."""
    search, at = written.search, place.at("search")
    wrong.of(check_target, search, written.workload.optimizer_state, at)
    wrong.of(check_schedules, search, at)
    wrong.of(check_zero, search, at)
    wrong.of(_check_objective, written, place)
    if not isinstance(search.overlap, str):
        return search.overlap or Overlap()
    if search.overlap not in overlap_catalogue():
        unknown = at.at("overlap").unknown("framework", search.overlap, overlap_catalogue())
        wrong.errors.append(unknown)
    return overlap_catalogue().get(search.overlap)


def _given(
    wrong: Mistakes,
    written: InstanceFile,
    place: Place,
    profile: WrittenProfile | None,
    folder: Path,
) -> Given:
    """Machines and model, on which all else rests. Raises InstanceError without one of them.

    Where attention cannot be fused, the model is read without.
    """
    training, at = written.workload, place.at("workload")
    cluster = wrong.of(resolve_cluster, written.cluster, place.at("cluster"))
    flash = cluster and wrong.of(resolve_flash, training, at, cluster, profile)
    model = wrong.of(resolve_workload, training, at, folder, bool(flash))
    if cluster is None or model is None:
        raise joined(wrong.errors)
    architecture, workload = model
    fused = None
    if leaves_flash_open(training, cluster, profile):
        fused = resolve_workload(training, at, folder, True)[1]
    search = written.search, place.at("search")
    return Given(*search, architecture, workload, fused, cluster, profile)


def _tensor_groups(given: Given, kinds: list[str]) -> tuple[Profile | None, dict[str, object]]:
    """Measured times, and the strategies of tensor groups, each of which rests on the last one."""
    profile = given.profile
    times = resolve_profile(profile, kinds) if profile else None
    degrees = resolve_tensor_degrees(given, times, kinds)
    if profile and times:
        check_coverage(times, profile.place, kinds, given.cluster, degrees)
    split, tokens = resolve_sequence_parallel(given, degrees), given.workload.sequence_length
    return times, {
        "tensor_parallel": degrees,
        "sequence_parallel": split,
        "unsplit_degrees": tuple(tp for tp in degrees if split and tokens % tp),
        "expert_tensor_parallel": resolve_expert_split(given, degrees, split),
    }


def _check_precision(workload: Workload, cluster: Cluster, place: Place) -> None:
    peaks = [group.gpu.peak_flops for group in cluster.groups]
    shared = [precision for precision in PRECISIONS if all(precision in peak for peak in peaks)]
    for group in cluster.groups:
        if workload.precision not in group.gpu.peak_flops:
            problem = f"{workload.precision}, for which {group.gpu.name} of group {group.name!r}"
            allowed = ", ".join(shared) or "GPUs that share a precision"
            raise place.error(f"{problem} has no peak", allowed)


def _check_profile(profile: WrittenProfile, workload: Workload) -> None:
    """What a profile was measured with must be what it is used for, as far as it says so."""
    for name in ("precision", "hidden_size", "sequence_length"):
        measured, trained = getattr(profile.file, name), getattr(workload, name)
        if measured in (None, trained):
            continue
        at = profile.place.at(name)
        if name == "precision":
            problem = f"times in {measured}, for a workload in {trained}"
            raise at.error(problem, f"times in {trained}, or workload.precision: {measured}")
        problem = f"times of {name.replace('_', ' ')} {measured}, for a workload of {trained}"
        raise at.error(problem, f"times of {trained}, or a workload of {measured}")


def _check_objective(written: InstanceFile, place: Place) -> None:
    """Raises InstanceError for steps or prices that are missing, and limits that do not fit."""
    objective, limits, groups = written.objective, written.limits, written.cluster.groups
    if objective.minimize == "training_cost" and objective.steps is None:
        allowed = "steps of the training, which training_cost needs"
        raise place.at("objective", "steps").error("missing", allowed)
    chooses = objective.minimize == "cost_per_useful_sequence"  # between on demand and spot
    if chooses and limits.max_cost_usd_per_step is not None:
        problem = "a limit, with the objective cost_per_useful_sequence"
        allowed = "max_step_time or max_price_per_hour"
        raise place.at("limits", "max_cost_per_step").error(problem, allowed)
    priced = [group.price_usd_per_hour is not None for group in groups]
    both = [j for j, group in enumerate(groups) if group.spot and priced[j]]
    if chooses and len(both) > MOST_CHOICES_OF_TERMS:
        at = place.at("cluster", "groups", both[MOST_CHOICES_OF_TERMS], "spot")
        problem = f"a price on demand and on spot, as of {len(both) - 1} other groups"
        allowed = f"at most {MOST_CHOICES_OF_TERMS} groups with both; leave out one of the two"
        raise at.error(problem, allowed)
    wants_prices = (
        objective.minimize != "step_time"
        or limits.max_cost_usd_per_step is not None
        or limits.max_price_usd_per_hour is not None
    )
    for j, group in enumerate(groups):
        if wants_prices and not priced[j] and not (chooses and group.spot):
            allowed = "the price of one node, as objective or limits ask for money"
            raise place.at("cluster", "groups", j, "price").error("missing", allowed)
