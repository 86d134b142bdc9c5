"""What a ring collective of a stage takes at least, in whatever order the nodes stand.

For each number N of nodes that the stage may lie on; the least over N counts, layer by layer. One
node holds ceil(dp / N) slots or more. N - 2 nodes, or all if every c_j is q, are whole, so their
rings join c_j slots each; one of them is no faster than the (N - 2)-th fastest such ring of all
nodes, nor one of the N nodes' links than the N-th fastest. If N > 1, tp rings cross each border at
least. With a node of a group they cross that one's too, and N - 1 others hold what it leaves of the
stage. Where groups differ in their degrees, buffers are as small as on any of them, lanes as few,
and a slot has as few parts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from formulations.plan import Degrees
from formulations.units import NANOSECONDS_PER_SECOND, ceil_div
from solver.verify.any_order import AnyOrder
from solver.verify.findings import NOISE

Array = NDArray[np.int64]


def at_least_ns(seconds: ArrayLike) -> Array:
    """Nanoseconds rounded up, after taking off twice the noise that rounding up forgives."""
    exact = np.asarray(seconds, dtype=np.float64) * NANOSECONDS_PER_SECOND
    whole: Array = np.ceil(exact * (1 - 2 * NOISE)).astype(np.int64)
    return whole


@dataclass(frozen=True)
class LeastRings:
    """Ring collectives over the replicas of one stage of a shape."""

    order: AnyOrder

    def collective_ns(self, factor: float, sizes_bytes: Array) -> tuple[Array, int]:
        """[U, groups used] of a stage with a node of the group, and its start: see above.

        sizes_bytes: [U, groups used] a buffer per layer.
        """
        spans, tp = self.order.spans(), self._least_tp
        lanes = np.array([own.tp for own in self._degrees])
        least = sizes_bytes.min(axis=1)[:, None, None].astype(np.float64)
        crossing = ((sizes_bytes * lanes).min(axis=1) / tp)[:, None, None]
        inside_s = np.array([self._inside_s(factor, nodes) for nodes in spans])[:, None]
        outside_s = np.array([self._outside_s(factor, nodes) for nodes in spans])
        layers = at_least_ns(least * inside_s) + at_least_ns(crossing * outside_s)
        lacking = np.array([self._lacking(nodes) for nodes in spans])
        layers = np.where(lacking, np.iinfo(np.int64).max, layers).min(axis=1)
        return layers, min(self._start_ns(factor, nodes) for nodes in spans)

    @property
    def _degrees(self) -> list[Degrees]:
        """Of the groups used."""
        return [self.order.shape.degrees[j] for j in self.order.used]

    @property
    def _least_tp(self) -> int:
        return min(own.tp for own in self._degrees)

    def _members(self, nodes: int) -> int:
        """Fewest GPUs that a ring joins on the node of a stage that holds most."""
        fewest = min(own.parts * own.cp for own in self._degrees)
        return ceil_div(self.order.shape.dp, nodes) * fewest

    def _ranked(self, values: Iterable[float]) -> list[float]:
        """[N] of the N-th best node, 0 of none; values: one per group used."""
        nodes = zip(self.order.counts, values, strict=True)
        return [0.0, *sorted(value for count, value in nodes for _ in range(count))]

    @cached_property
    def _rings_s(self) -> list[float]:
        """[N] seconds per byte of a ring over the whole N-th best node."""
        slots = zip(self.order.slots, self._degrees, strict=True)
        ranks = [count * own.parts * own.cp for count, own in slots]
        return self._ranked(
            (c - 1) / c / group.intra_node.bandwidth_bytes_per_s
            for group, c in zip(self.order.groups, ranks, strict=True)
        )

    @cached_property
    def _own_s(self) -> list[float]:
        """[groups used] seconds per byte over the border of one of its nodes."""
        return [1 / group.inter_node.bandwidth_bytes_per_s for group in self.order.groups]

    @cached_property
    def _links_s(self) -> list[float]:
        """[N] seconds per byte over the border of the N-th best node."""
        return self._ranked(self._own_s)

    @cached_property
    def _delays_s(self) -> list[float]:
        """[N] latency of the N-th best of these links."""
        return self._ranked(group.inter_node.latency_s for group in self.order.groups)

    def _inside_s(self, factor: float, nodes: int) -> float:
        """Per byte of a buffer, inside nodes."""
        members, aligned = self._members(nodes), self.order.flows == max(self.order.slots)
        inner = max(group.intra_node.bandwidth_bytes_per_s for group in self.order.groups)
        whole = nodes if aligned else max(nodes - 2, 0)
        return factor * max((members - 1) / members / inner, self._rings_s[whole])

    def _outside_s(self, factor: float, nodes: int) -> list[float]:
        """[groups used] the same between nodes."""
        efficiency = self.order.instance.cluster.efficiency(nodes)
        share = self._least_tp * factor * (nodes - 1) / nodes / efficiency
        return [share * max(self._links_s[nodes], own) for own in self._own_s]

    def _lacking(self, nodes: int) -> list[bool]:
        """[groups used] whether a stage with a node of the group needs more nodes than these."""
        dp, slots = self.order.shape.dp, self.order.slots
        return [nodes < 1 + ceil_div(max(dp - c, 0), max(slots)) for c in slots]

    def _start_ns(self, factor: float, nodes: int) -> int:
        inner_s = min(group.intra_node.latency_s for group in self.order.groups)
        inside_ns = at_least_ns(factor * inner_s * (self._members(nodes) - 1))
        return int(inside_ns + at_least_ns(factor * self._delays_s[nodes] * (nodes - 1)))
