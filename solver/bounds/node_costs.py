"""What the nodes of a group cost a stage at least, wherever in an order they stand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, lcm

import numpy as np

from formulations.costs.intervals import interval_sums
from formulations.costs.placement import NodeTerms, Placer, SyncPhase
from formulations.units import ceil_div
from solver.layered.problem import Array


@dataclass(frozen=True)
class LeastCosts:
    """Of one node group, ns.

    inside: transfer to the next stage on the same node, None if no node has two; outside: to or
    from another node. sync, gather: [L] and start-up. embedding: tied embeddings, where it has a
    node on the first stage, and on the last.
    """

    inside: int | None
    outside: int
    sync: tuple[Array, int]
    gather: tuple[Array, int]
    embedding: tuple[int, int]

    @property
    def sync_matrix(self) -> Array:
        """[n, n] of the layers of a stage."""
        return interval_sums(self.sync[0]) + self.sync[1]

    @property
    def gather_matrix(self) -> Array:
        """[n, n] of the layers of a stage."""
        return interval_sums(self.gather[0]) + self.gather[1]

    @property
    def sync_ns(self) -> int:
        """Of all layers."""
        return int(self.sync[0].sum()) + self.sync[1]


def cheapest(parts: Sequence[LeastCosts]) -> LeastCosts:
    """What the nodes of several groups cost at least."""
    first, *others = parts
    for other in others:
        inside = [time for time in (first.inside, other.inside) if time is not None]
        sync, gather, ends = zip(
            *((part.sync, part.gather, part.embedding) for part in (first, other)), strict=True
        )
        first = LeastCosts(
            inside=min(inside, default=None),
            outside=min(first.outside, other.outside),
            sync=(np.minimum(sync[0][0], sync[1][0]), min(sync[0][1], sync[1][1])),
            gather=(np.minimum(gather[0][0], gather[1][0]), min(gather[0][1], gather[1][1])),
            embedding=(min(ends[0][0], ends[1][0]), min(ends[0][1], ends[1][1])),
        )
    return first


def _starts(placer: Placer, j: int) -> list[int]:
    """First slots of a node that between them show all its terms.

    Nodes start at multiples of the greatest common divisor of their sizes. Away from both ends of
    the order terms depend on the place within a stage alone, so they repeat after the least common
    multiple of that and dp. On the first stage nothing enters, from the last one nothing leaves.
    """
    tables = placer.tables
    dp, last = tables.shape.dp, tables.shape.slots - tables.slots_per_node[j]
    used = zip(tables.slots_per_node, tables.shape.nodes_used, strict=True)
    step = gcd(*(size for size, n in used if n))
    period = dp + lcm(step, dp)
    return [start for start in range(0, last + 1, step) if start < period or start > last - dp]


def _sync(placer: Placer, phase: SyncPhase, nodes: list[NodeTerms]) -> tuple[Array, int]:
    """[L] and start-up that no stage with such a node undercuts."""
    tables = placer.tables
    cluster, dp = tables.instance.cluster, tables.shape.dp
    fewest = ceil_div(dp, max(tables.slots_per_node))
    counts = range(max(2, fewest), min(dp, sum(tables.shape.nodes_used)) + 1)
    least: list[tuple[Array, int]] = []
    pairs = {
        (node.inside[k], node.inside_latency_s[k], node.outside.get(k))
        for node in nodes
        for k in node.inside
    }
    for rate, latency_s, outside in pairs:
        inside, start = phase.inside_ns(rate), phase.latency_ns(latency_s, 1, 0.0)
        if outside is not None:
            rings = [phase.outside_ns(outside, n, cluster.efficiency(n)) for n in counts]
            inside = inside + np.min(rings, axis=0)
        least.append((inside, start))
    return np.min([ring for ring, _ in least], axis=0), min(start for _, start in least)


def _sends(placer: Placer, j: int, starts: list[int]) -> Iterator[tuple[bool, int]]:
    """Transfers of nodes from these slots: whether to the same node, and ns."""
    dp, size = placer.tables.shape.dp, placer.tables.slots_per_node[j]
    for start in starts:
        for slot, (time, *_) in placer.terms(j, start).send_ns.items():
            yield start <= slot and slot + dp < start + size, time


def least_costs(placer: Placer, j: int) -> LeastCosts:
    """Those of node group j."""
    tables, starts = placer.tables, _starts(placer, j)
    dp, size = tables.shape.dp, tables.slots_per_node[j]
    nodes = [placer.terms(j, start) for start in starts]
    sends = list(_sends(placer, j, starts))
    embedding = [(start, node.embedding_ns) for start, node in zip(starts, nodes, strict=True)]
    none = np.zeros(tables.num_layers, dtype=np.int64), 0
    return LeastCosts(
        inside=min((time for own, time in sends if own), default=None),
        outside=min((time for own, time in sends if not own), default=0),
        sync=_sync(placer, placer.sync, nodes),
        gather=_sync(placer, placer.gather, nodes) if placer.gather else none,
        embedding=(
            min(time for start, time in embedding if start < dp),
            min(time for start, time in embedding if start + size > tables.shape.slots - dp),
        ),
    )
