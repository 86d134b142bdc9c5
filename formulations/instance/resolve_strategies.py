"""Memory strategies: defaults that depend on GPUs or profile, and what excludes what."""

from collections.abc import Sequence

from formulations.instance.cluster import Cluster, flash_obstacle, has_flash
from formulations.instance.positions import Place
from formulations.instance.precision import FLASH_PRECISIONS
from formulations.instance.quantities import shown
from formulations.instance.schema import ProfileFile, SearchFile, WorkloadFile
from formulations.instance.workload import Recompute

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
    return [one for one in written.recompute if not (flash and one == "selective")]


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
