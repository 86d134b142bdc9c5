"""Corrections of layer times by measured steps, per kernel shape.

Kernels of a layer take their sizes from the model's width, the tensor-parallel degree and the
micro-batch; the width is the instance's. The times of a layer kind on a GPU type at a degree and
micro-batch size, with their tensor-parallel traffic, are multiplied by one factor.
"""

from collections.abc import Sequence
from functools import cached_property
from math import exp, log
from statistics import fmean
from typing import Annotated, TypeVar

from pydantic import Field

from formulations.instance.cluster import Cluster
from formulations.instance.documents import Place
from formulations.instance.profile import leaves
from formulations.instance.record import Count, Fraction, Name, Section, Text

LEAST_FACTOR, MOST_FACTOR = 0.05, 20.0
Factor = Annotated[float, Field(ge=LEAST_FACTOR, le=MOST_FACTOR)]
MeanError = Annotated[float, Field(ge=0, le=100)]
Key = TypeVar("Key")
Entry = TypeVar("Entry")
Table = Annotated[dict[Key, Entry], Field(min_length=1)]


class Calibration(Section):
    """Corrections of layer times by measured steps; `hetplan calibrate` writes them."""

    source: Text
    """The measured steps."""
    expected_error: MeanError | None = None
    """Mean error of measured steps, each predicted by the others, with a factor for their GPU,
    degree and micro-batch size among them."""
    expected_error_elsewhere: MeanError | None = None
    """The same without one."""
    memory_headroom: Fraction | None = None
    """Share of the memory to leave free at least: measured peaks were above the memory model's by
    as much."""
    factors: Table[Name, Table[Name, Table[Count, Table[Count, Factor]]]]
    """Layer kind -> GPU name -> tp -> micro-batch size -> what the layer's times are multiplied by,
    tensor-parallel traffic included. Where there is none: the mean of a kind on a GPU."""

    def factor(self, kind: str, gpu: str, tp: int, micro_batch: int) -> float | None:
        """Of a layer kind at a kernel shape; where it has none the geometric mean on this GPU type.

        None for a layer kind without any there.
        """
        stated = self.factors.get(kind, {}).get(gpu, {}).get(tp, {}).get(micro_batch)
        return stated or self._means.get((kind, gpu))

    def was_measured(self, gpu: str, tp: int, micro_batch: int) -> bool:
        """Whether a kernel shape has factors of its own."""
        kinds = self.factors.values()
        return any(micro_batch in gpus.get(gpu, {}).get(tp, {}) for gpus in kinds)

    @cached_property
    def _means(self) -> dict[tuple[str, str], float]:
        logs: dict[tuple[str, str], list[float]] = {}
        for (kind, gpu, *_), factor in leaves(self.factors):
            logs.setdefault((kind, gpu), []).append(log(factor))
        return {key: exp(fmean(values)) for key, values in logs.items()}


def check_calibration(
    calibration: Calibration | None, place: Place, kinds: Sequence[str], cluster: Cluster
) -> None:
    """Raises InstanceError for factors of another layer kind or GPU type."""
    gpu_names = list(dict.fromkeys(group.gpu.name for group in cluster.groups))
    for kind, gpus in calibration.factors.items() if calibration else ():
        at = place.at("factors", kind)
        if kind not in kinds:
            raise at.unknown("layer kind", kind, kinds)
        for gpu in gpus:
            if gpu not in gpu_names:
                raise at.at(gpu).unknown("GPU", gpu, gpu_names)
