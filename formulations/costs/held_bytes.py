"""Memory of layers in sums up to each layer boundary, on one node group."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from formulations.costs.intervals import interval_maxima
from formulations.costs.memory import LayerMemory

Array = NDArray[np.int64]
Moments = tuple[tuple[int, int], ...]  #: see `formulations.schedules.stage_moments`


def before(values: Array) -> Array:
    """Sum of all values [L, ..] before each layer boundary, [L + 1, ..]."""
    return np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])


class HeldBytes:
    """Memory of the layers of stages on one node group, in sums up to each layer boundary."""

    def __init__(self, memory: LayerMemory) -> None:
        self.memory = memory
        self.static = before(memory.static_bytes)
        self.put_off = before(memory.put_off_bytes)
        self.activation = [before(way.activation_bytes) for way in memory.kept]
        self.least_kept = before(np.min([way.activation_bytes for way in memory.kept], axis=0))

    @cached_property
    def largest(self) -> list[Array]:
        """Per way [n, n] largest workspace of layers [start, end)."""
        return [interval_maxima(way.workspace_bytes) for way in self.memory.kept]

    def most(self, kept: Array, moments: Moments, start: Array, end: Array) -> Array:
        """[N] bytes of activations at the fullest moment; kept: [n] before each boundary."""
        own = kept[end] - kept[start]
        whole = max(count for count, _ in moments)
        if not any(late for _, late in moments):
            return whole * own
        waiting = self.put_off[end] - self.put_off[start]
        most: Array = np.max([count * own + late * waiting for count, late in moments], axis=0)
        return most
