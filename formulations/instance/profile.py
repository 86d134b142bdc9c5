"""Measured layer times, and what to do between and beyond the measured micro-batch sizes."""

from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from formulations.instance.extent import Count, Name, Text
from formulations.instance.record import Record

Origin = Literal["measured", "interpolated", "scaled"]


LayerSeconds = Annotated[float, Field(gt=0, le=1e6)]


class ProfileEntry(Record):
    """Forward and backward seconds of one layer kind on one GPU of a group of tp."""

    kind: Name
    gpu: Name  #: GpuType.name
    tp: Count
    micro_batch: Count
    forward_s: LayerSeconds
    backward_s: LayerSeconds


class Profile(Record):
    """Measured times; they replace the analytic compute model for the whole instance."""

    source: Text
    includes_tensor_parallel_traffic: bool
    entries: tuple[ProfileEntry, ...] = Field(min_length=1)

    def samples(self, kind: str, gpu: str, tp: int) -> list[ProfileEntry]:
        """Entries of one curve, by micro-batch size; empty where nothing was measured."""
        return self._curves.get((kind, gpu, tp), [])

    @cached_property
    def _curves(self) -> dict[tuple[str, str, int], list[ProfileEntry]]:
        curves: dict[tuple[str, str, int], list[ProfileEntry]] = {}
        for entry in sorted(self.entries, key=lambda entry: entry.micro_batch):
            curves.setdefault((entry.kind, entry.gpu, entry.tp), []).append(entry)
        return curves

    def time_s(self, kind: str, gpu: str, tp: int, b: int) -> tuple[float, float, Origin]:
        """Forward seconds, backward seconds and their origin at micro-batch size b.

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
            return near.forward_s * ratio, near.backward_s * ratio, "scaled"
        low, high = below[-1], above[0]
        if low.micro_batch == b:
            return low.forward_s, low.backward_s, "measured"
        share = (b - low.micro_batch) / (high.micro_batch - low.micro_batch)
        return (
            low.forward_s + share * (high.forward_s - low.forward_s),
            low.backward_s + share * (high.backward_s - low.backward_s),
            "interpolated",
        )
