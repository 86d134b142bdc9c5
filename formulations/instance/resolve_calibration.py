"""From written corrections of layer times to a calibration of the cluster's GPUs."""

from collections.abc import Sequence

from formulations.instance.calibration import Calibration, Correction
from formulations.instance.cluster import Cluster
from formulations.instance.positions import Place
from formulations.instance.schema import CalibrationFile


def resolve_calibration(
    written: CalibrationFile | None, place: Place, kinds: Sequence[str], cluster: Cluster
) -> Calibration | None:
    """The corrections. Raises InstanceError for one of another layer kind or GPU type."""
    if written is None:
        return None
    known = list(dict.fromkeys(group.gpu.name for group in cluster.groups))
    corrections = []
    for kind, gpus in written.factors.items():
        if kind not in kinds:
            raise place.at("factors", kind).unknown("layer kind", kind, kinds)
        for gpu, degrees in gpus.items():
            if gpu not in known:
                raise place.at("factors", kind, gpu).unknown("GPU", gpu, known)
            corrections += [
                Correction(kind=kind, gpu=gpu, tp=tp, micro_batch=b, factor=factor)
                for tp, curve in degrees.items()
                for b, factor in curve.items()
            ]
    fields = written.model_dump(exclude={"factors", "memory_headroom"})
    return Calibration.model_validate({**fields, "corrections": tuple(corrections)})
