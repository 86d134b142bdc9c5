"""Flash attention: which GPUs have it, in which precisions, and whether plans do."""

from formulations.instance.cluster import Cluster
from formulations.instance.documents import Place
from formulations.instance.machines import FLASH_CAPABILITY
from formulations.instance.profile import WrittenProfile
from formulations.instance.record import shown
from formulations.instance.resolve_workload import WorkloadFile
from formulations.instance.workload import FLASH_PRECISIONS, Precision


def has_flash(cluster: Cluster, precision: Precision) -> bool:
    """Whether every GPU is known to have it in this precision."""
    return precision in FLASH_PRECISIONS and all(group.gpu.has_flash for group in cluster.groups)


def flash_obstacle(cluster: Cluster, precision: Precision) -> tuple[str, str] | None:
    """What keeps GPUs from it, and what would not; None: nothing that is known."""
    if precision not in FLASH_PRECISIONS:
        allowed = f"workload.precision among {', '.join(FLASH_PRECISIONS)}"
        return f"in {precision}, in which it has no kernels", allowed
    for group in cluster.groups:
        capability = group.gpu.compute_capability
        if capability is not None and capability < FLASH_CAPABILITY:
            problem = f"but group {group.name} has {group.gpu.name} of capability {capability}"
            return problem, f"GPUs of compute capability {FLASH_CAPABILITY} (Ampere) or later"
    return None


def flash_remedy(cluster: Cluster, precision: Precision) -> str:
    """What to change where plans do not have it and should."""
    obstacle = flash_obstacle(cluster, precision)
    return "workload.flash_attention: true" if obstacle is None else obstacle[1]


def resolve_flash(
    written: WorkloadFile, place: Place, cluster: Cluster, profile: WrittenProfile | None
) -> tuple[bool, bool]:
    """Whether attention keeps no scores, and whether plans decide on that, as their GPUs can.

    As written or measured; else where all GPUs can, and where some can plans decide.

    Raises InstanceError for a precision or a GPU that cannot, and for a profile measured otherwise.
    """
    place = place.at("flash_attention")
    chosen = as_measured(written.flash_attention, place, profile, "flash_attention")
    if chosen is None:
        able = [group.gpu.has_flash for group in cluster.groups]
        is_open = written.precision in FLASH_PRECISIONS and any(able) and not all(able)
        return has_flash(cluster, written.precision), is_open
    if chosen and (obstacle := flash_obstacle(cluster, written.precision)):
        raise place.error(f"true, {obstacle[0]}", f"false, or {obstacle[1]}")
    return chosen, False


def as_measured(
    written: bool | None, place: Place, profile: WrittenProfile | None, field: str
) -> bool | None:
    """What was written, or of a profile what it states; InstanceError where both differ."""
    if profile is None:
        return written
    measured: bool = getattr(profile.file, field)
    if written is not None and written != measured:
        way = "with" if measured else "without"
        allowed = f"{shown(measured)}, or a profile that states {field}: {shown(written)}"
        raise place.error(f"{shown(written)}, but the profile was measured {way} it", allowed)
    return measured
