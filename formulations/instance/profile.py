"""Measured layer times, and what to do between and beyond the measured micro-batch sizes."""

from functools import cached_property
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from formulations.instance.input_limits import Count, Name, Text
from formulations.instance.record import Record

Origin = Literal["measured", "interpolated", "scaled"]


MeasuredSeconds = Annotated[float, Field(gt=0, le=1e6)]


class ProfileEntry(Record):
    """Seconds of one layer kind on one GPU of a group of tp.

    weight_s: of the backward pass, those for weight gradients; None where that was not measured.
    """

    kind: Name
    gpu: Name  #: GpuType.name
    tp: Count
    micro_batch: Count
    forward_s: MeasuredSeconds
    backward_s: MeasuredSeconds
    weight_s: MeasuredSeconds | None = None


class LayerSeconds(NamedTuple):
    """One layer and micro-batch; of the backward pass those for weight gradients, if measured."""

    forward: float
    backward: float
    weight: float | None


def _between(low: ProfileEntry, high: ProfileEntry, share: float) -> LayerSeconds:
    """The share of the way from one entry to the other."""

    def mix(one: float, other: float) -> float:
        return one + share * (other - one)

    known = low.weight_s is not None and high.weight_s is not None
    return LayerSeconds(
        mix(low.forward_s, high.forward_s),
        mix(low.backward_s, high.backward_s),
        mix(low.weight_s or 0.0, high.weight_s or 0.0) if known else None,
    )


class Profile(Record):
    """Measured times; they replace the analytic compute model for the whole instance.

    completed: but for curves that are missing.
    """

    source: Text
    includes_tensor_parallel_traffic: bool
    completed: bool = False
    entries: tuple[ProfileEntry, ...] = Field(min_length=1)

    def samples(self, kind: str, gpu: str, tp: int) -> list[ProfileEntry]:
        """Entries of one curve, by micro-batch size; empty where nothing was measured."""
        return self._curves.get((kind, gpu, tp), [])

    def has_time(self, kind: str, gpu: str, tp: int) -> bool:
        """Whether there is a time for this curve, by measurement or by the analytic model."""
        return self.completed or bool(self.samples(kind, gpu, tp))

    def measures(self, gpu: str) -> bool:
        """Whether there is any time on this GPU."""
        return any(entry.gpu == gpu for entry in self.entries)

    @cached_property
    def _curves(self) -> dict[tuple[str, str, int], list[ProfileEntry]]:
        curves: dict[tuple[str, str, int], list[ProfileEntry]] = {}
        for entry in sorted(self.entries, key=lambda entry: entry.micro_batch):
            curves.setdefault((entry.kind, entry.gpu, entry.tp), []).append(entry)
        return curves

    def time_s(self, kind: str, gpu: str, tp: int, b: int) -> tuple[LayerSeconds, Origin]:
        """Seconds of the passes and their origin at micro-batch size b.

        Between two measured sizes: linear. Outside: in proportion to the nearest size.
        Raises KeyError where the curve is missing.
        """
        curve = self.samples(kind, gpu, tp)
        if not curve:
            raise KeyError(f"{kind} on {gpu} at tp {tp}")
        below = [e for e in curve if e.micro_batch <= b]
        above = [e for e in curve if e.micro_batch >= b]
        if not below or not above:
            near = (below or above)[-1 if below else 0]
            ratio = b / near.micro_batch
            weight = None if near.weight_s is None else near.weight_s * ratio
            return LayerSeconds(near.forward_s * ratio, near.backward_s * ratio, weight), "scaled"
        low, high = below[-1], above[0]
        if low.micro_batch == b:
            return _between(low, low, 0.0), "measured"
        share = (b - low.micro_batch) / (high.micro_batch - low.micro_batch)
        return _between(low, high, share), "interpolated"
