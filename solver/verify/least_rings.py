"""What a ring collective of a stage takes at least, in whatever order the nodes stand.

For each number N of nodes that the stage may lie on; the least over N counts, layer by layer. One
node holds ceil(dp / N) slots or more, which a ring joins inside. If N > 1, tp rings cross each
border at least, and one of the N nodes' links is no faster than the N-th fastest of all. Where
groups differ in their degrees, buffers are as small as on any of them, lanes as few, and a slot has
as few parts.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from formulations.units import NANOSECONDS_PER_SECOND, ceil_div
from solver.verify.any_order import AnyOrder
from solver.verify.findings import NOISE

Array = NDArray[np.int64]


def at_least_ns(seconds: ArrayLike) -> Array:
    """Nanoseconds rounded up, after taking off twice the noise that rounding up forgives."""
    exact = np.asarray(seconds, dtype=np.float64) * NANOSECONDS_PER_SECOND
    whole: Array = np.ceil(exact * (1 - 2 * NOISE)).astype(np.int64)
    return whole


def least_collective_ns(order: AnyOrder, factor: float, sizes_bytes: Array) -> tuple[Array, int]:
    """[U] of any stage, and its start: see above.

    sizes_bytes: [U, groups used] a buffer per layer.
    """
    degrees = [order.shape.degrees[j] for j in order.used]
    copies = min(own.parts * own.cp for own in degrees)
    least = sizes_bytes.min(axis=1)
    crossing = (sizes_bytes * [own.tp for own in degrees]).min(axis=1)
    near, far = (
        [getattr(own, link) for own in order.groups] for link in ("intra_node", "inter_node")
    )
    inner, inner_s = (
        max(own.bandwidth_bytes_per_s for own in near),
        min(own.latency_s for own in near),
    )
    outer_s, links = min(own.latency_s for own in far), zip(order.counts, far, strict=True)
    outer = sorted(
        (own.bandwidth_bytes_per_s for count, own in links for _ in range(count)), reverse=True
    )
    layers, starts = [], []
    for nodes in order.spans():
        ranks = ceil_div(order.shape.dp, nodes) * copies
        efficiency = order.instance.cluster.efficiency(nodes)
        between = factor * (nodes - 1) / nodes / outer[nodes - 1] / efficiency
        inside = factor * (ranks - 1) / ranks / inner
        layers.append(at_least_ns(least * inside) + at_least_ns(crossing * between))
        delays = factor * inner_s * (ranks - 1), factor * outer_s * (nodes - 1)
        starts.append(sum(map(int, at_least_ns(delays))))
    return np.min(layers, axis=0), min(starts)
