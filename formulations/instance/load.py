"""The way from the path of an instance file to an `Instance`.

Instance files as people write them; defaults, catalogues, checks across fields.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from formulations.errors import InstanceError, Mistakes, joined
from formulations.instance.cluster import ClusterFile, resolve_cluster
from formulations.instance.documents import Place, parse_document, read_text
from formulations.instance.instance import (
    MOST_MEMBERS,
    Family,
    Instance,
    Limits,
    LimitsFile,
    Objective,
    PreemptionFile,
    resolve_preemption,
)
from formulations.instance.lengths import LengthsFile, read_classes, resolve_lengths, with_lengths
from formulations.instance.node_group import CountRange
from formulations.instance.profile import (
    Calibration,
    ProfileFile,
    WrittenProfile,
    check_calibration,
)
from formulations.instance.record import MOST_CHOICES_OF_TERMS, Name, NameOr, Section, Text
from formulations.instance.resolve_search import (
    Given,
    errors_alone,
    narrowed,
    resolve_search,
    untrained_errors,
)
from formulations.instance.resolve_workload import WorkloadFile, resolve_flash, resolve_workload
from formulations.instance.search import SearchFile
from formulations.instance.validation import validated
from formulations.instance.workload import PRECISIONS

#: What a command asks of an instance besides, see `formulations.space.fleets`.
Check = Callable[[Instance, Place], None]
ALLOWED = "the path of an instance file, such as instances/hetero_small.yaml"


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
    profile: NameOr[ProfileFile] | None = None
    """Measured layer times, or the path of a file with them, relative to this file's folder.
    Default: the analytic model."""
    calibration: Calibration | None = None
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


def load_instance(path: Path, check: Check | None = None) -> Instance:
    """The instance of a YAML file; `check` of it and its place raises for what else is asked."""
    return parse_instance(read_text(path, ALLOWED), str(path), path.parent, check)


def load_family(path: Path) -> Family:
    """Instances of a YAML file whose groups may have ranges of nodes. Raises as `load_instance`."""
    return parse_family(read_text(path, ALLOWED), str(path), path.parent)


def parse_family(text: str, name: str, folder: Path) -> Family:
    """As `load_family`, of YAML text; `name` and `folder` as for `parse_instance`."""
    written, place = _written(text, name)
    nodes = [group.nodes for group in written.cluster.groups]
    fewest = tuple(n.min if isinstance(n, CountRange) else n for n in nodes)
    instance = _resolve(written, place, folder)
    try:
        return Family(instance=instance, fewest=fewest)
    except ValidationError as error:
        problem = str(error.errors()[0]["ctx"]["error"])
        raise place.at("cluster", "groups").error(problem, f"at most {MOST_MEMBERS:,}") from None


def parse_instance(text: str, name: str, folder: Path, check: Check | None = None) -> Instance:
    """The instance of YAML text; `name` stands for the file in errors, paths start in `folder`."""
    written, place = _written(text, name)
    for j, group in enumerate(written.cluster.groups):
        if isinstance(group.nodes, CountRange):
            where = place.at("cluster", "groups", j, "nodes")
            raise where.error("a range", "one number; pareto takes ranges")
    instance = _resolve(written, place, folder)
    if check is not None:
        check(instance, place)
    return instance


def check_profile(text: str, name: str) -> None:
    """Returns if the YAML text is a profile; InstanceError if not."""
    validated(ProfileFile, parse_document(text, name))


def _written(text: str, name: str) -> tuple[InstanceFile, Place]:
    document = parse_document(text, name)
    return validated(InstanceFile, document), Place(document)


def _resolve(written: InstanceFile, place: Place, folder: Path) -> Instance:
    """The instance. Raises InstanceError for all fields that do not fit the others."""
    wrong = Mistakes()
    profile = _profile(written.profile, place.at("profile"), folder)
    classes = read_classes(written.lengths, place.at("lengths"), folder)
    training = with_lengths(written.workload, place.at("workload"), classes)
    state = training.optimizer_state
    written = written.but(workload=training, search=narrowed(written.search, state))
    wrong.errors += errors_alone(written.search, state, place.at("search"))
    wrong.of(_check_objective, written, place)
    given = _given(wrong, written, place, profile, folder)

    # What rests on machines and model.
    cluster, workload = given.cluster, given.workload
    chosen = resolve_search(wrong, given)
    wrong.errors += untrained_errors(given, place.at("workload"))
    wrong.errors += _unlike(given, place.at("workload", "precision"))
    wrong.of(check_calibration, written.calibration, place.at("calibration"), given.kinds, cluster)
    mixed = wrong.of(resolve_lengths, written.lengths, place.at("lengths"), classes, given)
    if chosen is None or wrong.errors:
        raise joined(wrong.errors)

    preemption = None
    if written.preemption or written.objective.minimize == "cost_per_useful_sequence":
        preemption = resolve_preemption(written.preemption, workload.parameters)
    # Of the memory, what measured peaks were above the model's is left free too.
    measured = (written.calibration and written.calibration.memory_headroom) or 0.0
    headroom = max(written.limits.memory_headroom, measured)
    network = (written.calibration and written.calibration.network) or 1.0
    times, search = chosen
    decided = {
        "workload": workload,
        "cluster": cluster.with_network_factor(network),
        "profile": times,
        "search": search,
        "limits": Limits.model_validate({**dict(written.limits), "memory_headroom": headroom}),
        "preemption": preemption,
        "lengths": mixed,
        "fused": given.fused,
    }
    return Instance.model_validate({**dict(written), **decided})


def _profile(
    written: ProfileFile | str | None, place: Place, folder: Path
) -> WrittenProfile | None:
    if written is None or isinstance(written, ProfileFile):
        return None if written is None else WrittenProfile(written, place)
    allowed = "the path of a profile from this file's folder, or the profile itself"
    path = folder / written
    document = parse_document(read_text(path, allowed, place), str(path))
    return WrittenProfile(validated(ProfileFile, document), Place(document))


def _given(
    wrong: Mistakes,
    written: InstanceFile,
    place: Place,
    profile: WrittenProfile | None,
    folder: Path,
) -> Given:
    """Machines and model, on which all else rests; where attention cannot be fused, without."""
    training, at = written.workload, place.at("workload")
    cluster = wrong.of(resolve_cluster, written.cluster, place.at("cluster"))
    flash = (cluster and wrong.of(resolve_flash, training, at, cluster, profile)) or (False, False)
    model = wrong.of(resolve_workload, training, at, folder, flash[0])
    if cluster is None or model is None:
        raise joined(wrong.errors)
    architecture, workload = model
    fused = resolve_workload(training, at, folder, True)[1] if flash[1] else None
    search = written.search, place.at("search")
    return Given(*search, architecture, workload, fused, cluster, profile)


def _unlike(given: Given, place: Place) -> Iterator[InstanceError]:
    """A precision that a GPU lacks, and a profile of another one, or of another model."""
    workload, groups, profile = given.workload, given.cluster.groups, given.profile
    peaks = [group.gpu.peak_flops for group in groups]
    if lacking := [g for g in groups if workload.precision not in g.gpu.peak_flops]:
        shared = [name for name in PRECISIONS if all(name in peak for peak in peaks)]
        gpu, group = lacking[0].gpu.name, lacking[0].name
        problem = f"{workload.precision}, for which {gpu} of group {group!r} has no peak"
        yield place.error(problem, ", ".join(shared) or "GPUs that share a precision")
    for name in ("precision", "hidden_size", "sequence_length"):
        measured, trained = profile and getattr(profile.file, name), getattr(workload, name)
        if profile and measured not in (None, trained):
            problem = f"times of {name.replace('_', ' ')} {measured}, for a workload of {trained}"
            allowed = f"times of {trained}, or a workload of {measured}"
            yield profile.place.at(name).error(problem, allowed)


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
