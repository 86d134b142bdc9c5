"""What each node would have to receive for each position of new pipelines."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil

import numpy as np

from solver.fleets.assignment import FORBIDDEN, Array, least_largest
from solver.fleets.situation import Situation


@dataclass(frozen=True)
class Place:
    """A position of a new pipeline, which a node of the group may take to hold the layers."""

    pipeline: int
    group: int
    layers: range


class Receiving:
    """Positions are rows, nodes that are ready columns; FORBIDDEN for nodes of other groups."""

    def __init__(self, situation: Situation, places: Sequence[Place]) -> None:
        self._situation, self._places = situation, places
        self.own = [situation.held.get(node, range(0)) for node in situation.ready]
        self._before = [0, *accumulate(situation.layer_bytes)]

    def some_bytes(self, rows: Sequence[int], columns: Sequence[int]) -> Array:
        """Bytes to receive for some positions on some nodes."""
        groups = [self._situation.groups[node] for node in self._situation.ready]
        found = np.full((len(rows), len(columns)), FORBIDDEN, dtype=np.int64)
        for r, row in enumerate(rows):
            place = self._places[row]
            for c, column in enumerate(columns):
                if groups[column] == place.group:
                    found[r, c] = self._lacking(place.layers, self.own[column])
        return found

    def _lacking(self, layers: range, have: range) -> int:
        start, end = max(layers.start, have.start), min(layers.stop, have.stop)
        present = self._before[end] - self._before[start] if start < end else 0
        return self._before[layers.stop] - self._before[layers.start] - present

    @cached_property
    def all_bytes(self) -> Array:
        """[positions, nodes] bytes to receive."""
        return self.some_bytes(range(len(self._places)), range(len(self.own)))

    @cached_property
    def all_ns(self) -> Array:
        """[positions, nodes] ns on the node's own link, rounded up."""
        times, links = self.all_bytes.copy(), self._situation.links
        for column, node in enumerate(self._situation.ready):
            sizes, back = np.unique(times[:, column], return_inverse=True)
            each = [s if s == FORBIDDEN else ceil(links.node_ns(node, int(s))) for s in sizes]
            times[:, column] = np.array(each, dtype=np.int64)[back]
        return times

    @cached_property
    def least_ns(self) -> int:
        """No way to seat the nodes receives faster, latency apart.

        Proof. Each node receives all that it lacks over its own link; the slowest of them is
        least in `least_largest`. The transfer is no shorter than the slowest link, rounded up.
        """
        least = least_largest(self.all_ns)
        assert least is not None
        return least
