"""From written layer times to a profile, and the check that it covers what will be asked of it."""

from collections.abc import Iterable, Iterator

from formulations.instance.cluster import Cluster
from formulations.instance.positions import Place
from formulations.instance.profile import Profile, ProfileEntry
from formulations.instance.schema import ProfileFile

_SECONDS_PER_MS = 1e-3


def resolve_profile(written: ProfileFile, place: Place, kinds: list[str]) -> Profile:
    """The profile in seconds.

    Raises InstanceError for a kind that is not one of the workload's `kinds`, and for a forward
    time alone where `backward_over_forward` is not given.
    """
    return Profile(
        source=written.source,
        includes_tensor_parallel_traffic=written.includes_tensor_parallel_traffic,
        completed=written.missing_times == "analytic",
        entries=tuple(_entries(written, place, kinds)),
    )


def _entries(written: ProfileFile, place: Place, kinds: list[str]) -> Iterator[ProfileEntry]:
    ratio = written.backward_over_forward
    for kind, gpus in written.times_ms.items():
        if kind not in kinds:
            raise place.at("times_ms", kind).unknown("layer kind", kind, kinds)
        for gpu, degrees in gpus.items():
            for tp, curve in degrees.items():
                for b, times in curve.items():
                    at = place.at("times_ms", kind, gpu, tp, b)
                    forward, backward, weight = _passes(times, ratio, at)
                    yield ProfileEntry(
                        kind=kind,
                        gpu=gpu,
                        tp=tp,
                        micro_batch=b,
                        forward_s=forward * _SECONDS_PER_MS,
                        backward_s=backward * _SECONDS_PER_MS,
                        weight_s=None if weight is None else weight * _SECONDS_PER_MS,
                    )


def _passes(
    times: float | list[float], ratio: float | None, place: Place
) -> tuple[float, float, float | None]:
    """Forward, backward, of that weight gradients if they were measured; ms."""
    if isinstance(times, list):
        forward, backward, weight = (*times, None)[:3]
        assert forward is not None
        assert backward is not None
        if weight is not None and weight > backward:
            raise place.error(
                f"{weight} ms of weight gradients", f"at most {backward}, the backward"
            )
        return forward, backward, weight
    if ratio is None:
        allowed = "[forward, backward] in ms, or also the field backward_over_forward"
        raise place.error(f"{times} alone", allowed)
    return times, times * ratio, None


def covered_degrees(
    profile: Profile, kinds: list[str], cluster: Cluster, degrees: Iterable[int]
) -> list[int]:
    """Those tensor-parallel degrees for which no curve is missing."""
    return [tp for tp in degrees if next(_missing(profile, kinds, cluster, tp), None) is None]


def check_coverage(
    profile: Profile, place: Place, kinds: list[str], cluster: Cluster, degrees: Iterable[int]
) -> None:
    """Raises InstanceError for the first curve that a plan of these degrees could ask for."""
    for tp in degrees:
        for kind, gpu in _missing(profile, kinds, cluster, tp):
            gpus = dict.fromkeys(group.gpu.name for group in cluster.groups)
            raise place.at("times_ms", kind, gpu, tp).error(
                f"no times of {kind} on {gpu} at tensor-parallel degree {tp}",
                f"times of every layer kind ({', '.join(kinds)}) on every GPU ({', '.join(gpus)})"
                " at every degree to choose from; or narrow search.tensor_parallel, or"
                " missing_times: analytic",
            )


def _missing(
    profile: Profile, kinds: list[str], cluster: Cluster, tp: int
) -> Iterator[tuple[str, str]]:
    """Kinds and GPUs without a time, on the nodes that groups of tp GPUs fill exactly."""
    gpus = [group.gpu.name for group in cluster.groups if group.gpus_per_node % tp == 0]
    return ((kind, gpu) for kind in kinds for gpu in gpus if not profile.has_time(kind, gpu, tp))
