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
from formulations.instance.input_limits import Count, Name, Text
from formulations.instance.profile import leaves
from formulations.instance.record import Fraction, Record, Section

LEAST_FACTOR, MOST_FACTOR = 0.05, 20.0
Factor = Annotated[float, Field(ge=LEAST_FACTOR, le=MOST_FACTOR)]
MeanError = Annotated[float, Field(ge=0, le=100)]
Key = TypeVar("Key")
Entry = TypeVar("Entry")
Table = Annotated[dict[Key, Entry], Field(min_length=1)]


class CalibrationFile(Section):
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


class Correction(Record):
    """What the times of one layer kind at one kernel shape are multiplied by."""

    kind: Name
    gpu: Name  #: GpuType.name
    tp: Count
    micro_batch: Count
    factor: Factor


class Calibration(Record):
    """Factors, what they come from, and how far steps are expected to be off with them.

    expected_error: mean |error| of measured steps, each predicted without itself by others of its
    kernel shape; None where no shape has two. expected_error_elsewhere: the same of steps that are
    predicted by other shapes alone; None where there is one shape.
    """

    source: Text
    expected_error: MeanError | None = None
    expected_error_elsewhere: MeanError | None = None
    corrections: tuple[Correction, ...] = Field(min_length=1)

    def factor(self, kind: str, gpu: str, tp: int, micro_batch: int) -> float | None:
        """Of a layer kind at a kernel shape; where it has none the geometric mean on this GPU type.

        None for a layer kind without any there.
        """
        factors = self._factors.get((kind, gpu), {})
        return factors.get((tp, micro_batch)) or self._means.get((kind, gpu))

    def was_measured(self, gpu: str, tp: int, micro_batch: int) -> bool:
        """Whether a kernel shape has factors of its own."""
        shape = tp, micro_batch
        return any(shape in shapes for (_, on), shapes in self._factors.items() if on == gpu)

    @cached_property
    def _factors(self) -> dict[tuple[str, str], dict[tuple[int, int], float]]:
        factors: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
        for correction in self.corrections:
            shapes = factors.setdefault((correction.kind, correction.gpu), {})
            shapes[correction.tp, correction.micro_batch] = correction.factor
        return factors

    @cached_property
    def _means(self) -> dict[tuple[str, str], float]:
        return {key: exp(fmean(map(log, shapes.values()))) for key, shapes in self._factors.items()}


def resolve_calibration(
    written: CalibrationFile | None, place: Place, kinds: Sequence[str], cluster: Cluster
) -> Calibration | None:
    """The corrections. Raises InstanceError for one of another layer kind or GPU type."""
    if written is None:
        return None
    gpu_names = list(dict.fromkeys(group.gpu.name for group in cluster.groups))
    corrections = []
    for (kind, gpu, tp, b), factor in leaves(written.factors):
        at = place.at("factors", kind)
        if kind not in kinds:
            raise at.unknown("layer kind", kind, kinds)
        if gpu not in gpu_names:
            raise at.at(gpu).unknown("GPU", gpu, gpu_names)
        corrections.append(Correction(kind=kind, gpu=gpu, tp=tp, micro_batch=b, factor=factor))
    fields = written.model_dump(exclude={"factors", "memory_headroom"})
    return Calibration.model_validate({**fields, "corrections": tuple(corrections)})
